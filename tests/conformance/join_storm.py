"""A storm: many raw clients with different behaviours join one group at once. A calm follows.

Each client is a task with its own connection and its own behaviour. After the storm only the steady clients continue,
until the group is stable and full. Then single clients try joins that must be refused and joins that must be accepted.
The limit may be enforced by the broker or by a sidecar.
"""

import math
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import trio

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import RequestHeader, encode_request, split_reply
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from group_sidecar.codecs.schema import Struct, decode
from tests.conformance.join_storm_outcome import DescribedGroupState, JoinReply, Outcome
from tests.kafka.dialect import Dialect
from tests.kafka.processes import Address

STEADY_SESSION_MS, SHORT_SESSION_MS, REBALANCE_MS = 8_000, 1_500, 3_000
"""Timeouts in milliseconds. They are short, so that the broker soon removes clients that give up. The broker's
`group.min.session.timeout.ms` must allow them."""
BEAT_SECONDS, RETRY_SECONDS, ASK_SECONDS = 0.4, 0.7, 0.1
FIRST_STATIC, LAST_SINGLE_LEAVE = 5, 2
SETTLING_SECONDS = 60.0
_FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
_IN_USE = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})


@dataclass(frozen=True)
class Plan:
    """The number of clients, their behaviours, the duration, and the limit of the group.

    Args:
        name: the prefix of the group's id.
        shares: the percentage of clients with each behaviour. All others are steady.
    """

    name: str
    clients: int
    limit: int
    seconds: float
    seed: int = 389
    shares: tuple[tuple[str, int], ...] = (
        ("pipelines", 12),
        ("disconnects", 12),
        ("expires", 12),
        ("restarts", 12),
        ("leaves", 12),
    )

    def habits(self, static: bool) -> Iterator[str]:
        """Yields the behaviour of each client."""
        shuffled = [habit for habit, share in self.shares for _ in range(self.clients * share // 100)]
        shuffled += ["steady"] * (self.clients - len(shuffled))
        random.Random(self.seed).shuffle(shuffled)
        return iter(shuffled if static else ["leaves" if habit == "restarts" else habit for habit in shuffled])


class Connection:
    """A connection of one client."""

    def __init__(self, stream: trio.SocketStream, dialect: Dialect) -> None:
        self._stream, self._dialect = stream, dialect
        self._sent = 0

    async def send(self, *requests: tuple[Struct, int]) -> None:
        """Sends requests with their versions in one write."""
        frames = b""
        for request, version in requests:
            self._sent += 1
            frames += encode_request(request, RequestHeader(request.KEY, version, self._sent, "storm"))
        await self._stream.send_all(frames)

    async def receive(self, request: Struct, version: int) -> Any:
        """Returns the next reply, which must be to that request."""
        frame = await self._exactly(int.from_bytes(await self._exactly(4), "big"))
        response = APIS[request.KEY].response
        return decode(response, version, split_reply(frame, version >= response.HEADER_FLEXIBLE))

    async def ask(self, request: Struct, at_most: int | None = None) -> Any:
        """Sends a request in the newest version, or in the newest up to `at_most`. Returns its reply."""
        version = self._dialect.newest(request.KEY, at_most)
        await self.send((request, version))
        return await self.receive(request, version)

    def close(self) -> None:
        """Closes the connection without leaving the group."""
        self._stream.socket.close()

    async def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = await self._stream.receive_some(count - len(data))
            if not chunk:
                raise ConnectionError("the other side has closed the connection")
            data += chunk
        return bytes(data)


class Member:
    """A client that tries to be a member of the group."""

    def __init__(
        self, storm: "Storm", number: int, *, static: bool = False, session_ms: int = SHORT_SESSION_MS
    ) -> None:
        self.storm, self.number, self._session_ms = storm, number, session_ms
        self.random_source = random.Random(f"{storm.plan.seed} {number}")
        self._instance_id = f"instance {number}" if static else None
        fitting = [version for version in storm.joins if version >= FIRST_STATIC or not static]
        self.version = self.random_source.choice(fitting)
        self.line: Connection
        self.scope = trio.CancelScope()
        self.member_id, self.generation = "", -1
        self._roster: tuple[tuple[str, str | None], ...] = ()

    async def connect(self) -> None:
        """Opens a new connection. The client keeps only its instance id."""
        self.member_id = ""
        self.line = await self.storm.connect()

    def joining(self, member_id: str) -> tuple[Struct, int]:
        """Returns a JoinGroup request and its version."""
        request = JoinGroupRequest(
            group_id=self.storm.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=b"storm"),),
        )
        return request, self.version

    async def receive_join(self, member_id: str) -> JoinReply:
        """Receives and records the reply to a join."""
        reply = await self.line.receive(*self.joining(member_id))
        join_reply = JoinReply(
            self.version,
            reply.error_code,
            reply.generation_id,
            reply.member_id,
            tuple((member.member_id, member.group_instance_id) for member in reply.members),
        )
        self.storm.outcome.replies.append(join_reply)
        return join_reply

    async def join(self) -> int:
        """Joins as a client does, and requests a member id first if the broker requires that.

        Returns the last error.
        """
        reply = await self._ask_to_join()
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            reply = await self._ask_to_join()
        self.member_id = "" if reply.error_code else reply.member_id
        self.generation, self._roster = reply.generation, reply.roster
        return reply.error_code

    async def _ask_to_join(self) -> JoinReply:
        await self.line.send(self.joining(self.member_id))
        return await self.receive_join(self.member_id)

    async def hold(self, seconds: float = math.inf) -> bool:
        """Syncs, sends heartbeats and rejoins as a client does, for `seconds`.

        Returns whether the client is still a member.
        """
        until, synced = trio.current_time() + seconds, False
        while trio.current_time() < until:
            error = await (self._beat() if synced else self._sync())
            if error == ErrorCode.REBALANCE_IN_PROGRESS:
                synced, error = False, await self.join()
            elif not synced:
                synced = not error
            if error not in _IN_USE:
                return False
            if synced:
                await trio.sleep(BEAT_SECONDS * self.random_source.uniform(0.5, 1))
        return True

    async def _sync(self) -> int:
        shares = tuple(SyncGroupRequestAssignment(member_id=member, assignment=b"share") for member, _ in self._roster)
        request = SyncGroupRequest(
            group_id=self.storm.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        return int((await self.line.ask(request)).error_code)

    async def _beat(self) -> int:
        request = HeartbeatRequest(group_id=self.storm.group, generation_id=self.generation, member_id=self.member_id)
        return int((await self.line.ask(request)).error_code)

    @contextmanager
    def noted(self, among: dict[int, "Member"]) -> Iterator[None]:
        """Adds the client to these members for the length of a with statement."""
        among[self.number] = self
        try:
            yield
        finally:
            del among[self.number]

    async def leave(self) -> None:
        """Sends a LeaveGroup with the member id."""
        request = LeaveGroupRequest(group_id=self.storm.group, member_id=self.member_id)
        await self.line.ask(request, LAST_SINGLE_LEAVE)
        self.member_id = ""


async def steady(member: Member) -> None:
    """Stays in the group. Joins again after a removal and, while the storm is open, also after a refusal."""
    with member.scope, member.noted(member.storm.steady):
        await member.connect()
        while True:
            error = await member.join()
            if not error:
                with member.noted(member.storm.inside):
                    await member.hold()
            elif error == _FULL and not member.storm.open:
                return
            await trio.sleep(RETRY_SECONDS * member.random_source.uniform(0.5, 1.5))


async def pipelines(member: Member) -> None:
    """Sends two joins in one write, as two members or as one, and abandons one of them."""
    while True:
        await member.connect()
        ids = ["", ""]
        for _ in range(2):
            await member.line.send(*map(member.joining, ids))
            replies = [await member.receive_join(each) for each in ids]
            ids = [each.member_id for each in replies]
            if any(each.error_code != ErrorCode.MEMBER_ID_REQUIRED for each in replies):
                break
        await trio.sleep(RETRY_SECONDS * member.random_source.random())
        member.line.close()


async def disconnects(member: Member) -> None:
    """Sends a join, and disconnects before or soon after the reply."""
    while True:
        await member.connect()
        await member.line.send(member.joining(""))
        with trio.move_on_after(member.random_source.uniform(0, 0.3)):
            reply = await member.receive_join("")
            if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                await member.line.send(member.joining(reply.member_id))
                await trio.sleep(member.random_source.uniform(0, 0.1))
        member.line.close()
        await trio.sleep(RETRY_SECONDS * member.random_source.random())


async def expires(member: Member) -> None:
    """Becomes a member, sends nothing for longer than its session timeout, and continues as before."""
    await member.connect()
    while True:
        if not await member.join() and await member.hold(member.random_source.random()):
            await trio.sleep(SHORT_SESSION_MS / 1000 * 1.2)
        else:
            await trio.sleep(RETRY_SECONDS * member.random_source.random())


async def restarts(member: Member) -> None:
    """Is a static member whose process ends and restarts at any time."""
    while True:
        await member.connect()
        with trio.move_on_after(member.random_source.uniform(0, 2)):
            if not await member.join():
                await member.hold()
            await trio.sleep(RETRY_SECONDS)
        member.line.close()


async def leaves(member: Member) -> None:
    """Becomes a member, leaves, and joins again."""
    await member.connect()
    while True:
        if not await member.join() and await member.hold(member.random_source.random()):
            await member.leave()
        await trio.sleep(RETRY_SECONDS * member.random_source.random())


Habit = Callable[[Member], Awaitable[None]]
HABITS: dict[str, Habit] = {habit.__name__: habit for habit in (pipelines, disconnects, expires, restarts, leaves)}


class Storm:
    """One storm.

    Args:
        through: the address that the clients connect to.
        broker: the broker itself, which describes the group.

    Attributes:
        open: whether steady clients that are refused try again.
        steady, inside: the steady clients, and those of them that are members, by their numbers.
    """

    def __init__(self, plan: Plan, through: Address, broker: Address) -> None:
        self.plan, self._through, self._broker = plan, through, broker
        self.dialect = Dialect.of(broker)
        self.joins = self.dialect.versions(JoinGroupRequest.KEY)
        self.group = f"{plan.name}-{secrets.token_hex(5)}"
        self.outcome = Outcome(plan.limit)
        self.open = True
        self.steady: dict[int, Member] = {}
        self.inside: dict[int, Member] = {}
        self._lines: list[Connection] = []
        self._described_ids: set[str] = set()

    async def connect(self, to: Address | None = None) -> Connection:
        """Opens a connection to the clients' address, or to another address."""
        line = Connection(await trio.open_tcp_stream(*(to or self._through)), self.dialect)
        self._lines.append(line)
        return line

    async def run(self) -> Outcome:
        """Runs the storm and the calm. Returns the outcome. The calm ends early if the group does not become stable."""
        began = time.monotonic()
        try:
            await self._run()
        finally:
            for line in self._lines:
                line.close()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    async def _run(self) -> None:
        self._asker = await self.connect(self._broker)
        async with trio.open_nursery() as self._nursery:
            async with trio.open_nursery() as wild:
                for number, habit in enumerate(self.plan.habits(static=FIRST_STATIC in self.joins)):
                    if habit in HABITS:
                        wild.start_soon(HABITS[habit], Member(self, number, static=habit == "restarts"))
                    else:
                        self._admit(Member(self, number, session_ms=STEADY_SESSION_MS))
                await self._run_load()
                wild.cancel_scope.cancel()
            with suppress(trio.TooSlowError):
                await self._settle(self.plan.limit)
                self.open = False
                await self._settle(self.plan.limit, outside=0)
                await self._check_after_load()
            self._nursery.cancel_scope.cancel()

    async def _run_load(self) -> None:
        """Waits for the plan's time.

        On a slow machine, also waits until more joins were refused than the group's limit.
        """
        over = trio.current_time() + self.plan.seconds
        with trio.move_on_after(self.plan.seconds + SETTLING_SECONDS):
            while trio.current_time() < over or self.outcome.errors[_FULL] <= self.plan.limit:
                await self._look()

    def _admit(self, member: Member) -> None:
        self._nursery.start_soon(steady, member)

    async def _look(self) -> DescribedGroupState:
        [group] = (await self._asker.ask(DescribeGroupsRequest(groups=(self.group,)))).groups
        dynamic = sum(member.group_instance_id is None for member in group.members)
        seen = DescribedGroupState(group.group_state, len(group.members), dynamic)
        self.outcome.described.append(seen)
        self._described_ids = {member.member_id for member in group.members}
        await trio.sleep(ASK_SECONDS)
        return seen

    async def _settle(self, members: int, outside: int | None = None) -> None:
        """Waits until the group is stable, consists of exactly the `members` steady clients inside, and `outside` other
        clients try to join. Members that the storm left behind must have expired by then.
        """
        with trio.fail_after(SETTLING_SECONDS):
            while (
                not (await self._look()).is_stable(members)
                or self._described_ids != {member.member_id for member in self.inside.values()}
                or outside not in (None, len(self.steady) - len(self.inside))
            ):
                pass

    async def _check_after_load(self) -> None:
        """Makes single clients try to join, with and without a free place in the group."""
        limit, first = self.plan.limit, self.plan.clients
        oldest, middle, newest = self.joins[0], self.joins[len(self.joins) // 2], self.joins[-1]
        ways = [(oldest, False), (middle, False), (newest, False)] + [(newest, True)] * (newest >= FIRST_STATIC)
        for number, (version, static) in enumerate(ways, first):
            member = Member(self, number, static=static, session_ms=STEADY_SESSION_MS)
            member.version = version
            await member.connect()
            refused = await member.join()
            await self._settle(limit)
            await self._lose_one()
            await self._settle(limit - 1)
            self._admit(member)
            await self._settle(limit)
            self.outcome.calm.append(f"{'static ' * static}{refused}, and let in")

    async def _lose_one(self) -> None:
        """Removes a member over another connection."""
        member = self.inside[min(self.inside)]
        member_id = member.member_id  # The member's own connection may be waiting for a reply.
        member.scope.cancel()
        line = await self.connect()
        await line.ask(LeaveGroupRequest(group_id=self.group, member_id=member_id), LAST_SINGLE_LEAVE)
        line.close()
