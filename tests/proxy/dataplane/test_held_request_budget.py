"""Requests that are held while they arrive in pieces: which of them are evicted without room, and what then happens."""

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Close, Command, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.connection import InactivityTimeouts
from group_sidecar.proxy.dataplane.framing import FrameAction
from group_sidecar.proxy.dataplane.held_request_budget import SMALL_FRAME, HeldRequestBudget
from group_sidecar.proxy.dataplane.outcomes import HangUp, Origin
from group_sidecar.proxy.dataplane.session import MIN_REQUEST_BYTES_PER_SECOND
from tests.proxy.dataplane.playbook import (
    Line,
    broker_state,
    complete_state,
    joining,
    new_dispatcher,
    reply,
    request,
    to_upstream,
)
from tests.proxy.fakes import PassthroughDispatcher, holds, read_exactly, read_to_end, request_frame, running_proxy

LIMITED = {"group_max_size": {"limit": 5}}
SIZE = SMALL_FRAME + 1


class Room:
    """A budget for `frames` frames of SIZE. `held` has the numbers of the connections that hold a frame."""

    def __init__(self, frames: int) -> None:
        self.holding = HeldRequestBudget(frames * SIZE)
        self.held: set[int] = set()

    def take(self, connection: int, host: str, size: int = SIZE, *, admitted: bool = True) -> bool:
        """Announces a frame. Returns whether it is held."""
        taken = self.holding.try_hold(connection, host, size, admitted=admitted)
        self.held -= set(self.holding.take_evicted())
        if taken:
            self.held.add(connection)
        return taken


# Which frames are evicted.


def test_held_bytes_are_bounded() -> None:
    """Held bytes are bounded in total, and to a smaller part for unauthenticated connections. A frame above the bound
    evicts nothing.
    """
    room = Room(80)
    assert all(room.take(number, f"10.0.0.{number}", admitted=False) for number in range(10))
    assert not room.take(10, "10.0.0.10", 2 * SIZE, admitted=False)
    assert all(room.take(number, f"10.0.0.{number}") for number in range(20, 100))
    assert not room.take(100, "10.0.0.100", 2 * SIZE)
    assert room.take(200, "10.0.0.200", SMALL_FRAME, admitted=False)
    assert room.held == {*range(10), *range(20, 100), 200}
    for number in range(201):
        room.holding.release(number)
    assert room.take(1, "10.0.0.1", 80 * SIZE)
    assert not room.take(2, "10.0.0.2", 81 * SIZE)
    assert room.held >= {1}, "a frame above the bound must not evict another frame"


def test_busy_host_evicts_only_its_own_frames() -> None:
    """A host with many connections evicts only its own held frames."""
    room = Room(16)
    others = {number: f"10.0.1.{number}" for number in range(5)}
    assert all(room.take(number, host) for number, host in others.items())
    assert all(room.take(number, "10.6.6.6") for number in range(100, 1100))
    assert room.held == {*others, *range(1089, 1100)}
    assert room.holding.take_evicted() == []


def test_heaviest_host_evicts_its_oldest_frame() -> None:
    """The host with the most announced bytes loses its oldest held frame first."""
    room = Room(16)
    assert all(room.take(number, "10.6.6.6", 4 * SIZE) for number in range(4))
    assert room.take(10, "10.0.0.1")
    assert room.held == {1, 2, 3, 10}
    room.holding.release(1)
    room.held.discard(1)
    assert all(room.take(number, "10.0.0.2") for number in range(20, 28))
    assert room.held == {3, 10, *range(20, 28)}, (
        "both hosts announced 8 frames' bytes: the host with long frames keeps one"
    )


def test_one_host_evicts_its_oldest_frame() -> None:
    """If all frames come from one host, its oldest frame is evicted."""
    room = Room(4)
    assert all(room.take(number, "10.0.0.1") for number in range(6))
    assert room.held == {2, 3, 4, 5}
    room.take(2, "10.0.0.1")  # The connection begins another frame, which is now the newest.
    room.take(6, "10.0.0.1")
    assert room.held == {4, 5, 2, 6}


def test_ipv6_network_counts_as_one_host() -> None:
    """Addresses of one IPv6 network count as one host."""
    room = Room(4)
    assert room.take(1, "2001:db8:0:2:0:0:0:1")
    assert all(room.take(number, f"2001:db8:0:1:0:0:0:{number}") for number in range(10, 20))
    assert room.held == {1, 17, 18, 19}


def test_completed_frame_is_not_evicted() -> None:
    """A frame that is complete before its connection learns of the eviction is not evicted."""
    holding = HeldRequestBudget(SIZE)
    assert holding.try_hold(1, "a", SIZE, admitted=True)
    assert holding.try_hold(2, "b", SIZE, admitted=True)
    holding.release(1)
    assert holding.take_evicted() == []


def test_eviction_order_does_not_grow() -> None:
    """The data for the choice of an eviction does not grow with the number of frames that were held."""
    holding = HeldRequestBudget(100 * SIZE)
    for number in range(10_000):
        assert holding.try_hold(number % 7, f"10.0.0.{number % 7}", SIZE, admitted=True)
    for number in range(7):
        holding.release(number)
    room = holding._quotas[True]
    assert (room.bytes, room._frames, room._sums) == (0, {}, {})
    assert len(room._heaviest) < 100


# What happens to an evicted request.


class Clients:
    """Clients of one broker, and the I/O shell, which evicts requests between its rounds."""

    def __init__(self, state: BrokerState) -> None:
        self.state, self.dispatcher = state, new_dispatcher(state)
        self.lines: dict[int, Line] = {}

    def open(self, host: str) -> Line:
        """Opens a connection without SASL, over which the broker has answered a request."""
        line = Line(self.state, client_host=host, dispatcher=self.dispatcher)
        beat = HeartbeatRequest(group_id="x", generation_id=1, member_id="m")
        line.exchange(beat, HeartbeatResponse(error_code=0), 3)
        self.lines[line.session.origin.number] = line
        return line

    def end_of_round(self) -> dict[Line, list[Command]]:
        """Evicts requests. Returns the commands of their connections."""
        gave_way = [self.lines[number] for number in self.state.held_request_budget.take_evicted()]
        return {line: line.session.evict_held_request(line.now, CloseReason.REQUEST_TOO_LONG) for line in gave_way}


def begun(size: int, key: int = ApiKey.JOIN_GROUP, version: int = 3) -> bytes:
    """Returns the first bytes of a request of `size` bytes."""
    return size.to_bytes(4, "big") + request(key, 1, version=version, body=bytes(100))[4:]


@pytest.mark.parametrize("kept", [0, 200])
def test_evicted_request_streams_unread(kept: int) -> None:
    """An evicted request is forwarded undecoded, and the connection continues with the next requests."""
    clients = Clients(complete_state(limits={"held_frames": 100_000}))
    attacker, frame = clients.open("10.6.6.6"), begun(90_000)
    assert attacker.client(frame) == []
    assert attacker.client(bytes(kept)) == []
    assert clients.open("10.0.0.1").client(begun(20_000)) == []
    assert clients.end_of_round() == {attacker: [ToUpstream(frame + bytes(kept))]}
    assert attacker.session.held_bytes == 0
    assert attacker.session.within_request
    rest = bytes(90_004 - len(frame) - kept)
    beat = request(ApiKey.HEARTBEAT, 2, version=3)
    assert to_upstream(attacker.client(rest + beat)) == rest + beat
    assert attacker.upstream(reply(1)) == [ToClient(reply(1))]
    assert attacker.upstream(reply(2, bytes(2))) == [ToClient(reply(2, bytes(2)))]


def test_evicted_judged_request_closes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An evicted request that a policy judges frees its bytes and closes the connection after pending replies."""
    clients = Clients(complete_state(limits={"held_frames": 100_000}, policies=LIMITED))
    attacker = clients.open("10.6.6.6")
    assert attacker.client(request(ApiKey.METADATA, 9), begun(90_000)) == [ToUpstream(request(ApiKey.METADATA, 9))]
    rightful, frame = clients.open("10.0.0.1"), begun(20_000)
    assert rightful.client(frame) == []
    assert clients.end_of_round() == {attacker: []}, "the connection must not close before its pending reply"
    assert attacker.session.held_bytes == 0
    assert attacker.upstream(reply(9)) == [ToClient(reply(9)), Close(CloseReason.REQUEST_TOO_LONG)]
    assert rightful.session.held_bytes == len(frame)
    assert "limits.held_frames" in capsys.readouterr().out


def test_incomplete_frames_do_not_block_judging() -> None:
    """Frames that never complete are evicted, so that another client's long join is still held and judged."""
    clients = Clients(complete_state(policies=LIMITED, limits={"held_frames": 16 * 900_000}))
    for _ in range(16):
        assert clients.open("10.6.6.6").client(begun(900_000)) == []
    rightful = clients.open("10.0.0.1")
    frame = rightful.frame(joining(member_id="m" * 20_000), 3)
    assert rightful.client(frame[:10_000]) == []
    assert list(clients.end_of_round().values()) == [[Close(CloseReason.REQUEST_TOO_LONG)]]
    assert to_upstream(rightful.client(frame[10_000:])) == frame


@pytest.mark.parametrize("limits", [{"held_frames": 100_000}, {"inspected_frame": 1024}])
def test_overlong_local_request_closes(limits: dict[str, int]) -> None:
    """An ApiVersions request in an unknown version closes the connection if the request exceeds limits.held_frames or
    limits.inspected_frame.
    """
    line = Clients(broker_state(limits=limits)).open("10.6.6.6")
    assert line.client(begun(200_000, ApiKey.API_VERSIONS, 99)) == [Close(CloseReason.REQUEST_TOO_LONG)]


# Slow requests.


def test_slow_request_spares_unread_client() -> None:
    """A held request below the minimum rate is too slow, unless the client is not read."""
    clients = Clients(complete_state())
    line = clients.open("10.0.0.1")
    line.client(begun(900_000))
    session, began = line.session, line.now
    assert not session.is_too_slow(began + 30, 30, flowing=True)
    assert session.is_too_slow(began + 31, 30, flowing=True)
    line.client(bytes(2 * MIN_REQUEST_BYTES_PER_SECOND))
    assert not session.is_too_slow(began + 32, 30, flowing=True)
    assert not session.is_too_slow(began + 40, 30, flowing=False)
    assert not session.is_too_slow(began + 71, 30, flowing=True)
    assert session.is_too_slow(began + 73, 30, flowing=True)
    assert to_upstream(session.evict_held_request(line.now, CloseReason.STALLED)) != b""
    assert not session.is_too_slow(began + 1000, 30, flowing=True)


class Holder(PassthroughDispatcher):
    """A dispatcher that holds all requests. `ends`: whether an evicted request ends its connection."""

    def __init__(self, *, ends: bool) -> None:
        self._ends = ends

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        return FrameAction.HOLD

    def evict_partial(self, api_key: int, api_version: int, origin: Origin, reason: CloseReason) -> Any:
        return HangUp(reason) if self._ends else None


async def keeps_all(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("ends", [False, True])
async def test_trickled_request_is_evicted(mock_clock: MockClock, ends: bool) -> None:
    """A client that sends one byte now and then loses its held request after the stalled timeout."""
    frame = request_frame(1, bytes(900_000))

    def holding(count: int) -> bool:
        return shell.connection_manager.held_bytes == count

    async with (
        running_proxy(keeps_all, dispatcher=Holder(ends=ends), timeouts=InactivityTimeouts(stalled=30)) as shell,
        await shell.connect() as client,
    ):
        await client.send_all(frame[:100])
        for at in range(100, 104):
            await holds(partial(holding, at))
            mock_clock.jump(14)
            await wait_all_tasks_blocked(0.01)
            if not shell.connection_manager.held_bytes:
                break
            await client.send_all(frame[at : at + 1])
        if ends:
            assert await read_to_end(client) == b""
            await shell.closed(CloseReason.STALLED)
        else:
            await holds(lambda: bool(shell.broker.streams) and shell.connection_manager.held_bytes == 0)
            assert shell.connection_manager.connections == 1
            assert await read_exactly(shell.broker.streams[0], 100) == frame[:100]


async def test_eviction_ignores_closed_connections() -> None:
    """An eviction closes the connections of the evicted requests and ignores connections that are already closed."""
    async with (
        running_proxy(keeps_all, dispatcher=Holder(ends=True)) as shell,
        await shell.connect() as first,
        await shell.connect() as second,
    ):
        await first.send_all(request_frame(1, bytes(900_000))[:100])
        await second.send_all(request_frame(1, bytes(900_000))[:100])
        await holds(lambda: shell.connection_manager.held_bytes == 200)
        numbers = list(shell.connection_manager._connections)
        shell.connection_manager.evict_held_request([numbers[0], 10**9])
        assert shell.counters.connections_closed[CloseReason.REQUEST_TOO_LONG] == 1
        assert shell.connection_manager.connections == 1
        shell.connection_manager.evict_held_request(numbers)
        assert shell.connection_manager.connections == 0
