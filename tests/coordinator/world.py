"""Clients, a broker and the copy between them, with every message in somebody's hands.

Owns: connections whose requests and replies move only when a test says so: what goes up is seen by the copy at
once, what comes down when it is delivered. Must not know: what the copy should think of it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import (
    JoinGroupMember,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import LOST_REQUEST_SECONDS, AnyEvent
from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.coordinator.model.views import FallbackReason, GroupView
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.coordinator.wire.exchange import Exchange
from tests.coordinator.model import Broker
from tests.coordinator.model_log import ModelLog, Tail
from tests.coordinator.sweeping import swept

SESSION_MS, REBALANCE_MS = 10_000, 20_000
MOMENT = 0.001
"""Seconds between any two things that happen."""


@dataclass
class Connection:
    """A client's connection. `parked`: the request that the broker has and has not answered."""

    number: int
    up: deque[Exchange] = field(default_factory=deque)
    down: deque[tuple[Exchange, Struct]] = field(default_factory=deque)
    parked: Exchange | None = None
    open: bool = True

    def exchanges(self) -> Iterator[Exchange]:
        """All that has not been answered, as the client sees it."""
        yield from (exchange for exchange, _ in self.down)
        if self.parked:
            yield self.parked
        yield from self.up


class World:
    """One broker, the copy of it, and the connections through it.

    `seen_at`: the host at which the broker sees all clients that come through the sidecar; None: where they are.
    """

    def __init__(self, broker: Broker, *, exclusive: bool = True, seen_at: str | None = None) -> None:
        self.broker, self.seen_at = broker, seen_at
        self.manager = GroupMetadataManager(exclusive=exclusive)
        self.manager.set_existing_groups(())
        self.facts: list[Fact] = []
        self.connections: list[Connection] = []
        self.clients: list[Client] = []
        self.limbo: list[tuple[float, Exchange]] = []
        self.unread: dict[str, str | None] = {}
        """Requests that the sidecar does not understand, by their tokens, and which group it could read."""
        self.log: ModelLog | None = None
        self.tail: Tail
        self._now = 1000.0
        self._numbers = count(1)

    def now(self) -> float:
        """The time; no two things happen at the same."""
        self._now += MOMENT
        return self._now

    def connect(self) -> Connection:
        """A new connection."""
        connection = Connection(next(self._numbers))
        self.connections.append(connection)
        return connection

    def send(self, connection: Connection, request: Struct, version: int, client_id: str, **fields: Any) -> None:
        """A client sends a request, and the sidecar forwards it."""
        now = self.now()
        exchange = Exchange(
            request=request,
            version=version,
            token=f"{connection.number}:{next(self._numbers)}",
            client_id=client_id,
            client_host=f"/host-of-{client_id}",
            sent_at=now,
            **fields,
        )
        connection.up.append(exchange)
        self.apply(exchange_events.request_events(exchange), now)

    def send_unread(self, connection: Connection, request: Struct, version: int, group: str | None) -> None:
        """A client sends a request of which the sidecar understands nothing, or its group alone."""
        exchange = Exchange(
            request=request,
            version=version,
            token=f"{connection.number}:{next(self._numbers)}",
            client_id="unread",
            client_host="/host-of-unread",
            sent_at=self.now(),
        )
        connection.up.append(exchange)
        self.unread[exchange.token] = group
        self.manager.note_unread_write(group, members=_touches_members(exchange))

    def handle(self, connection: Connection) -> None:
        """The broker takes the next request of a connection, if it is not busy with one."""
        if connection.parked is None and connection.up:
            exchange = connection.parked = connection.up.popleft()
            self._handle(exchange, lambda reply: self._answered(connection, exchange, reply))

    def _handle(self, exchange: Exchange, respond: Any) -> None:
        host = self.seen_at or exchange.client_host
        self.broker.handle(exchange.request, exchange.version, exchange.client_id, host, self.now(), respond)
        self._write()

    def _write(self) -> None:
        if self.log is not None:
            self.log.write()

    def read_log(self, *, eager: bool = True) -> None:
        """From now on the broker writes its log, and the sidecar reads it."""
        self.log = ModelLog(self.broker, eager=eager)
        self.log.write()
        self.tail = Tail(self.manager, self.log, self.now())

    def around(self, request: Struct, version: int, client_id: str) -> list[Any]:
        """Somebody asks the broker where the sidecar does not see it. Returns the reply, if it comes at once."""
        replies: list[Any] = []
        self.broker.handle(request, version, client_id, f"/host-of-{client_id}", self.now(), replies.append)
        self._write()
        return replies

    def _answered(self, connection: Connection, exchange: Exchange, reply: Struct) -> None:
        connection.parked = None
        if connection.open:
            connection.down.append((exchange, reply))

    def deliver(self, connection: Connection) -> Struct | None:
        """The next reply passes the sidecar and reaches its client; None where there is none."""
        if not connection.down:
            return None
        exchange, reply = connection.down.popleft()
        now = self.now()
        if not self._is_unread(exchange, now):
            self.apply(exchange_events.reply_events(exchange, reply, now), now)
        for client in self.clients:
            if client.connection is connection:
                client.take(reply)
        return reply

    def _is_unread(self, exchange: Exchange, now: float) -> bool:
        """Whether a request was not understood. Then the copy learns that it is over."""
        if exchange.token not in self.unread:
            return False
        group = self.unread.pop(exchange.token)
        self.manager.note_unread_write(group, now + LOST_REQUEST_SECONDS, members=_touches_members(exchange))
        return True

    def settle(self, *others: Connection) -> None:
        """All requests are handled and all replies delivered, but of joins and syncs that wait; not those of others."""
        while busy := [c for c in self.connections if (c.down or (c.up and not c.parked)) and c not in others]:
            for connection in busy:
                self.handle(connection)
                self.deliver(connection)

    def gather(self, *clients: "Client", steps: int = 6) -> None:
        """Clients do what clients do until all are settled, or give up."""
        for _ in range(steps):
            for client in clients:
                client.go_on()
            self.settle()

    def lose(self, connection: Connection) -> None:
        """A connection breaks. What is on its way to the broker may still get there."""
        now = self.now()
        for exchange in connection.exchanges():
            if not self._is_unread(exchange, now):
                self.apply(exchange_events.lost_reply_events(exchange), now)
        self.limbo += [(now + LOST_REQUEST_SECONDS, exchange) for exchange in connection.up]
        connection.open = False
        connection.up.clear()
        connection.down.clear()
        self.connections.remove(connection)

    def handle_lost(self, index: int) -> None:
        """The broker takes a request whose connection has gone."""
        _, exchange = self.limbo.pop(index)
        self._handle(exchange, lambda reply: None)

    def pass_time(self, seconds: float) -> None:
        """Time passes, with whatever the broker does in it.

        Replies to joins and syncs are delivered at once: they take no time that a session timer would notice.
        """
        end = self._now + seconds
        self._hurry()
        while self._now < end:
            self._now = max(self._now, min(end, self.broker.next_deadline(), *(until for until, _ in self.limbo)))
            self.limbo = [(until, exchange) for until, exchange in self.limbo if until > self._now]
            self.broker.tick(self._now)
            self._write()
            self._hurry()

    def clean_up(self) -> None:
        """The broker forgets what is empty."""
        self.broker.clean_up()
        self._write()

    def _hurry(self) -> None:
        for connection in self.connections:
            while any(isinstance(reply, JoinGroupResponse | SyncGroupResponse) for _, reply in connection.down):
                self.deliver(connection)

    def sweep(self) -> None:
        """The sidecar looks for sessions that have run out."""
        self.facts += swept(self.manager, self.now())

    def view(self, group_id: str = "g") -> GroupView:
        """A group as the copy has it now."""
        return self.manager.view(group_id, self.now())

    def awaiting(self, group_id: str = "g") -> frozenset[str]:
        """Whose joins are with the broker: member ids, or tokens of those that have no id yet."""
        return self.manager.group_metadata_cache[group_id].parked_ids

    def lacking(self, group_id: str = "g") -> tuple[FallbackReason | None, FallbackReason | None]:
        """What the copies of a group and of its offsets lack now."""
        view = self.view(group_id)
        return view.fallback_reason, view.offsets_fallback_reason

    def listing(self) -> FallbackReason | None:
        """What the copy lacks to list all groups."""
        return self.manager.listing_fallback_reason(self.now())

    def ask(self, connection: Connection, request: Struct, version: int) -> None:
        """Somebody sends a request; a question is one that the sidecar leaves to the broker."""
        as_of = {group: self.manager.changes_of(group) for group in ("g", "h")}
        self.send(connection, request, version, "asker", as_of=as_of, note_count=self.manager.note_count)

    def describe(self) -> None:
        """The broker describes "g" to somebody."""
        self.ask(self.connect(), DescribeGroupsRequest(groups=("g",)), 5)
        self.settle()

    def apply(self, events: Iterable[AnyEvent], now: float) -> None:
        """Events reach the copy."""
        self.facts += self.manager.apply(events, now)


@dataclass
class Client:
    """A group member, or one that would be: it remembers what replies told it."""

    world: World
    name: str
    group_id: str
    instance_id: str | None = None
    version: int = 9
    metadata: bytes = b"m"
    said: str | None = None
    member_id: str = ""
    generation: int = -1
    roster: tuple[JoinGroupMember, ...] = ()
    synced: bool = False
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = self.world.connect()
        self.world.clients.append(self)

    def send(self, request: Struct, version: int) -> None:
        """Sends a request over its connection."""
        self.world.send(self.connection, request, version, self.name)

    def join(self, protocols: Sequence[str] = ("range",)) -> None:
        """Joins, or joins again."""
        self.send(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=tuple(JoinGroupProtocol(name=name, metadata=self.metadata) for name in protocols),
                reason=self.said,
            ),
            self.version,
        )

    def sync(self, salt: str = "") -> None:
        """Asks for its assignment; the leader brings everybody's."""
        assignments = tuple(
            SyncGroupRequestAssignment(member_id=m.member_id, assignment=f"{salt}{m.member_id}".encode())
            for m in self.roster
        )
        self.send(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                assignments=assignments,
            ),
            3,
        )

    def heartbeat(self) -> None:
        """Says that it is alive."""
        self.send(self.beat(), 3)

    def beat(self) -> HeartbeatRequest:
        """What it says then."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def leave(self, version: int = 3) -> None:
        """Leaves."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason=self.said)
        request = LeaveGroupRequest(group_id=self.group_id, members=(identity,))
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        self.send(request, version)

    def commit(self, partition: int, offset: int) -> None:
        """Commits an offset as the member that it is."""
        self.send(commit_of(self.group_id, partition, offset, self.generation, self.member_id, self.instance_id), 7)

    def reconnect(self) -> None:
        """Its connection breaks, and it makes another."""
        self.world.lose(self.connection)
        self.connection = self.world.connect()

    def restart(self) -> None:
        """It forgets all, and connects anew."""
        self.reconnect()
        self.forget()

    def forget(self) -> None:
        """It is nobody's member any more."""
        self.member_id, self.generation, self.roster, self.synced = "", -1, (), False

    def go_on(self) -> None:
        """Does what a client does next, unless it waits for a reply."""
        if any(True for _ in self.connection.exchanges()):
            return
        if self.generation < 0:
            self.join()
        elif not self.synced:
            self.sync()
        else:
            self.heartbeat()

    def take(self, reply: Struct) -> None:
        """Learns from a reply."""
        match reply:
            case JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = reply.member_id
            case JoinGroupResponse(error_code=ErrorCode.NONE):
                self.member_id, self.generation, self.roster = reply.member_id, reply.generation_id, reply.members
                self.synced = reply.skip_assignment
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                self.synced = True
            case JoinGroupResponse() | SyncGroupResponse() | HeartbeatResponse():
                if reply.error_code:
                    self.generation, self.synced = -1, False
                if reply.error_code in LOST_ID:
                    self.member_id = ""


LOST_ID = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
"""Errors after which a client begins anew."""


def commit_of(
    group_id: str, partition: int, offset: int, generation: int = -1, member_id: str = "", instance: str | None = None
) -> OffsetCommitRequest:
    """A commit of one offset, by a member or, as it stands, by nobody's."""
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=3, committed_metadata=None
    )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=(OffsetCommitRequestTopic(name="t", partitions=(committed,)),),
    )


def _touches_members(exchange: Exchange) -> bool:
    return exchange.request.KEY not in exchange_events.MEMBER_PRESERVING_WRITES


def asks_about(exchange: Exchange) -> tuple[str, ...]:
    """The groups that a request is about."""
    request = exchange.request
    if isinstance(request, DeleteGroupsRequest):
        return request.groups_names
    if isinstance(request, DescribeGroupsRequest):
        return request.groups
    if isinstance(request, ListGroupsRequest):
        return ()
    group_id: str = getattr(request, "group_id")  # noqa: B009 -- all others have one
    return (group_id,)
