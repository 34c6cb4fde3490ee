"""SaslHandshake v0 and the raw tokens behind it: when parsing stops, and when it begins again."""

import pytest

from group_sidecar.codecs.registry import ApiKey
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.commands import Close, Command, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.disposals import OPAQUE, Forward, Pass, Reply
from group_sidecar.proxy.framing import Look
from tests.proxy.playbook import Playbook, ScriptedDesk, framed, pieces, reply, request, to_client, to_upstream

HANDSHAKE, FETCH, COMMIT = int(ApiKey.SASL_HANDSHAKE), int(ApiKey.FETCH), int(ApiKey.OFFSET_COMMIT)
SIZES = pytest.mark.parametrize("size", [0, 1, 3])
"""Everything at once, byte by byte, and in threes."""


class SaslDesk(ScriptedDesk):
    """Accepts handshakes v0, with so many tokens behind them."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.disposals[HANDSHAKE] = Forward("handshake")
        self.replies["handshake"] = Reply(raw_tokens=tokens)

    def glance(self, api_key: int, api_version: int, size: int) -> object:
        return Look.TAKE if (api_key, api_version) == (HANDSHAKE, 0) else super().glance(api_key, api_version, size)


def fed(play: Playbook, data: bytes, size: int) -> list[Command]:
    """The client's bytes in pieces, of which none may be refused."""
    return [command for piece in pieces(data, size) for command in play.client(piece)]


def told(play: Playbook, data: bytes, size: int) -> list[Command]:
    """The broker's bytes in pieces."""
    return [command for piece in pieces(data, size) for command in play.upstream(piece)]


def shaken(tokens: int, size: int = 0) -> tuple[Playbook, SaslDesk]:
    """A connection whose handshake has been answered."""
    desk = SaslDesk(tokens)
    play = Playbook(desk)
    assert to_upstream(fed(play, request(HANDSHAKE, 1), size)) == request(HANDSHAKE, 1)
    paused = not play.session.wants_client
    assert to_client(told(play, reply(1, b"ok"), size)) == reply(1, b"ok")
    assert paused
    assert play.session.wants_client
    return play, desk


def frames_work(play: Playbook, desk: ScriptedDesk, size: int = 0) -> None:
    """Both directions are parsed again: a request is looked at, and its reply belongs to it."""
    desk.notes[COMMIT] = "commit"
    frame, answer = request(COMMIT, 50, body=b"x" * 30), reply(50)
    assert to_upstream(fed(play, frame, size)) == frame
    assert to_client(told(play, answer, size)) == answer
    assert desk.shown[-1] == ("commit", answer[4:])
    assert play.client(b"\0\0\0\0") == [Close(CloseReason.BAD_FRAME_LENGTH)]


@SIZES
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_tokens_pass_round_by_round_and_then_frames_again(rounds: int, size: int) -> None:
    play, desk = shaken(rounds, size)
    for number in range(rounds):
        token, answer = framed(b"token" * (number + 1)), framed(b"answer" * number)
        assert to_upstream(fed(play, token, size)) == token
        assert to_client(told(play, answer, size)) == answer
    frames_work(play, desk, size)


@SIZES
def test_empty_tokens_pass(size: int) -> None:
    play, desk = shaken(2, size)
    for _ in range(2):
        assert to_upstream(fed(play, framed(b""), size)) == framed(b"")
        assert to_client(told(play, framed(b""), size)) == framed(b"")
    frames_work(play, desk, size)


def test_a_token_behind_the_handshake_in_one_chunk_waits_for_its_reply() -> None:
    desk = SaslDesk(1)
    play, token, behind = Playbook(desk), framed(b"\0user\0secret"), request(FETCH, 2)
    assert play.client(request(HANDSHAKE, 1), token, behind) == [ToUpstream(request(HANDSHAKE, 1))]
    assert play.session.held_bytes - play.session.kept_bytes == len(token) + len(behind)
    assert play.upstream(reply(1)) == [ToClient(reply(1)), ToUpstream(token + behind)]
    assert play.upstream(framed(b""), reply(2)) == [ToClient(framed(b"") + reply(2))]
    frames_work(play, desk)


@SIZES
def test_requests_right_behind_the_last_token_are_frames(size: int) -> None:
    play, desk = shaken(2, size)
    desk.notes[COMMIT] = "commit"
    sent = framed(b"first") + framed(b"last") + request(COMMIT, 2) + request(FETCH, 3)
    back = framed(b"server-first") + framed(b"") + reply(2) + reply(3)
    assert to_upstream(fed(play, sent, size)) == sent
    assert to_client(told(play, back, size)) == back
    assert desk.shown[-1] == ("commit", reply(2)[4:])
    frames_work(play, desk, size)


def test_replies_to_tokens_are_not_counted_as_requests() -> None:
    play, _ = shaken(1)
    play.client(framed(b"token"))
    play.upstream(framed(b""))
    assert list(play.traffic.durations) == [HANDSHAKE]


@SIZES
def test_an_unknown_number_of_tokens_makes_the_connection_opaque_for_ever(size: int) -> None:
    play, desk = shaken(OPAQUE, size)
    garbage = b"\0\0\0\0\xff\xff\xff\xff" + request(FETCH, 9)
    assert to_upstream(fed(play, garbage, size)) == garbage
    assert to_client(told(play, garbage, size)) == garbage
    assert play.session.held_bytes == 0
    assert play.client_closed() == [ShutUpstream()]
    assert play.upstream_closed() == [Close(CloseReason.BROKER_CLOSED)]
    assert desk.lost == [[]]


def test_what_was_held_goes_on_when_the_connection_turns_opaque() -> None:
    desk = SaslDesk(OPAQUE)
    play = Playbook(desk)
    play.client(request(HANDSHAKE, 1), b"\0\0\0\0early")
    assert play.upstream(reply(1), b"\xff") == [ToClient(reply(1)), ToUpstream(b"\0\0\0\0early"), ToClient(b"\xff")]


def test_behind_a_refused_handshake_there_are_no_tokens() -> None:
    play, desk = shaken(0)
    frames_work(play, desk)


def test_a_handshake_that_the_desk_does_not_note_is_a_request_like_others() -> None:
    play, desk = shaken(0)
    desk.disposals[HANDSHAKE] = Pass()
    assert play.client(request(HANDSHAKE, 2), request(FETCH, 3)) == [
        ToUpstream(request(HANDSHAKE, 2)),
        ToUpstream(request(FETCH, 3)),
    ]
    assert play.upstream(reply(2), reply(3)) == [ToClient(reply(2) + reply(3))]
    frames_work(play, desk)


def test_handshake_v1_has_no_raw_tokens() -> None:
    desk = SaslDesk(1)
    play, sent = Playbook(desk), request(HANDSHAKE, 1, version=1) + request(36, 2, body=b"token")
    assert play.client(sent) == [ToUpstream(sent)]
    assert play.session.wants_client
    assert play.upstream(reply(1), reply(2)) == [ToClient(reply(1) + reply(2))]
    frames_work(play, desk)


def test_handshake_v1_has_none_whoever_looks_into_it() -> None:
    desk = ScriptedDesk()
    desk.takes(HANDSHAKE, Forward("handshake"))
    play, sent = Playbook(desk), request(HANDSHAKE, 1, version=1) + request(36, 2, body=b"token")
    assert to_upstream(play.client(sent)) == sent
    assert to_client(play.upstream(reply(1), reply(2))) == reply(1) + reply(2)


def test_replies_have_a_header_again_behind_the_last_token() -> None:
    play, _ = shaken(1)
    play.client(framed(b"token"), request(FETCH, 2))
    answered = framed(b"") + b"\0\0\0\3"
    assert play.upstream(answered) == [ToClient(framed(b"")), Close(CloseReason.BAD_FRAME_LENGTH)]


def test_a_handshake_behind_requests_that_are_still_owed_a_reply() -> None:
    desk = SaslDesk(1)
    desk.notes[COMMIT] = "commit"
    play, token = Playbook(desk), framed(b"token")
    sent = request(COMMIT, 1) + request(HANDSHAKE, 2)
    assert to_upstream(play.client(sent, token)) == sent
    assert play.upstream(reply(1)) == [ToClient(reply(1))]
    assert not play.session.wants_client
    assert play.upstream(reply(2)) == [ToClient(reply(2)), ToUpstream(token)]
    assert play.upstream(framed(b"")) == [ToClient(framed(b""))]
    frames_work(play, desk)


def test_the_reply_to_a_handshake_is_read_whatever_the_desk_says_of_its_length() -> None:
    desk = SaslDesk(1)
    desk.unread.add("handshake")
    play = Playbook(desk)
    play.client(request(HANDSHAKE, 1))
    play.upstream(reply(1))
    assert play.client(framed(b"")) == [ToUpstream(framed(b""))]


@pytest.mark.parametrize("token", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_a_token_of_an_impossible_length_closes(token: bytes) -> None:
    play, _ = shaken(1)
    assert play.client(token) == [Close(CloseReason.BAD_FRAME_LENGTH)]


def test_a_token_that_the_broker_was_not_asked_for_closes() -> None:
    play, _ = shaken(1)
    assert play.upstream(framed(b"")) == [Close(CloseReason.CORRELATION_MISMATCH)]


def test_a_client_that_ends_within_a_token_is_closed() -> None:
    play, _ = shaken(1)
    play.client(framed(b"token")[:-1])
    assert play.client_closed() == [ShutUpstream()]
    assert play.upstream_closed() == [Close(CloseReason.TRUNCATED_FRAME)]


def test_a_client_that_ends_behind_its_handshake_is_served_first() -> None:
    desk = SaslDesk(1)
    play, token = Playbook(desk), framed(b"token")
    play.client(request(HANDSHAKE, 1), token)
    assert play.client_closed() == []
    assert play.upstream(reply(1)) == [ToClient(reply(1)), ToUpstream(token), ShutUpstream()]
