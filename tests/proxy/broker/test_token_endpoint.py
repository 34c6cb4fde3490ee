"""Tests OAUTHBEARER with client credentials: a token endpoint with each fault, in front of a scripted broker."""

import base64
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import trio
import trustme

from group_sidecar.proxy.broker.credential_files import CredentialUnavailable
from group_sidecar.proxy.broker.own_credentials import OwnCredentials
from group_sidecar.proxy.broker.token_endpoint import LARGEST_ANSWER, TokenEndpoint
from group_sidecar.proxy.config.own_connection import OwnConnection, Sasl
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.broker.bearer_broker import TOKEN, BearerBroker
from tests.proxy.broker.test_own_credentials import GROUPS, asked_at, at, groups_asked

SECTION = "own_connection.sasl"
CLIENT, SECRET = "sidecar", "client's secret, = and %more"
GRANTED: dict[str, Any] = {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 300}


class Endpoint:
    """A token endpoint that answers each request in the same way.

    Attributes:
        answer: the body of its answers.
        status: the status of its answers.
        requests: head and body of each request.
    """

    def __init__(self, answer: bytes | dict[str, Any] = b"", status: int = 200) -> None:
        self.answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.status = status
        self.requests: list[tuple[str, str]] = []

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answers one request, and closes the connection."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += await stream.receive_some()
        head, _, body = received.partition(b"\r\n\r\n")
        [size] = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        while len(body) < size:
            body += await stream.receive_some()
        self.requests.append((head.decode().lower(), body.decode()))
        try:
            await stream.send_all(self._head() + self.answer)
        except trio.BrokenResourceError:  # The answer was too long for the sidecar.
            pass
        await stream.aclose()

    def _head(self) -> bytes:
        return f"HTTP/1.1 {self.status} Any\r\nconnection: close\r\n\r\n".encode()


def endpoint_settings(address: Address, **instead: Any) -> Sasl:
    settings = {"token_endpoint_url": f"http://{address}/token", "client_id": CLIENT, "client_secret": SECRET}
    return Sasl.model_validate({"mechanism": "OAUTHBEARER", **settings, **instead})


async def fault(address: Address, seconds: float = 5, **instead: Any) -> str:
    """Returns why there is no token, after a check that the text is one line without a secret."""
    sasl = endpoint_settings(address, **instead)
    with pytest.raises(CredentialUnavailable) as raised:
        await TokenEndpoint(sasl, SECTION).token(seconds)
    line = str(raised.value)
    assert "\n" not in line
    assert SECRET not in line
    assert TOKEN not in line
    return line.removeprefix(f"{sasl.token_endpoint_url} ")


@pytest.mark.parametrize("scope", [None, "kafka read+write"])
async def test_client_credentials_authenticate(nursery: trio.Nursery, scope: str | None) -> None:
    """The token of the endpoint authenticates the sidecar. The request has the form of RFC 6749."""
    broker, endpoint = BearerBroker(), Endpoint(GRANTED)
    sasl = endpoint_settings(await at(nursery, endpoint.serve), scope=scope)
    assert await groups_asked(await at(nursery, broker.serve), OwnConnection(sasl=sasl)) == GROUPS
    [(head, body)] = endpoint.requests
    assert head.startswith("post /token http/1.1\r\n")
    assert f"authorization: basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}".lower() in head
    assert "content-type: application/x-www-form-urlencoded" in head
    assert parse_qs(body) == {"grant_type": ["client_credentials"]} | ({"scope": [scope]} if scope else {})


NO_TOKEN = "answers without an access_token in a JSON object"


@pytest.mark.parametrize(
    ("answer", "status", "line"),
    [
        (b"oops", 500, "answers with status 500"),
        ({"error": "invalid_client", "error_description": SECRET}, 401, "answers with status 401: invalid_client"),
        ({"error": "two\nlines"}, 400, "answers with status 400: two lines"),
        ({"error": ["x"]}, 400, "answers with status 400"),
        (GRANTED, 302, "answers with status 302"),
        (b"<html>", 200, NO_TOKEN),
        (b"\xff", 200, NO_TOKEN),
        (b"[" * 100_000, 200, NO_TOKEN),
        (b"", 200, NO_TOKEN),
        ([TOKEN], 200, NO_TOKEN),
        ({"access_token": None}, 200, NO_TOKEN),
        ({"access_token": ""}, 200, "contains no bearer token (RFC 6750)"),
        ({"access_token": "a\x01b=c"}, 200, "contains no bearer token (RFC 6750)"),
        (b" " * (LARGEST_ANSWER + 1), 200, f"answers with more than {LARGEST_ANSWER} bytes"),
        (b" " * (20 * LARGEST_ANSWER), 500, f"answers with more than {LARGEST_ANSWER} bytes"),
    ],
)
async def test_unusable_answer_is_reported(nursery: trio.Nursery, answer: Any, status: int, line: str) -> None:
    """An answer without a usable token raises an error with the endpoint and the reason."""
    given = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    assert await fault(await at(nursery, Endpoint(given, status).serve)) == line


async def test_longest_answer_is_read(nursery: trio.Nursery) -> None:
    """An answer of exactly the maximum size is read."""
    body = json.dumps(GRANTED).encode().ljust(LARGEST_ANSWER)
    sasl = endpoint_settings(await at(nursery, Endpoint(body).serve))
    assert await TokenEndpoint(sasl, SECTION).token(5) == TOKEN


async def test_chunked_answer_is_read(nursery: trio.Nursery) -> None:
    """An answer in chunks is read, after an interim answer."""
    body = json.dumps(GRANTED).encode()

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for part in (body[:5], body[5:], b""):
            await stream.send_all(f"{len(part):x}\r\n".encode() + part + b"\r\n")

    assert await TokenEndpoint(endpoint_settings(await at(nursery, serve)), SECTION).token(5) == TOKEN


async def silent(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def endless(stream: trio.SocketStream) -> None:
    """Sends a byte of its answer now and then."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        await stream.send_all(b" ")
        await trio.sleep(0.01)


@pytest.mark.parametrize("behaviour", [silent, endless])
async def test_slow_endpoint_times_out(
    nursery: trio.Nursery, behaviour: Callable[[trio.SocketStream], Awaitable[None]]
) -> None:
    """An endpoint that does not finish its answer in time raises an error."""
    assert await fault(await at(nursery, behaviour), seconds=0.2) == "did not answer within 0.2 s"


async def closing(stream: trio.SocketStream) -> None:
    await stream.receive_some()


async def stopping(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{")


async def with_endless_head(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    try:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nx: " + bytes(1_000_000))
    except trio.BrokenResourceError:  # The head was too long for the sidecar.
        pass


async def talking_otherwise(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(b"SSH-2.0-x\r\n\r\n")


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (closing, "closed the connection"),
        (stopping, "closed the connection"),
        (with_endless_head, "does not answer by HTTP"),
        (talking_otherwise, "does not answer by HTTP"),
    ],
)
async def test_broken_answer_is_reported(
    nursery: trio.Nursery, behaviour: Callable[[trio.SocketStream], Awaitable[None]], reason: str
) -> None:
    """A connection that ends or is not HTTP raises an error with the reason."""
    assert await fault(await at(nursery, behaviour)) == reason


async def test_absent_endpoint_is_reported() -> None:
    """A refused connection raises an error."""
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        address = Address(*unused.getsockname())
        assert await fault(address) == "cannot be reached: Connection refused"


async def test_broker_gets_no_token(nursery: trio.Nursery) -> None:
    """Without a token, the error names the broker and the endpoint, and the broker gets no token."""
    broker = BearerBroker()
    sasl = endpoint_settings(await at(nursery, Endpoint(status=503).serve))
    address = await at(nursery, broker.serve)
    with pytest.raises(Exception, match="503") as raised:
        await groups_asked(address, OwnConnection(sasl=sasl))
    assert str(raised.value) == f"{address} is not sent a token: {sasl.token_endpoint_url} answers with status 503"
    assert broker.received == []


async def test_secret_file_is_read_per_request(nursery: trio.Nursery, tmp_path: Path) -> None:
    """The file with the client secret is read for each request, and an unusable file is named in the error."""
    file, endpoint = tmp_path / "secret", Endpoint(GRANTED | {"expires_in": 0})
    address = await at(nursery, endpoint.serve)
    where: dict[str, Any] = {"client_secret": None, "client_secret_file": file}
    key = f"{SECTION}.client_secret_file"
    assert await fault(address, **where) == f"{key}: {file} cannot be used: no such file or directory"
    tokens = TokenEndpoint(endpoint_settings(address, **where), SECTION)
    for secret in ("old", "new"):
        file.write_text(f"{secret}\n")
        await tokens.token(5)
        expected = base64.b64encode(f"{CLIENT}:{secret}".encode()).decode().lower()
        assert f"authorization: basic {expected}\r\n" in endpoint.requests[-1][0] + "\r\n"


# Tokens that are used again.


@pytest.mark.parametrize(
    ("lifetime", "requests"),
    [
        ({"expires_in": 100}, [1, 1, 2]),
        ({"expires_in": 1e300}, [1, 1, 1]),
        *(({"expires_in": odd}, [1, 2, 3]) for odd in (0, -1, "100", None, float("nan"))),
        ({}, [1, 2, 3]),
    ],
)
async def test_token_is_used_while_fresh(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock, lifetime: dict[str, Any], requests: list[int]
) -> None:
    """A token is used for 80 % of its lifetime, by all connections. Without a lifetime it is used once."""
    endpoint = Endpoint({"access_token": TOKEN, **lifetime})
    tokens, seen = TokenEndpoint(endpoint_settings(await at(nursery, endpoint.serve)), SECTION), []
    for pause in (79, 2, 0):
        await tokens.token(5)
        seen.append(len(endpoint.requests))
        mock_clock.jump(pause)
    assert seen == requests


async def test_token_bridges_outage_until_it_expires(nursery: trio.Nursery, mock_clock: trio.testing.MockClock) -> None:
    """While the endpoint fails, the last token is used until it expires, but not after the broker refused it."""
    endpoint = Endpoint({"access_token": TOKEN, "expires_in": 100})
    tokens = TokenEndpoint(endpoint_settings(await at(nursery, endpoint.serve)), SECTION)
    await tokens.token(5)
    endpoint.status = 503
    mock_clock.jump(99)
    assert await tokens.token(5) == TOKEN
    assert len(endpoint.requests) == 2
    mock_clock.jump(1)
    with pytest.raises(CredentialUnavailable, match="answers with status 503"):
        await tokens.token(5)
    endpoint.status = 200
    await tokens.token(5)
    endpoint.status = 503
    tokens.refused()
    with pytest.raises(CredentialUnavailable, match="answers with status 503"):
        await tokens.token(5)


async def test_connections_share_one_request(nursery: trio.Nursery) -> None:
    """Connections that open at the same time share one request."""
    endpoint = Endpoint(GRANTED)
    tokens = TokenEndpoint(endpoint_settings(await at(nursery, endpoint.serve)), SECTION)
    async with trio.open_nursery() as together:
        for _ in range(5):
            together.start_soon(tokens.token, 5)
    assert len(endpoint.requests) == 1


async def test_refused_token_is_not_used_again(nursery: trio.Nursery) -> None:
    """After the broker refused a token, the endpoint is asked for another one."""
    broker, endpoint = BearerBroker(), Endpoint(GRANTED)
    own = OwnCredentials(OwnConnection(sasl=endpoint_settings(await at(nursery, endpoint.serve))))
    address = await at(nursery, broker.serve)
    broker.token_taken = "another"
    with pytest.raises(Exception, match=f"the token of client {CLIENT} by OAUTHBEARER: invalid_token"):
        async with own.connect(address):
            pass
    broker.token_taken = TOKEN
    for _ in range(2):
        async with own.connect(address):
            pass
    assert len(endpoint.requests) == 2


async def test_reauthentication_gets_fresh_token(nursery: trio.Nursery, mock_clock: trio.testing.MockClock) -> None:
    """A session that lasts as long as its token is authenticated again with a fresh token."""
    broker, endpoint = BearerBroker(), Endpoint(GRANTED | {"expires_in": 100})
    broker.lifetime_ms = 100_000
    own = OwnCredentials(OwnConnection(sasl=endpoint_settings(await at(nursery, endpoint.serve))))
    async with own.connect(await at(nursery, broker.serve)) as client:
        start = trio.current_time()
        await asked_at(client, mock_clock, start + 84)
        assert len(endpoint.requests) == 1
        await asked_at(client, mock_clock, start + 86)
    assert (len(endpoint.requests), broker.handshakes) == (2, 2)


# TLS.


async def test_endpoint_is_asked_by_tls(nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An https endpoint must have a certificate that `ca_file` or the system trusts."""
    authority, ca_file, endpoint = trustme.CA(), tmp_path / "ca.pem", Endpoint(GRANTED)
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def serve(stream: trio.SocketStream) -> None:
        try:
            await endpoint.serve(trio.SSLStream(stream, context, server_side=True, https_compatible=True))
        except trio.BrokenResourceError:  # The sidecar does not trust the certificate.
            pass

    address = await at(nursery, serve)
    url = f"https://{address}/token"
    line = await fault(address, token_endpoint_url=url)
    assert line.startswith("cannot be reached by TLS: its certificate is not trusted: ")
    missing = tmp_path / "missing.pem"
    line = await fault(address, token_endpoint_url=url, ca_file=missing)
    assert line == f"{SECTION}.ca_file: {missing} cannot be used: no such file or directory"
    assert endpoint.requests == []
    sasl = endpoint_settings(address, token_endpoint_url=url, ca_file=ca_file)
    assert await TokenEndpoint(sasl, SECTION).token(5) == TOKEN


async def test_proxies_of_environment_are_not_used(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is asked directly, whatever proxy the environment names."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    sasl = endpoint_settings(await at(nursery, Endpoint(GRANTED).serve))
    assert await TokenEndpoint(sasl, SECTION).token(5) == TOKEN
