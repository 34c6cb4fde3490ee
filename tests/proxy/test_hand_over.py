"""What a process may do during a hot restart, without other processes. test_hot_restart.py restarts whole sidecars."""

import socket
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from group_sidecar.coordinator.model.facts import ClientRefused, CoordinatorMoved
from group_sidecar.proxy import hand_over
from group_sidecar.proxy.hand_over import LOAD_SECONDS, HandOver
from group_sidecar.proxy.listeners.predecessor import Predecessor
from group_sidecar.proxy.listeners.successor import SuccessorFailed
from group_sidecar.proxy.runtime.service_manager import ServiceManager
from group_sidecar.proxy.runtime.supervision import Supervisor

MOVED = CoordinatorMoved(group_id="g", at=1.0)


def created(
    predecessor: Predecessor | None = None, sharing: list[str] | None = None, supervisor: Supervisor | None = None
) -> HandOver:
    """Returns the state of a process. `sharing` gets what happens to its copies."""
    noted = [] if sharing is None else sharing
    begin, end = partial(noted.append, "begin"), partial(noted.append, "end")
    return HandOver(predecessor, list, begin, end, ServiceManager({}), supervisor or Supervisor())


@pytest.fixture
def channel() -> Iterator[tuple[HandOver, socket.socket]]:
    """A process with a predecessor, and the predecessor's socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield created(Predecessor(ours)), theirs


async def test_process_without_predecessor_accepts_at_once() -> None:
    """A process without a predecessor waits for nothing, and publishes facts from the start."""
    process = created()
    assert process.predecessor_gone.is_set()
    assert not process.is_waiting
    assert process.publishes(MOVED)
    await process.wait_for_copies(lambda: False)
    assert process.may_accept.is_set()


async def test_wait_for_copies_has_an_end(channel: tuple[HandOver, socket.socket], autojump_clock: MockClock) -> None:
    """If the copies cannot be loaded, the process accepts clients after LOAD_SECONDS. Until then it publishes nothing.

    It publishes facts when it has reported that it serves clients. It is not alone, because the predecessor still runs.
    """
    process, _ = channel
    began = trio.current_time()
    assert process.is_waiting
    assert not process.publishes(MOVED)
    await process.wait_for_copies(lambda: False)
    assert trio.current_time() - began == pytest.approx(LOAD_SECONDS)
    assert not process.publishes(MOVED)
    assert process.may_accept.is_set()
    process.report_ready()
    assert process.publishes(MOVED)
    assert not process.predecessor_gone.is_set()


async def test_end_of_predecessor_ends_wait(
    channel: tuple[HandOver, socket.socket], autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """When the predecessor ends, the process accepts clients before its copies are loaded."""
    process, theirs = channel
    nursery.start_soon(process.watch_predecessor)
    theirs.close()
    began = trio.current_time()
    await process.wait_for_copies(lambda: False)
    assert trio.current_time() - began < LOAD_SECONDS
    assert process.predecessor_gone.is_set()


async def test_one_hand_over_at_a_time(
    channel: tuple[HandOver, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No successor is started while a predecessor runs, before clients are accepted, or after a stop."""

    async def unexpected(*_: object) -> None:
        raise AssertionError("a successor was started")

    monkeypatch.setattr(hand_over, "start_successor", unexpected)
    with_predecessor, not_accepting, stopping = channel[0], created(), created()
    with_predecessor.may_accept.set()
    stopping.may_accept.set()
    stopped = trio.Event()
    stopped.set()
    with capture_logs() as lines:
        for process, stop in ((with_predecessor, trio.Event()), (not_accepting, trio.Event()), (stopping, stopped)):
            await process.start_successor(stop)
    assert [line["event"] for line in lines] == ["no successor is started"] * 3


async def test_process_with_successor_publishes_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the hand-over a process stops, and publishes only its own refusals."""

    async def started(*_: object) -> SimpleNamespace:
        return SimpleNamespace(pid=1)

    monkeypatch.setattr(hand_over, "start_successor", started)
    process, stop = created(), trio.Event()
    await process.wait_for_copies(lambda: True)
    await process.start_successor(stop)
    assert stop.is_set()
    assert not process.publishes(MOVED)
    refused = ClientRefused(
        group_id="g", at=1.0, policy="p", error_code=1, client_id="c", client_host="h", size=2, limit=1
    )
    assert process.publishes(refused)


async def test_copies_are_shared_until_successor_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies are shared before a successor is started, because it accepts clients before this process learns of it.

    They are not shared any longer if the successor fails. The failure is counted.
    """
    sharing: list[str] = []

    async def failed(*_: object) -> None:
        sharing.append("started")
        raise SuccessorFailed("it ended with status 2")

    monkeypatch.setattr(hand_over, "start_successor", failed)
    supervisor, stop = Supervisor(), trio.Event()
    process = created(sharing=sharing, supervisor=supervisor)
    await process.wait_for_copies(lambda: True)
    with capture_logs() as lines:
        await process.start_successor(stop)
    assert sharing == ["begin", "started", "end"]
    assert not process.is_shared
    assert not stop.is_set()
    assert supervisor.counts()["hand_over"] == 1
    assert [line["cause"] for line in lines] == ["it ended with status 2"]


async def test_copies_are_shared_until_predecessor_ends() -> None:
    """A process shares its copies while its predecessor runs."""
    sharing: list[str] = []
    ours, theirs = socket.socketpair()
    with ours:
        process = created(Predecessor(ours), sharing)
        assert process.is_shared
        theirs.close()
        await process.watch_predecessor()
    assert sharing == ["end"]
    assert not process.is_shared
