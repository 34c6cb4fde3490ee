"""The opaque tokens of GSSAPI pass unchanged and in order, in SaslAuthenticate requests and as raw tokens.

The broker is a scripted one, because a real one would need a Kerberos realm.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.kafka.processes import free_addresses
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire
from tests.proxy.scripted_broker import HangUp, ScriptedBroker, listening

LIKE_A_REQUEST = bytes.fromhex("00000020 0011 0000 00000001 ffff") + b"GSSAPI"
"""Bytes that look like the start of a frame with a SaslHandshake request."""
TOKENS = (b"\x60" + bytes(range(256)) * 300, b"", LIKE_A_REQUEST, b"\x05\x04\x04\xff")
"""The client's tokens: a long one as with a Kerberos ticket, the empty token of RFC 4752, and odd ones."""
ANSWERS = (b"\x6f" + bytes(200), LIKE_A_REQUEST * 2, b"\x05\x04\x05\xff" * 20_000, b"")
GROUPS = ListGroupsResponse(error_code=0, groups=())


class GssapiBroker(ScriptedBroker):
    """Answers each token with the next of ANSWERS, and serves requests after the last token.

    Attributes:
        tokens: the tokens so far, on all connections.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[bytes] = []

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serves one connection. Each has a state of its own, because the sidecar opens connections too."""
        await _Connection(self.tokens).serve(stream)


class _Connection(ScriptedBroker):
    def __init__(self, tokens: list[bytes]) -> None:
        answers: dict[Any, Any] = {
            SaslHandshakeRequest: self._shake,
            SaslAuthenticateRequest: self._authenticate,
            ListGroupsRequest: self._list,
        }
        super().__init__(answers)
        self._tokens = tokens
        self._answers_left: list[bytes] | None = None
        self._raw = False

    def _shake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        assert request.mechanism == "GSSAPI"
        self._raw, self._answers_left = version == 0, list(ANSWERS)
        return SaslHandshakeResponse(error_code=0, mechanisms=("GSSAPI",))

    def _authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=self._answer(request.auth_bytes))

    def _answer(self, token: bytes) -> bytes:
        assert self._answers_left
        self._tokens.append(token)
        return self._answers_left.pop(0)

    def _list(self, request: ListGroupsRequest, version: int) -> ListGroupsResponse:
        if self._answers_left != []:
            raise HangUp
        return GROUPS

    async def _reply(self, frame: bytes) -> bytes:
        if not (self._raw and self._answers_left):
            return await super()._reply(frame)
        answer = self._answer(frame)
        return len(answer).to_bytes(4, "big") + answer


@contextmanager
def sidecar_before(folder: Path, broker: GssapiBroker, **settings: Any) -> Iterator[SidecarProcess]:
    [listen] = free_addresses(1)
    with (
        listening(broker) as [address],
        SidecarProcess(
            folder, listen=listen, upstream=(address.host, address.port), settings=settings, until="/healthz"
        ) as running,
    ):
        yield running


def send_in_pieces(wire: Wire, token: bytes) -> None:
    """Sends a token after its length, so that the sidecar reads it in several parts."""
    data = len(token).to_bytes(4, "big") + token
    for start in range(0, len(data), 40_000):
        wire.send(data[start : start + 40_000])


LIMIT = {"policies": {"group_max_size": {"limit": 5}}}


@pytest.mark.parametrize("settings", [{}, LIMIT], ids=["no policy", "enforced policy"])
def test_framed_tokens_pass(tmp_path: Path, settings: dict[str, Any]) -> None:
    """GSSAPI tokens in SaslAuthenticate requests pass in both directions, and requests after them get their replies."""
    broker = GssapiBroker()
    with sidecar_before(tmp_path, broker, **settings) as sidecar, Wire(sidecar.listen) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code == 0
        for token, answer in zip(TOKENS, ANSWERS, strict=True):
            assert wire.ask(SaslAuthenticateRequest(auth_bytes=token), 2).auth_bytes == answer
        assert [wire.ask(ListGroupsRequest(), 4) for _ in range(2)] == [GROUPS] * 2
        assert sidecar.metric("group_sidecar_requests_total", api="ListGroups") == 2
    assert tuple(broker.tokens) == TOKENS


def test_raw_tokens_pass(tmp_path: Path) -> None:
    """Raw GSSAPI tokens pass in both directions. All later bytes pass too, which the sidecar cannot parse."""
    broker = GssapiBroker()
    with sidecar_before(tmp_path, broker) as sidecar, Wire(sidecar.listen) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 0).error_code == 0
        for token, answer in zip(TOKENS, ANSWERS, strict=True):
            send_in_pieces(wire, token)
            assert wire.receive() == answer
        assert [wire.ask(ListGroupsRequest(), 4) for _ in range(2)] == [GROUPS] * 2
        assert sidecar.metric("group_sidecar_requests_total", api="ListGroups") == 0
    assert tuple(broker.tokens) == TOKENS


def test_raw_tokens_cannot_bypass_policy(tmp_path: Path) -> None:
    """With an enforced policy, the sidecar closes a connection on which raw GSSAPI tokens would follow."""
    broker = GssapiBroker()
    with sidecar_before(tmp_path, broker, **LIMIT) as sidecar, Wire(sidecar.listen) as wire:
        wire.send_request(SaslHandshakeRequest(mechanism="GSSAPI"), 0)
        assert wire.closed()
        sidecar.process.wait_until(
            lambda: sidecar.metric("group_sidecar_client_connections_closed_total", reason="unreadable") == 1
        )
    assert broker.tokens == []
