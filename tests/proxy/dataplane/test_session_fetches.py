"""Which Fetch replies the dispatcher gets, and how these replies are forwarded."""

from collections.abc import Sequence
from typing import Any

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.proxy.dataplane.commands import ToClient
from group_sidecar.proxy.dataplane.framing import FrameAction
from group_sidecar.proxy.dataplane.outcomes import Origin, Reply
from group_sidecar.proxy.dataplane.session import FETCH_INSPECTION_SECONDS
from tests.proxy.dataplane.playbook import ScriptedDispatcher, SessionDriver, pieces, reply, request, to_client

FETCH, COMMIT = int(ApiKey.FETCH), int(ApiKey.OFFSET_COMMIT)


class ObservingDispatcher(ScriptedDispatcher):
    """A dispatcher that gets all replies in the same way. Records the API keys of requests."""

    def __init__(self, look: FrameAction) -> None:
        super().__init__()
        self.look = look
        self.offered: list[int] = []
        self.seen: list[tuple[str, bytes]] = []

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        self.offered.append(api_key)
        return "a note"

    def classify_reply(self, note: Any, size: int, now: float) -> FrameAction:
        return self.look

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        self.seen.append(("whole", frame))
        return Reply()

    def defer_reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> None:
        self.seen.append(("whole", frame))

    def defer_reply_head(self, note: Any, head: bytes, origin: Origin, now: float) -> None:
        self.seen.append(("begun", head))


def fetch(play: SessionDriver, correlation: int, chunks: Sequence[bytes] = ()) -> bytes:
    """Exchanges a Fetch and its reply, by default in one chunk. Returns the client's bytes."""
    play.client(request(FETCH, correlation))
    return b"".join(to_client(play.upstream(chunk)) for chunk in chunks or [reply(correlation)])


@pytest.mark.parametrize("look", [FrameAction.DEFER, FrameAction.HOLD, FrameAction.PEEK])
def test_fetches_pass_after_an_inspection(look: FrameAction) -> None:
    """After an inspected Fetch reply, the connection's Fetch requests pass for FETCH_INSPECTION_SECONDS."""
    play = SessionDriver(dispatcher := ObservingDispatcher(look))
    for correlation, seconds in enumerate((0, FETCH_INSPECTION_SECONDS / 2, FETCH_INSPECTION_SECONDS / 2 - 0.01, 0.02)):
        play.now += seconds
        fetch(play, correlation)
    assert dispatcher.offered == [FETCH, FETCH]
    assert len(dispatcher.seen) == 2


def test_uninspected_fetch_does_not_count() -> None:
    """A Fetch reply that the dispatcher does not inspect does not start the pause."""
    play = SessionDriver(dispatcher := ObservingDispatcher(FrameAction.PASS))
    for correlation in range(3):
        fetch(play, correlation)
    assert dispatcher.offered == [FETCH] * 3


def test_pause_is_per_connection_and_fetch_only() -> None:
    """The pause after an inspected Fetch applies neither to other APIs nor to other connections."""
    dispatcher = ObservingDispatcher(FrameAction.DEFER)
    play, other = SessionDriver(dispatcher), SessionDriver(dispatcher)
    for correlation in range(3):
        fetch(play, correlation)
    play.client(request(COMMIT, 3))
    fetch(other, 1)
    assert dispatcher.offered == [FETCH, COMMIT, FETCH]


@pytest.mark.parametrize("size", [0, 1, 5, 9])
def test_short_reply_is_deferred_whole(size: int) -> None:
    """The dispatcher gets the whole bytes of a short reply, however the reply is cut."""
    play = SessionDriver(dispatcher := ObservingDispatcher(FrameAction.DEFER))
    reply_frame = reply(7, b"partitions")
    assert fetch(play, 7, pieces(reply_frame, size)) == reply_frame
    assert dispatcher.seen == [("whole", reply_frame[4:])]


def test_long_reply_head_is_peeked() -> None:
    """The dispatcher gets the first chunk of a long reply, and no byte is held."""
    play = SessionDriver(dispatcher := ObservingDispatcher(FrameAction.PEEK))
    reply_frame = reply(7, bytes(1000))
    play.client(request(FETCH, 7))
    for chunk in pieces(reply_frame, 100):
        assert play.upstream(chunk) == [ToClient(chunk)]
        assert play.session.held_bytes == 0
    assert dispatcher.seen == [("begun", reply_frame[4:100])]


def test_peeked_head_ends_with_its_reply() -> None:
    """The peeked bytes of a reply end at the end of that reply."""
    play = SessionDriver(dispatcher := ObservingDispatcher(FrameAction.PEEK))
    play.client(request(FETCH, 1), request(FETCH, 2))
    chunk = reply(1, b"first") + reply(2, b"second")
    assert to_client(play.upstream(chunk)) == chunk
    assert dispatcher.seen == [("begun", reply(1, b"first")[4:]), ("begun", reply(2, b"second")[4:])]
