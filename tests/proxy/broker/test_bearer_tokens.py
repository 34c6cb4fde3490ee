"""Tests OAUTHBEARER with a token from a file, against a scripted broker."""

from pathlib import Path

import pytest
import trio

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.proxy.broker.broker_errors import AuthenticationFailed, BrokerClosed
from group_sidecar.proxy.broker.own_credentials import OwnCredentials
from group_sidecar.proxy.config.own_connection import OwnConnection, Sasl
from tests.proxy.broker.bearer_broker import DUMMY, TOKEN, BearerBroker
from tests.proxy.broker.test_own_credentials import GROUPS, asked_at, at, groups_asked, refusal

MESSAGE = f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode()
BOTH_HANDSHAKES = pytest.mark.parametrize("handshake", [0, 1])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def put(file: Path, content: str | bytes) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def own_with(file: Path) -> OwnConnection:
    return OwnConnection(sasl=Sasl(mechanism="OAUTHBEARER", token_file=file))


@BOTH_HANDSHAKES
async def test_token_authenticates(nursery: trio.Nursery, file: Path, handshake: int) -> None:
    """The token is sent in the message of RFC 7628, in both handshake versions, before the first request."""
    broker = BearerBroker(handshake)
    assert await groups_asked(await at(nursery, broker.serve), own_with(file)) == GROUPS
    assert broker.received == [MESSAGE]
    assert [version for request, version in broker.asked if isinstance(request, SaslHandshakeRequest)] == [handshake]


@BOTH_HANDSHAKES
@pytest.mark.parametrize(
    ("challenge", "status"),
    [
        (b'{"status":"invalid_token","scope":"kafka"}', "invalid_token"),
        (b'{"status":"two\\nlines \\u0007"}', "two lines"),
        (b'{"status":"' + b"x" * 200 + b'"}', "x" * 100),
        *(
            (odd, "an error challenge without a status")
            for odd in (b"{}", b"[]", b"junk", b"\xff", b'{"status":5}', b'{"status":""}', b"[" * 100_000)
        ),
    ],
)
async def test_challenge_is_reported(
    nursery: trio.Nursery, file: Path, handshake: int, challenge: bytes, status: str
) -> None:
    """A refused token raises an error with the status of the broker's challenge, which gets its reply first."""
    broker = BearerBroker(handshake)
    broker.challenge = challenge
    broker.token_taken = "another"
    line = await refusal(await at(nursery, broker.serve), own_with(file))
    assert line == f"refuses the token in {file} by OAUTHBEARER: {status}"
    assert broker.received == [MESSAGE, DUMMY]
    assert TOKEN not in line


async def test_refusal_without_challenge_is_reported(nursery: trio.Nursery, file: Path) -> None:
    """A broker that refuses a token at once is reported with its error."""
    broker = BearerBroker()
    broker._token = lambda token: None  # type: ignore[method-assign]
    line = await refusal(await at(nursery, broker.serve), own_with(file))
    assert line.startswith(f"refuses the token in {file} by OAUTHBEARER: SASL_AUTHENTICATION_FAILED (58): ")


async def test_closed_connection_is_reported(nursery: trio.Nursery, file: Path) -> None:
    """A broker that closes the connection at a token is reported with the token's file."""
    broker = BearerBroker(newest_handshake=0)
    broker._token = lambda token: None  # type: ignore[method-assign]
    line = await refusal(await at(nursery, broker.serve), own_with(file))
    assert line == f"closed the connection at a SASL token: it may have refused the token in {file} by OAUTHBEARER"


async def test_failed_handshake_sends_no_token(nursery: trio.Nursery, file: Path) -> None:
    """A broker without OAUTHBEARER gets no token."""
    broker = BearerBroker()
    broker.answers[SaslHandshakeRequest] = SaslHandshakeResponse(error_code=33, mechanisms=("PLAIN",))
    line = await refusal(await at(nursery, broker.serve), own_with(file))
    assert line == "does not support OAUTHBEARER: UNSUPPORTED_SASL_MECHANISM (33): it offers PLAIN"
    assert broker.requests(SaslAuthenticateRequest) == []


async def test_file_is_read_at_each_authentication(nursery: trio.Nursery, file: Path) -> None:
    """The file is read again for each connection, and a file without a token is named in the error."""
    broker = BearerBroker()
    address = await at(nursery, broker.serve)
    own, key = own_with(file), "is not sent a token: own_connection.sasl.token_file"
    missing = own_with(file.with_name("missing"))
    assert (
        await refusal(address, missing)
        == f"{key}: {file.with_name('missing')} cannot be used: no such file or directory"
    )
    put(file, b"\xff")
    assert await refusal(address, own) == f"{key}: {file} is not UTF-8"
    for text in ("", "two words", f"{TOKEN}\x01extra=field", f"{TOKEN}\n{TOKEN}", "t\u00f6ken"):
        put(file, text)
        assert await refusal(address, own) == f"{key}: {file} contains no bearer token (RFC 6750)"
    assert broker.received == []
    put(file, f"  {TOKEN}\r\n")
    assert await groups_asked(address, own) == GROUPS


async def test_session_reauthenticates_with_current_token(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock, file: Path
) -> None:
    """A session is authenticated again before its lifetime ends, with the token that the file then contains."""
    broker = BearerBroker()
    broker.lifetime_ms = 100_000
    async with OwnCredentials(own_with(file)).connect(await at(nursery, broker.serve)) as client:
        start = trio.current_time()
        await asked_at(client, mock_clock, start + 84)
        assert broker.handshakes == 1
        put(file, "fresh")
        broker.token_taken = "fresh"
        await asked_at(client, mock_clock, start + 86)
        assert broker.handshakes == 2
        put(file, "expired")
        mock_clock.jump(90)
        with pytest.raises(AuthenticationFailed, match="by OAUTHBEARER: invalid_token"):
            await client.ask(ListGroupsRequest())
        with pytest.raises(BrokerClosed, match="has failed before ListGroups"):
            await client.ask(ListGroupsRequest())
    assert len(broker.streams) == 1
