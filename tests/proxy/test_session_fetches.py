"""Which Fetch replies a session has looked into, and how they pass meanwhile."""

from collections.abc import Sequence
from typing import Any

import pytest

from group_sidecar.codecs.registry import ApiKey
from group_sidecar.proxy.commands import ToClient
from group_sidecar.proxy.disposals import Origin, Reply
from group_sidecar.proxy.framing import Look
from group_sidecar.proxy.session import FETCH_SECONDS
from tests.proxy.playbook import Playbook, ScriptedDesk, pieces, reply, request, to_client

FETCH, COMMIT = int(ApiKey.FETCH), int(ApiKey.OFFSET_COMMIT)


class CuriousDesk(ScriptedDesk):
    """A desk that wants to see replies in one way, and remembers what requests it was offered."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.look = look
        self.offered: list[int] = []
        self.seen: list[tuple[str, bytes]] = []

    def glance(self, api_key: int, api_version: int, size: int) -> Any:
        self.offered.append(api_key)
        return "a note"

    def glance_reply(self, note: Any, size: int, now: float) -> Look:
        return self.look

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        self.seen.append(("whole", frame))
        return Reply()

    def later(self, note: Any, frame: bytes, origin: Origin, now: float) -> None:
        self.seen.append(("whole", frame))

    def begun(self, note: Any, head: bytes, origin: Origin, now: float) -> None:
        self.seen.append(("begun", head))


def fetch(play: Playbook, correlation: int, chunks: Sequence[bytes] = ()) -> bytes:
    """A Fetch and its reply, in one chunk unless they are given; gives what reaches the client."""
    play.client(request(FETCH, correlation))
    return b"".join(to_client(play.upstream(chunk)) for chunk in chunks or [reply(correlation)])


@pytest.mark.parametrize("look", [Look.SHOW, Look.TAKE, Look.BEGIN])
def test_after_a_look_the_connections_fetches_pass_for_a_while(look: Look) -> None:
    play = Playbook(desk := CuriousDesk(look))
    for correlation, seconds in enumerate((0, FETCH_SECONDS / 2, FETCH_SECONDS / 2 - 0.01, 0.02)):
        play.now += seconds
        fetch(play, correlation)
    assert desk.offered == [FETCH, FETCH]
    assert len(desk.seen) == 2


def test_a_reply_that_was_not_looked_into_does_not_count() -> None:
    play = Playbook(desk := CuriousDesk(Look.PASS))
    for correlation in range(3):
        fetch(play, correlation)
    assert desk.offered == [FETCH] * 3


def test_other_requests_are_always_offered_and_other_connections_have_their_own_pace() -> None:
    desk = CuriousDesk(Look.SHOW)
    play, other = Playbook(desk), Playbook(desk)
    for correlation in range(3):
        fetch(play, correlation)
    play.client(request(COMMIT, 3))
    fetch(other, 1)
    assert desk.offered == [FETCH, COMMIT, FETCH]


@pytest.mark.parametrize("size", [0, 1, 5, 9])
def test_a_short_reply_is_shown_whole_however_it_comes(size: int) -> None:
    play = Playbook(desk := CuriousDesk(Look.SHOW))
    told = reply(7, b"partitions")
    assert fetch(play, 7, pieces(told, size)) == told
    assert desk.seen == [("whole", told[4:])]


def test_of_a_long_reply_the_first_bytes_are_shown_and_none_is_held() -> None:
    play = Playbook(desk := CuriousDesk(Look.BEGIN))
    told = reply(7, bytes(1000))
    play.client(request(FETCH, 7))
    for chunk in pieces(told, 100):
        assert play.upstream(chunk) == [ToClient(chunk)]
        assert play.session.held_bytes == 0
    assert desk.seen == [("begun", told[4:100])]


def test_what_is_shown_of_a_reply_ends_where_it_ends() -> None:
    play = Playbook(desk := CuriousDesk(Look.BEGIN))
    play.client(request(FETCH, 1), request(FETCH, 2))
    chunk = reply(1, b"first") + reply(2, b"second")
    assert to_client(play.upstream(chunk)) == chunk
    assert desk.seen == [("begun", reply(1, b"first")[4:]), ("begun", reply(2, b"second")[4:])]
