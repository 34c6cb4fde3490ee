"""A simple model of Kafka's classic group coordinator. Tests compare the copy with the model.

The model implements requests and timers as Kafka 4's GroupMetadataManager and ClassicGroup do. The model calls a
function with each reply, either at once or when it releases a parked request. It leaves out loading, the log,
authorization and the new protocols.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from group_sidecar.codecs.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from group_sidecar.codecs.schema import Struct
from tests.coordinator.model_groups import (
    COMPLETING,
    DEAD,
    EMPTY,
    NEVER,
    PREPARING,
    STABLE,
    ModelGroup,
    ModelMember,
    Protocols,
    Respond,
    committed,
)


class Broker:
    """The coordinator.

    Args:
        max_size: Kafka's group.max.size, or None for no limit.
        initial_delay: Kafka's group.initial.rebalance.delay.ms, in seconds.
    """

    def __init__(self, *, max_size: int | None = None, initial_delay: float = 0.0) -> None:
        self.groups: dict[str, ModelGroup] = {}
        self.completed: list[tuple[str, int, int]] = []
        """For each completed join phase: the group id, the generation, and the number of members that joined."""
        self._max_size = max_size
        self._initial_delay = initial_delay
        self._ids = count(1)
        self._now = 0.0

    def handle(  # noqa: C901  A row for each API.
        self, request: Struct, version: int, client_id: str, client_host: str, now: float, respond: Respond
    ) -> None:
        """Handles a request. Calls `respond` with the reply, at once or later."""
        self._now = now
        match request:
            case JoinGroupRequest():
                self._join(request, version, client_id, client_host, respond)
            case SyncGroupRequest():
                self._sync(request, respond)
            case HeartbeatRequest():
                respond(HeartbeatResponse(error_code=self._heartbeat(request)))
            case LeaveGroupRequest():
                respond(self._leave(request, version))
            case OffsetCommitRequest():
                respond(self._commit(request))
            case OffsetDeleteRequest():
                respond(self._delete_offsets(request))
            case OffsetFetchRequest():
                respond((self.groups.get(request.group_id) or ModelGroup(request.group_id)).fetch())
            case DeleteGroupsRequest():
                respond(
                    DeleteGroupsResponse(throttle_time_ms=0, results=tuple(map(self._delete, request.groups_names)))
                )
            case DescribeGroupsRequest():
                respond(DescribeGroupsResponse(groups=tuple(map(self.describe, request.groups))))
            case ListGroupsRequest():
                listed = (ListedGroup(group_id=g.group_id, protocol_type=g.protocol_type) for g in self.groups.values())
                respond(ListGroupsResponse(error_code=0, groups=tuple(listed)))
            case _:
                raise AssertionError(request)

    # Joining.

    def _join(
        self, request: JoinGroupRequest, version: int, client_id: str, client_host: str, respond: Respond
    ) -> None:
        def refuse(error: ErrorCode, member_id: str = request.member_id) -> None:
            respond(JoinGroupResponse(error_code=error, protocol_name="", leader="", member_id=member_id))

        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return refuse(ErrorCode.UNKNOWN_MEMBER_ID)
            group = self.groups[request.group_id] = ModelGroup(request.group_id)
        if not group.accepts(request.member_id, self._max_size):
            self._remove(group, request.member_id)
            return refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        protocols = tuple((p.name, p.metadata) for p in request.protocols)
        if not group.supports(request.protocol_type, protocols):
            return refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        old = group.static(request.group_instance_id)
        if not request.member_id and not request.group_instance_id and version >= 4:
            member_id = f"{client_id}-{next(self._ids)}"
            group.pending[member_id] = self._now + request.session_timeout_ms / 1000
            return refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        if request.member_id in group.members:
            return self._join_again(group, group.members[request.member_id], request, protocols, respond)
        if request.member_id and request.member_id not in group.pending:
            fenced = old is not None
            return refuse(ErrorCode.FENCED_INSTANCE_ID if fenced else ErrorCode.UNKNOWN_MEMBER_ID)
        member = ModelMember(
            member_id=request.member_id or f"{request.group_instance_id or client_id}-{next(self._ids)}",
            instance_id=request.group_instance_id,
            client_id=client_id,
            client_host=client_host,
            session=request.session_timeout_ms / 1000,
            rebalance=request.rebalance_timeout_ms / 1000,
            protocols=protocols,
            join=respond,
        )
        if old is not None:
            return self._replace(group, old, member, version)
        member.expires = self._now + 300
        group.pending.pop(member.member_id, None)
        group.members[member.member_id] = member
        group.protocol_type = group.protocol_type if len(group.members) > 1 else request.protocol_type
        group.leader = group.leader or member.member_id
        return self._rebalance_or_complete(group)

    def _join_again(
        self,
        group: ModelGroup,
        member: ModelMember,
        request: JoinGroupRequest,
        protocols: Protocols,
        respond: Respond,
    ) -> None:
        if request.group_instance_id != member.instance_id and request.group_instance_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            return respond(
                JoinGroupResponse(error_code=error, protocol_name="", leader="", member_id=request.member_id)
            )
        same = protocols == member.protocols
        forced = group.state == STABLE and group.leader == member.member_id
        if group.state in (COMPLETING, STABLE) and same and not forced:
            return respond(group.joined(member, roster=group.state == COMPLETING))
        member.protocols, member.join = protocols, respond
        member.session, member.rebalance = request.session_timeout_ms / 1000, request.rebalance_timeout_ms / 1000
        return self._rebalance_or_complete(group)

    def _replace(self, group: ModelGroup, old: ModelMember, new: ModelMember, version: int) -> None:
        """Replaces a static member that has joined again under a new member id."""
        for parked in (old.join, old.sync):
            if parked:
                parked(_fenced(parked is old.join, old.member_id))
        was_leader = group.leader
        del group.members[old.member_id]
        new = replace(new, client_id=old.client_id, client_host=old.client_host, assignment=old.assignment)
        new.is_new, new.expires = False, self._now + old.session
        group.members[new.member_id] = new
        if was_leader == old.member_id:
            group.leader = new.member_id
        if group.state == STABLE and group.selected() == group.protocol:
            respond, new.join = new.join, None
            assert respond
            reply = group.joined(new, roster=version >= 9)
            respond(reply if version >= 9 else replace(reply, leader=was_leader))
        elif group.state == COMPLETING:
            self._prepare(group)
        else:
            self._rebalance_or_complete(group)

    def _rebalance_or_complete(self, group: ModelGroup) -> None:
        if group.state != PREPARING:
            self._prepare(group)
        else:
            self._maybe_complete(group)

    def _prepare(self, group: ModelGroup) -> None:
        for member in group.members.values():
            if group.state == COMPLETING:
                member.assignment = b""
                if member.sync:
                    member.sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b""))
                    member.sync = None
        group.unsynced.clear()
        group.sync_by = NEVER
        group.initial = group.state == EMPTY
        group.state = PREPARING
        group.join_by = self._now + (self._initial_delay if group.initial else group.rebalance_timeout)
        self._maybe_complete(group)

    def _maybe_complete(self, group: ModelGroup) -> None:
        joined = len(group.awaiting) == len(group.members) and not group.pending
        if group.join_by <= self._now or (joined and not group.initial):
            self._complete(group)

    def _complete(self, group: ModelGroup) -> None:
        """Ends the join phase. Removes members that have not joined again, except static members."""
        for member in list(group.members.values()):
            if not member.join and not member.instance_id:
                self._remove(group, member.member_id)
        if group.members and not group.awaiting:
            group.join_by = self._now + group.rebalance_timeout
            return
        group.join_by = NEVER
        group.generation += 1
        if not group.members:
            group.state, group.protocol, group.leader = EMPTY, "", ""
            return
        if not group.members[group.leader].join:
            group.leader = group.awaiting[0].member_id
        group.state, group.protocol = COMPLETING, group.selected()
        group.sync_by = self._now + group.rebalance_timeout
        self.completed.append((group.group_id, group.generation, len(group.awaiting)))
        for member in group.members.values():
            respond, member.join = member.join, None
            member.is_new, member.expires = False, self._now + member.session
            group.unsynced.add(member.member_id)
            if respond:
                respond(group.joined(member, roster=True))

    # Other requests of members.

    def _error_of(
        self, group: ModelGroup | None, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        if group is None or group.state == EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        static = group.static(instance_id) if instance_id else None
        if static is not None and static.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in group.members or (instance_id and static is None):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION

    def _sync(self, request: SyncGroupRequest, respond: Respond) -> None:
        group = self.groups.get(request.group_id)
        error = self._error_of(group, request.member_id, request.group_instance_id, request.generation_id)
        if group is None or error:
            return respond(SyncGroupResponse(error_code=error, assignment=b""))
        if group.state == PREPARING:
            return respond(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b""))
        member = group.members[request.member_id]
        group.unsynced.discard(request.member_id)
        if group.state == STABLE:
            return respond(SyncGroupResponse(error_code=ErrorCode.NONE, assignment=member.assignment))
        member.sync = respond
        if group.leader == request.member_id:
            self._assign(group, {a.member_id: a.assignment for a in request.assignments})
        return None

    def _assign(self, group: ModelGroup, assignments: dict[str, bytes]) -> None:
        group.state = STABLE
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync:
                member.sync(SyncGroupResponse(error_code=ErrorCode.NONE, assignment=member.assignment))
                member.sync = None
                member.expires = self._now + member.session

    def _heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        group = self.groups.get(request.group_id)
        error = self._error_of(group, request.member_id, request.group_instance_id, request.generation_id)
        if group is None or error:
            return error
        member = group.members[request.member_id]
        member.expires = self._now + member.session
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state == PREPARING else ErrorCode.NONE

    def _leave(self, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
        group = self.groups.get(request.group_id)
        leaving = [(m.member_id, m.group_instance_id) for m in request.members] or [(request.member_id, None)]
        outcomes = [(*who, self._leave_one(group, *who)) for who in leaving]
        if group is not None and any(error == ErrorCode.NONE for _, _, error in outcomes):
            if group.state in (STABLE, COMPLETING):
                self._prepare(group)
            elif group.state == PREPARING:
                self._maybe_complete(group)
        if version < 3:
            return LeaveGroupResponse(error_code=outcomes[0][2])
        members = tuple(MemberResponse(member_id=m, group_instance_id=i, error_code=e) for m, i, e in outcomes)
        return LeaveGroupResponse(error_code=ErrorCode.NONE, members=members)

    def _leave_one(self, group: ModelGroup | None, member_id: str, instance_id: str | None) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        static = group.static(instance_id)
        if not member_id and static is not None:
            member_id = static.member_id
        if static is not None and static.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        no_such_instance = instance_id is not None and static is None and member_id in group.members
        if no_such_instance or (member_id not in group.members and member_id not in group.pending):
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(group, member_id)
        return ErrorCode.NONE

    def _remove(self, group: ModelGroup, member_id: str) -> None:
        member = group.members.pop(member_id, None)
        if member is not None and member.join:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            member.join(JoinGroupResponse(error_code=error, protocol_name="", leader="", member_id=""))
        if group.leader == member_id:
            group.leader = next(iter(group.members), "")
        group.pending.pop(member_id, None)
        group.unsynced.discard(member_id)

    # Offsets and groups.

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        group, generation = self.groups.get(request.group_id), request.generation_id_or_member_epoch
        if group is None and generation < 0:
            group = self.groups[request.group_id] = ModelGroup(request.group_id)
        error = ErrorCode.NONE
        if generation >= 0 or group is None or group.state != EMPTY:
            error = self._error_of(group, request.member_id, request.group_instance_id, generation)
            if not error and group is not None and group.state == COMPLETING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        if group is not None and not error:
            if (member := group.members.get(request.member_id)) is not None:
                member.expires = self._now + member.session
            group.commit(request)
        return committed(request, error)

    def _delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        group = self.groups.get(request.group_id)
        if group is None or group.state != EMPTY:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NON_EMPTY_GROUP
            return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=())
        return group.delete_offsets(request)

    def _delete(self, group_id: str) -> DeletableGroupResult:
        group = self.groups.get(group_id)
        error = ErrorCode.NONE if group else ErrorCode.GROUP_ID_NOT_FOUND
        if group is not None and group.state != EMPTY:
            error = ErrorCode.NON_EMPTY_GROUP
        elif group is not None:
            del self.groups[group_id]
        return DeletableGroupResult(group_id=group_id, error_code=error)

    def describe(self, group_id: str) -> DescribedGroup:
        """Returns a group in the form of DescribeGroups v5."""
        return (self.groups.get(group_id) or ModelGroup(group_id, state=DEAD)).describe()

    # Time.

    def next_deadline(self) -> float:
        """Returns the time at which the next timer expires, or NEVER."""
        return min((deadline for group in self.groups.values() for deadline, _ in self._timers(group)), default=NEVER)

    def tick(self, now: float) -> None:
        """Advances the clock to `now` and runs all timers that have expired."""
        self._now = now
        for group in self.groups.values():
            while due := [(deadline, act) for deadline, act in self._timers(group) if deadline <= now]:
                min(due, key=lambda timer: timer[0])[1]()

    def clean_up(self) -> None:
        """Removes groups that are empty and have no offsets, as Kafka does periodically."""
        for group in [group for group in self.groups.values() if group.state == EMPTY and not group.offsets]:
            del self.groups[group.group_id]

    def _timers(self, group: ModelGroup) -> list[tuple[float, Callable[[], None]]]:
        timers: list[tuple[float, Callable[[], None]]] = []
        if group.state == PREPARING:
            timers.append((group.join_by, lambda: self._complete(group)))
        if group.state in (COMPLETING, STABLE) and group.unsynced:
            timers.append((group.sync_by, lambda: self._expire_unsynced(group)))
        for member_id, until in group.pending.items():
            timers.append((until, lambda member_id=member_id: self._expire(group, member_id)))  # type: ignore[misc]
        for member in group.members.values():
            waits = not member.is_new and (member.join or member.sync)
            if not waits:
                expire = lambda member_id=member.member_id: self._expire(group, member_id)  # noqa: E731
                timers.append((member.expires, expire))
        return timers

    def _expire_unsynced(self, group: ModelGroup) -> None:
        for member_id in list(group.unsynced):
            self._remove(group, member_id)
        self._prepare(group)

    def _expire(self, group: ModelGroup, member_id: str) -> None:
        pending = member_id in group.pending
        self._remove(group, member_id)
        if group.state in (STABLE, COMPLETING) and not pending:
            self._prepare(group)
        elif group.state == PREPARING:
            self._maybe_complete(group)


def _fenced(join: bool, member_id: str) -> JoinGroupResponse | SyncGroupResponse:
    error = ErrorCode.FENCED_INSTANCE_ID
    if join:
        return JoinGroupResponse(error_code=error, protocol_name="", leader="", member_id=member_id)
    return SyncGroupResponse(error_code=error, assignment=b"")
