"""Requests that are held while they come in pieces: which give way where there is no room, and what becomes of them."""

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import Close, Command, ToClient, ToUpstream
from group_sidecar.proxy.desk import BrokerDesk
from group_sidecar.proxy.disposals import HangUp, Origin
from group_sidecar.proxy.framing import Look
from group_sidecar.proxy.holding import SMALL_FRAME, Holding
from group_sidecar.proxy.link import Silence
from group_sidecar.proxy.session import SLOWEST_REQUEST
from tests.proxy.fakes import PassingDesk, carried, holds, read_exactly, read_to_end, request_frame
from tests.proxy.playbook import Line, broker_copy, certain_copy, joining, reply, request, to_upstream

LIMITED = {"group_max_size": {"limit": 5}}
SIZE = SMALL_FRAME + 1


class Room:
    """A bound of so many frames of SIZE, and who holds one: connections by number, their hosts as given."""

    def __init__(self, frames: int) -> None:
        self.holding = Holding(frames * SIZE)
        self.held: set[int] = set()

    def take(self, connection: int, host: str, size: int = SIZE, *, admitted: bool = True) -> bool:
        """Announces a frame. Returns whether it is held."""
        taken = self.holding.holds(connection, host, size, admitted=admitted)
        self.held -= set(self.holding.crowded_out())
        if taken:
            self.held.add(connection)
        return taken


# Who gives way.


def test_what_is_held_is_bounded_in_all_and_less_for_those_who_have_not_authenticated() -> None:
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
    assert room.held >= {1}, "a frame that could never be held pushes nobody out"


def test_one_host_with_many_connections_pushes_out_its_own_frames_only() -> None:
    room = Room(16)
    others = {number: f"10.0.1.{number}" for number in range(5)}
    assert all(room.take(number, host) for number, host in others.items())
    assert all(room.take(number, "10.6.6.6") for number in range(100, 1100))
    assert room.held == {*others, *range(1089, 1100)}
    assert room.holding.crowded_out() == []


def test_the_host_that_has_announced_most_gives_way_with_its_oldest_frame() -> None:
    room = Room(16)
    assert all(room.take(number, "10.6.6.6", 4 * SIZE) for number in range(4))
    assert room.take(10, "10.0.0.1")
    assert room.held == {1, 2, 3, 10}
    room.holding.release(1)
    room.held.discard(1)
    assert all(room.take(number, "10.0.0.2") for number in range(20, 28))
    assert room.held == {3, 10, *range(20, 28)}, "both hosts wanted 8: the one with 4-frames gave way down to one"


def test_behind_one_address_the_oldest_gives_way() -> None:
    room = Room(4)
    assert all(room.take(number, "10.0.0.1") for number in range(6))
    assert room.held == {2, 3, 4, 5}
    room.take(2, "10.0.0.1")  # Another frame of that connection: now it is the newest.
    room.take(6, "10.0.0.1")
    assert room.held == {4, 5, 2, 6}


def test_addresses_of_one_ipv6_network_are_one_host() -> None:
    room = Room(4)
    assert room.take(1, "2001:db8:0:2:0:0:0:1")
    assert all(room.take(number, f"2001:db8:0:1:0:0:0:{number}") for number in range(10, 20))
    assert room.held == {1, 17, 18, 19}


def test_a_frame_that_is_whole_before_its_connection_was_told_does_not_give_way() -> None:
    holding = Holding(SIZE)
    assert holding.holds(1, "a", SIZE, admitted=True)
    assert holding.holds(2, "b", SIZE, admitted=True)
    holding.release(1)
    assert holding.crowded_out() == []


def test_what_is_kept_for_the_choice_does_not_grow_with_the_frames_that_came_and_went() -> None:
    holding = Holding(100 * SIZE)
    for number in range(10_000):
        assert holding.holds(number % 7, f"10.0.0.{number % 7}", SIZE, admitted=True)
    for number in range(7):
        holding.release(number)
    room = holding._rooms[True]
    assert (room.bytes, room._frames, room._sums) == (0, {}, {})
    assert len(room._heaviest) < 100


# What becomes of a request that gives way.


class Clients:
    """Clients of one broker, and the shell, which has requests give way between its rounds."""

    def __init__(self, copy: BrokerCopy) -> None:
        self.copy, self.desk = copy, BrokerDesk(copy)
        self.lines: dict[int, Line] = {}

    def open(self, host: str) -> Line:
        """A connection without SASL that the broker has served."""
        line = Line(self.copy, client_host=host, desk=self.desk)
        beat = HeartbeatRequest(group_id="x", generation_id=1, member_id="m")
        line.exchange(beat, HeartbeatResponse(error_code=0), 3)
        self.lines[line.session.origin.number] = line
        return line

    def end_of_round(self) -> dict[Line, list[Command]]:
        """What those have to do whose requests gave way."""
        gave_way = [self.lines[number] for number in self.desk.crowded_out()]
        return {line: line.session.give_way(line.now, CloseReason.REQUEST_TOO_LONG) for line in gave_way}


def begun(size: int, key: int = ApiKey.JOIN_GROUP, version: int = 3) -> bytes:
    """The first bytes of a request of `size`."""
    return size.to_bytes(4, "big") + request(key, 1, version=version, body=bytes(100))[4:]


@pytest.mark.parametrize("kept", [0, 200])
def test_a_request_that_gives_way_goes_on_unread_in_what_has_come(kept: int) -> None:
    """`kept`: bytes that came behind the first ones."""
    clients = Clients(certain_copy(limits={"held_frames": 100_000}))
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


def test_a_judged_request_that_gives_way_ends_its_connection_and_frees_what_came(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clients = Clients(certain_copy(limits={"held_frames": 100_000}, policies=LIMITED))
    attacker = clients.open("10.6.6.6")
    assert attacker.client(request(ApiKey.METADATA, 9), begun(90_000)) == [ToUpstream(request(ApiKey.METADATA, 9))]
    rightful, frame = clients.open("10.0.0.1"), begun(20_000)
    assert rightful.client(frame) == []
    assert clients.end_of_round() == {attacker: []}, "the client is still owed a reply"
    assert attacker.session.held_bytes == 0
    assert attacker.upstream(reply(9)) == [ToClient(reply(9)), Close(CloseReason.REQUEST_TOO_LONG)]
    assert rightful.session.held_bytes == len(frame)
    assert "limits.held_frames" in capsys.readouterr().out


def test_sixteen_frames_that_never_come_do_not_keep_others_from_being_judged() -> None:
    """Such frames fill the bound for good: before, a long join of anybody else was closed."""
    clients = Clients(certain_copy(policies=LIMITED, limits={"held_frames": 16 * 900_000}))
    for _ in range(16):
        assert clients.open("10.6.6.6").client(begun(900_000)) == []
    rightful = clients.open("10.0.0.1")
    frame = rightful.frame(joining(member_id="m" * 20_000), 3)
    assert rightful.client(frame[:10_000]) == []
    assert list(clients.end_of_round().values()) == [[Close(CloseReason.REQUEST_TOO_LONG)]]
    assert to_upstream(rightful.client(frame[10_000:])) == frame


@pytest.mark.parametrize("limits", [{"held_frames": 100_000}, {"inspected_frame": 1024}])
def test_a_request_that_only_the_sidecar_answers_is_not_held_beyond_the_bound(limits: dict[str, int]) -> None:
    """ApiVersions in an unknown version: each connection could have 100 MB of one held, beyond all bounds."""
    line = Clients(broker_copy(limits=limits)).open("10.6.6.6")
    assert line.client(begun(200_000, ApiKey.API_VERSIONS, 99)) == [Close(CloseReason.REQUEST_TOO_LONG)]


# Requests that come slowly.


def test_a_request_that_comes_slowly_lags_unless_the_client_is_not_read() -> None:
    clients = Clients(certain_copy())
    line = clients.open("10.0.0.1")
    line.client(begun(900_000))
    session, began = line.session, line.now
    assert not session.lags(began + 30, 30, flowing=True)
    assert session.lags(began + 31, 30, flowing=True)
    line.client(bytes(2 * SLOWEST_REQUEST))
    assert not session.lags(began + 32, 30, flowing=True)
    assert not session.lags(began + 40, 30, flowing=False)
    assert not session.lags(began + 71, 30, flowing=True)
    assert session.lags(began + 73, 30, flowing=True)
    assert to_upstream(session.give_way(line.now, CloseReason.STALLED)) != b""
    assert not session.lags(began + 1000, 30, flowing=True)


class Holder(PassingDesk):
    """Holds all requests; `ends`: a request that gives way ends its connection."""

    def __init__(self, *, ends: bool) -> None:
        self._ends = ends

    def glance(self, api_key: int, api_version: int, size: int) -> Any:
        return Look.TAKE

    def let_go(self, api_key: int, api_version: int, origin: Origin, reason: CloseReason) -> Any:
        return HangUp(reason) if self._ends else None


async def keeps_all(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("ends", [False, True])
async def test_a_client_that_sends_a_byte_now_and_then_does_not_keep_its_request_held(
    mock_clock: MockClock, ends: bool
) -> None:
    """Before, one byte every 29 s kept the request, and its share of the bound, for as long as the client liked."""
    frame = request_frame(1, bytes(900_000))

    def holding(count: int) -> bool:
        return shell.pump.held_bytes == count

    async with (
        carried(keeps_all, desk=Holder(ends=ends), silence=Silence(stalled=30)) as shell,
        await shell.connect() as client,
    ):
        await client.send_all(frame[:100])
        for at in range(100, 104):
            await holds(partial(holding, at))
            mock_clock.jump(14)
            await wait_all_tasks_blocked(0.01)
            if not shell.pump.held_bytes:
                break
            await client.send_all(frame[at : at + 1])
        if ends:
            assert await read_to_end(client) == b""
            await shell.closed(CloseReason.STALLED)
        else:
            await holds(lambda: bool(shell.broker.streams) and shell.pump.held_bytes == 0)
            assert shell.pump.connections == 1
            assert await read_exactly(shell.broker.streams[0], 100) == frame[:100]


async def test_what_was_crowded_out_gives_way_and_a_connection_that_is_gone_does_not() -> None:
    async with (
        carried(keeps_all, desk=Holder(ends=True)) as shell,
        await shell.connect() as first,
        await shell.connect() as second,
    ):
        await first.send_all(request_frame(1, bytes(900_000))[:100])
        await second.send_all(request_frame(1, bytes(900_000))[:100])
        await holds(lambda: shell.pump.held_bytes == 200)
        numbers = list(shell.pump._links)
        shell.pump.give_way([numbers[0], 10**9])
        assert shell.traffic.connections_closed[CloseReason.REQUEST_TOO_LONG] == 1
        assert shell.pump.connections == 1
        shell.pump.give_way(numbers)
        assert shell.pump.connections == 0
