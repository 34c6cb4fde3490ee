"""SaslHandshake v0 and the raw tokens after it: when parsing stops, and when it begins again."""

from typing import Any

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane.commands import Close, Command, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.framing import FrameAction
from group_sidecar.proxy.dataplane.outcomes import OPAQUE, Forward, Pass, Reply
from tests.proxy.dataplane.playbook import (
    ScriptedDispatcher,
    SessionDriver,
    framed,
    pieces,
    reply,
    request,
    to_client,
    to_upstream,
)
from tests.proxy.fakes import Named

HANDSHAKE, FETCH, COMMIT = int(ApiKey.SASL_HANDSHAKE), int(ApiKey.FETCH), int(ApiKey.OFFSET_COMMIT)
SIZES = pytest.mark.parametrize("size", [0, 1, 3])
"""All bytes at once, byte by byte, and in pieces of three."""


class SaslDispatcher(ScriptedDispatcher):
    """A dispatcher that accepts a SaslHandshake v0, followed by `tokens` raw tokens."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.outcomes[HANDSHAKE] = Forward(Named("handshake"))
        self.replies["handshake"] = Reply(raw_tokens=tokens)

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        return (
            FrameAction.HOLD
            if (api_key, api_version) == (HANDSHAKE, 0)
            else super().classify(api_key, api_version, size)
        )


def fed(play: SessionDriver, data: bytes, size: int) -> list[Command]:
    """Sends the client's bytes in pieces. Returns all commands."""
    return [command for piece in pieces(data, size) for command in play.client(piece)]


def broker_sends(play: SessionDriver, data: bytes, size: int) -> list[Command]:
    """Sends the broker's bytes in pieces. Returns all commands."""
    return [command for piece in pieces(data, size) for command in play.upstream(piece)]


def shaken(tokens: int, size: int = 0) -> tuple[SessionDriver, SaslDispatcher]:
    """Returns a connection whose handshake was answered, and its dispatcher."""
    dispatcher = SaslDispatcher(tokens)
    play = SessionDriver(dispatcher)
    assert to_upstream(fed(play, request(HANDSHAKE, 1), size)) == request(HANDSHAKE, 1)
    paused = not play.session.should_read_client
    assert to_client(broker_sends(play, reply(1, b"ok"), size)) == reply(1, b"ok")
    assert paused
    assert play.session.should_read_client
    return play, dispatcher


def frames_work(play: SessionDriver, dispatcher: ScriptedDispatcher, size: int = 0) -> None:
    """Asserts that both directions are parsed again: a request is classified and matched with its reply."""
    dispatcher.notes[COMMIT] = "commit"
    frame, answer = request(COMMIT, 50, body=b"x" * 30), reply(50)
    assert to_upstream(fed(play, frame, size)) == frame
    assert to_client(broker_sends(play, answer, size)) == answer
    assert dispatcher.shown[-1] == ("commit", answer[4:])
    assert play.client(b"\0\0\0\0") == [Close(CloseReason.BAD_FRAME_LENGTH)]


@SIZES
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_frames_follow_raw_tokens(rounds: int, size: int) -> None:
    """Raw SASL tokens pass in both directions, and frames are parsed after the last token."""
    play, dispatcher = shaken(rounds, size)
    for number in range(rounds):
        token, answer = framed(b"token" * (number + 1)), framed(b"answer" * number)
        assert to_upstream(fed(play, token, size)) == token
        assert to_client(broker_sends(play, answer, size)) == answer
    frames_work(play, dispatcher, size)


@SIZES
def test_empty_tokens_pass(size: int) -> None:
    """Empty raw tokens pass and count as tokens."""
    play, dispatcher = shaken(2, size)
    for _ in range(2):
        assert to_upstream(fed(play, framed(b""), size)) == framed(b"")
        assert to_client(broker_sends(play, framed(b""), size)) == framed(b"")
    frames_work(play, dispatcher, size)


def test_token_waits_for_handshake_reply() -> None:
    """A token in the same chunk as the handshake waits for the handshake's reply."""
    dispatcher = SaslDispatcher(1)
    play, token, behind = SessionDriver(dispatcher), framed(b"\0user\0secret"), request(FETCH, 2)
    assert play.client(request(HANDSHAKE, 1), token, behind) == [ToUpstream(request(HANDSHAKE, 1))]
    assert play.session.held_bytes - play.session.kept_bytes == len(token) + len(behind)
    assert play.upstream(reply(1)) == [ToClient(reply(1)), ToUpstream(token + behind)]
    assert play.upstream(framed(b""), reply(2)) == [ToClient(framed(b"") + reply(2))]
    frames_work(play, dispatcher)


@SIZES
def test_requests_after_last_token_are_frames(size: int) -> None:
    """Requests directly after the last token are parsed as frames."""
    play, dispatcher = shaken(2, size)
    dispatcher.notes[COMMIT] = "commit"
    sent = framed(b"first") + framed(b"last") + request(COMMIT, 2) + request(FETCH, 3)
    back = framed(b"server-first") + framed(b"") + reply(2) + reply(3)
    assert to_upstream(fed(play, sent, size)) == sent
    assert to_client(broker_sends(play, back, size)) == back
    assert dispatcher.shown[-1] == ("commit", reply(2)[4:])
    frames_work(play, dispatcher, size)


def test_token_replies_are_not_counted() -> None:
    """Replies to tokens are not counted as requests."""
    play, _ = shaken(1)
    play.client(framed(b"token"))
    play.upstream(framed(b""))
    assert list(play.traffic.durations) == [HANDSHAKE]


@SIZES
def test_unknown_token_count_is_opaque(size: int) -> None:
    """An unknown number of tokens makes the connection opaque until its end."""
    play, dispatcher = shaken(OPAQUE, size)
    garbage = b"\0\0\0\0\xff\xff\xff\xff" + request(FETCH, 9)
    assert to_upstream(fed(play, garbage, size)) == garbage
    assert to_client(broker_sends(play, garbage, size)) == garbage
    assert play.session.held_bytes == 0
    assert play.client_closed() == [ShutUpstream()]
    assert play.upstream_closed() == [Close(CloseReason.BROKER_CLOSED)]
    assert dispatcher.lost == [[]]


def test_held_bytes_pass_when_opaque() -> None:
    """Bytes that were held for the handshake's reply are forwarded when the connection becomes opaque."""
    dispatcher = SaslDispatcher(OPAQUE)
    play = SessionDriver(dispatcher)
    play.client(request(HANDSHAKE, 1), b"\0\0\0\0early")
    assert play.upstream(reply(1), b"\xff") == [ToClient(reply(1)), ToUpstream(b"\0\0\0\0early"), ToClient(b"\xff")]


def test_refused_handshake_has_no_tokens() -> None:
    """After a handshake with zero tokens, the next bytes are parsed as frames."""
    play, dispatcher = shaken(0)
    frames_work(play, dispatcher)


def test_unnoted_handshake_is_ordinary_request() -> None:
    """A handshake that the dispatcher does not note is handled like any other request."""
    play, dispatcher = shaken(0)
    dispatcher.outcomes[HANDSHAKE] = Pass()
    assert play.client(request(HANDSHAKE, 2), request(FETCH, 3)) == [
        ToUpstream(request(HANDSHAKE, 2)),
        ToUpstream(request(FETCH, 3)),
    ]
    assert play.upstream(reply(2), reply(3)) == [ToClient(reply(2) + reply(3))]
    frames_work(play, dispatcher)


def test_handshake_v1_has_no_raw_tokens() -> None:
    """After a SaslHandshake v1, the next bytes are parsed as frames."""
    dispatcher = SaslDispatcher(1)
    play, sent = SessionDriver(dispatcher), request(HANDSHAKE, 1, version=1) + request(36, 2, body=b"token")
    assert play.client(sent) == [ToUpstream(sent)]
    assert play.session.should_read_client
    assert play.upstream(reply(1), reply(2)) == [ToClient(reply(1) + reply(2))]
    frames_work(play, dispatcher)


def test_inspected_handshake_v1_has_no_tokens() -> None:
    """A SaslHandshake v1 that the dispatcher inspects has no raw tokens either."""
    dispatcher = ScriptedDispatcher()
    dispatcher.takes(HANDSHAKE, Forward(Named("handshake")))
    play, sent = SessionDriver(dispatcher), request(HANDSHAKE, 1, version=1) + request(36, 2, body=b"token")
    assert to_upstream(play.client(sent)) == sent
    assert to_client(play.upstream(reply(1), reply(2))) == reply(1) + reply(2)


def test_reply_header_is_checked_after_tokens() -> None:
    """After the last token, a reply that is too short for a header closes the connection."""
    play, _ = shaken(1)
    play.client(framed(b"token"), request(FETCH, 2))
    answered = framed(b"") + b"\0\0\0\3"
    assert play.upstream(answered) == [ToClient(framed(b"")), Close(CloseReason.BAD_FRAME_LENGTH)]


def test_handshake_after_pending_requests() -> None:
    """A handshake after requests with pending replies waits for them before its tokens pass."""
    dispatcher = SaslDispatcher(1)
    dispatcher.notes[COMMIT] = "commit"
    play, token = SessionDriver(dispatcher), framed(b"token")
    sent = request(COMMIT, 1) + request(HANDSHAKE, 2)
    assert to_upstream(play.client(sent, token)) == sent
    assert play.upstream(reply(1)) == [ToClient(reply(1))]
    assert not play.session.should_read_client
    assert play.upstream(reply(2)) == [ToClient(reply(2)), ToUpstream(token)]
    assert play.upstream(framed(b"")) == [ToClient(framed(b""))]
    frames_work(play, dispatcher)


def test_handshake_reply_is_always_read() -> None:
    """The session reads the handshake's reply even if the dispatcher does not want it."""
    dispatcher = SaslDispatcher(1)
    dispatcher.unread.add("handshake")
    play = SessionDriver(dispatcher)
    play.client(request(HANDSHAKE, 1))
    play.upstream(reply(1))
    assert play.client(framed(b"")) == [ToUpstream(framed(b""))]


@pytest.mark.parametrize("token", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_bad_token_length_closes(token: bytes) -> None:
    """A token with an impossible length closes the connection."""
    play, _ = shaken(1)
    assert play.client(token) == [Close(CloseReason.BAD_FRAME_LENGTH)]


def test_unexpected_broker_token_closes() -> None:
    """A token from the broker without a client's token closes the connection."""
    play, _ = shaken(1)
    assert play.upstream(framed(b"")) == [Close(CloseReason.CORRELATION_MISMATCH)]


def test_client_end_within_a_token_closes() -> None:
    """A client's end of stream within a token closes the connection as truncated."""
    play, _ = shaken(1)
    play.client(framed(b"token")[:-1])
    assert play.client_closed() == [ShutUpstream()]
    assert play.upstream_closed() == [Close(CloseReason.TRUNCATED_FRAME)]


def test_tokens_before_client_end_are_served() -> None:
    """A token that a client sent before its end of stream is forwarded first."""
    dispatcher = SaslDispatcher(1)
    play, token = SessionDriver(dispatcher), framed(b"token")
    play.client(request(HANDSHAKE, 1), token)
    assert play.client_closed() == []
    assert play.upstream(reply(1)) == [ToClient(reply(1)), ToUpstream(token), ShutUpstream()]
