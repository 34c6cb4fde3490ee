"""Connects clients, the model of a broker and the copy. A test moves every request and every reply.

The copy sees a request when the client sends it, and a reply when the reply is delivered. The module does not check the
copy's contents.
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
"""Seconds by which the clock advances at each event."""


@dataclass
class Connection:
    """A client's connection.

    Attributes:
        up: requests that the broker has not handled yet.
        down: requests and their replies that have not been delivered yet.
        parked: the request that the broker handles and has not answered; None if there is none.
    """

    number: int
    up: deque[Exchange] = field(default_factory=deque)
    down: deque[tuple[Exchange, Struct]] = field(default_factory=deque)
    parked: Exchange | None = None
    open: bool = True

    def exchanges(self) -> Iterator[Exchange]:
        """Yields all in-flight requests of the client, oldest first."""
        yield from (exchange for exchange, _ in self.down)
        if self.parked:
            yield self.parked
        yield from self.up


class World:
    """A broker, the copy of its groups, and the connections through the sidecar.

    Args:
        exclusive: whether the copy may assume that every client uses this sidecar.
        seen_at: the host that the broker sees for all clients of the sidecar; None for each client's own host.

    Attributes:
        limbo: requests of lost connections that may still reach the broker, each with the time until which it may.
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
        """Requests that the sidecar cannot decode: by token, the group id if the sidecar can read the id, else None."""
        self.log: ModelLog | None = None
        self.tail: Tail
        self._now = 1000.0
        self._numbers = count(1)

    def now(self) -> float:
        """Advances the clock by `MOMENT` and returns the time in seconds. No two events have the same time."""
        self._now += MOMENT
        return self._now

    def connect(self) -> Connection:
        """Opens a new connection."""
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
            principal=f"User:{client_id}",
            sent_at=now,
            **fields,
        )
        connection.up.append(exchange)
        self.apply(exchange_events.request_events(exchange), now)

    def send_unread(self, connection: Connection, request: Struct, version: int, group: str | None) -> None:
        """A client sends a request that the sidecar cannot decode, except perhaps for the group id."""
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
        """The broker handles the next request of a connection, unless an earlier request is parked."""
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

    def bypass(self, request: Struct, version: int, client_id: str) -> list[Any]:
        """Sends a request to the broker that bypasses the sidecar.

        Returns:
            A list to which the broker appends its reply, at once or later.
        """
        replies: list[Any] = []
        self.broker.handle(request, version, client_id, f"/host-of-{client_id}", self.now(), replies.append)
        self._write()
        return replies

    def _answered(self, connection: Connection, exchange: Exchange, reply: Struct) -> None:
        connection.parked = None
        if connection.open:
            connection.down.append((exchange, reply))

    def deliver(self, connection: Connection) -> Struct | None:
        """Delivers the next reply through the sidecar to its client. Returns the reply, or None if there is none."""
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
        """Whether the sidecar could not decode a request. If so, reports the end of the request to the copy."""
        if exchange.token not in self.unread:
            return False
        group = self.unread.pop(exchange.token)
        self.manager.note_unread_write(group, now + LOST_REQUEST_SECONDS, members=_touches_members(exchange))
        return True

    def settle(self, *others: Connection) -> None:
        """Handles all requests and delivers all replies, except parked joins and syncs, and except on `others`."""
        while busy := [c for c in self.connections if (c.down or (c.up and not c.parked)) and c not in others]:
            for connection in busy:
                self.handle(connection)
                self.deliver(connection)

    def gather(self, *clients: "Client", steps: int = 6) -> None:
        """Makes each client send its next request, and settles all connections. Repeats this `steps` times."""
        for _ in range(steps):
            for client in clients:
                client.go_on()
            self.settle()

    def lose(self, connection: Connection) -> None:
        """Breaks a connection. Requests that are in flight to the broker may still reach the broker."""
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
        """The broker handles a request whose connection is lost. `index`: its position in `limbo`."""
        _, exchange = self.limbo.pop(index)
        self._handle(exchange, lambda reply: None)

    def pass_time(self, seconds: float) -> None:
        """Advances the clock and runs the broker's timers.

        Replies to joins and syncs are delivered at once, so that their delay does not affect session timers.
        """
        end = self._now + seconds
        self._hurry()
        while self._now < end:
            self._now = max(self._now, min(end, self.broker.next_deadline(), *(until for until, _ in self.limbo)))
            self.limbo = [(until, exchange) for until, exchange in self.limbo if until > self._now]
            self.broker.tick(self._now)
            self._write()
            self._hurry()

    def delay(self, seconds: float) -> None:
        """Advances the clock and runs the broker's timers, while no reply is delivered."""
        self._now += seconds
        self.broker.tick(self._now)
        self._write()

    def clean_up(self) -> None:
        """The broker removes groups that are empty and have no offsets."""
        self.broker.clean_up()
        self._write()

    def _hurry(self) -> None:
        for connection in self.connections:
            while any(isinstance(reply, JoinGroupResponse | SyncGroupResponse) for _, reply in connection.down):
                self.deliver(connection)

    def sweep(self) -> None:
        """The sidecar looks for expired sessions."""
        self.facts += swept(self.manager, self.now())

    def view(self, group_id: str = "g") -> GroupView:
        """Returns the copy's current view of a group."""
        return self.manager.view(group_id, self.now())

    def awaiting(self, group_id: str = "g") -> frozenset[str]:
        """Returns the member ids of the joins that the copy counts as parked, or the tokens of joins without an id."""
        return self.manager.group_metadata_cache[group_id].parked_ids

    def lacking(self, group_id: str = "g") -> tuple[FallbackReason | None, FallbackReason | None]:
        """Returns the fallback reasons of a group and of its offsets. A reason is None if the copy is complete."""
        view = self.view(group_id)
        return view.fallback_reason, view.offsets_fallback_reason

    def listing(self) -> FallbackReason | None:
        """Returns the fallback reason for a list of all groups, or None if the copy is complete."""
        return self.manager.listing_fallback_reason(self.now())

    def ask(self, connection: Connection, request: Struct, version: int) -> None:
        """Sends a question as the sidecar forwards it: with the numbers of the copy's changes so far."""
        as_of = {group: self.manager.changes_of(group) for group in ("g", "h")}
        self.send(connection, request, version, "asker", as_of=as_of, note_count=self.manager.note_count)

    def describe(self) -> None:
        """Sends a DescribeGroups for group "g" on a new connection, and settles."""
        self.ask(self.connect(), DescribeGroupsRequest(groups=("g",)), 5)
        self.settle()

    def apply(self, events: Iterable[AnyEvent], now: float) -> None:
        """Applies events to the copy, and keeps the facts that the copy reports."""
        self.facts += self.manager.apply(events, now)


@dataclass
class Client:
    """A group member, or a client that wants to become one. Keeps the ids and the state that replies contain."""

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
        """Sends a request over the client's connection."""
        self.world.send(self.connection, request, version, self.name)

    def join(self, protocols: Sequence[str] = ("range",)) -> None:
        """Sends a JoinGroup, with the member id if the client has one."""
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
        """Sends a SyncGroup. The leader's request contains the assignments of all members."""
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
        """Sends a Heartbeat."""
        self.send(self.beat(), 3)

    def beat(self) -> HeartbeatRequest:
        """Returns the client's Heartbeat request."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def leave(self, version: int = 3) -> None:
        """Sends a LeaveGroup."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason=self.said)
        request = LeaveGroupRequest(group_id=self.group_id, members=(identity,))
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        self.send(request, version)

    def commit(self, partition: int, offset: int) -> None:
        """Commits an offset with the client's member id and generation."""
        self.send(commit_of(self.group_id, partition, offset, self.generation, self.member_id, self.instance_id), 7)

    def reconnect(self) -> None:
        """Breaks the connection and opens another."""
        self.world.lose(self.connection)
        self.connection = self.world.connect()

    def restart(self) -> None:
        """Opens a new connection, and drops the client's membership."""
        self.reconnect()
        self.forget()

    def forget(self) -> None:
        """Drops the client's membership, without a request."""
        self.member_id, self.generation, self.roster, self.synced = "", -1, (), False

    def go_on(self) -> None:
        """Sends the client's next request, unless a request is in flight."""
        if any(True for _ in self.connection.exchanges()):
            return
        if self.generation < 0:
            self.join()
        elif not self.synced:
            self.sync()
        else:
            self.heartbeat()

    def take(self, reply: Struct) -> None:
        """Updates the client's state from a reply."""
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
"""Errors after which a client drops its member id."""


def commit_of(
    group_id: str, partition: int, offset: int, generation: int = -1, member_id: str = "", instance: str | None = None
) -> OffsetCommitRequest:
    """Returns a commit of one offset of topic "t". With the default values it comes from no member."""
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
    """Returns the ids of the groups that a request names; empty for ListGroups."""
    request = exchange.request
    if isinstance(request, DeleteGroupsRequest):
        return request.groups_names
    if isinstance(request, DescribeGroupsRequest):
        return request.groups
    if isinstance(request, ListGroupsRequest):
        return ()
    group_id: str = getattr(request, "group_id")  # noqa: B009 -- all others have one
    return (group_id,)
