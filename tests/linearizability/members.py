"""Members of classic groups with a maximum size, and a check of the rules for their generations.

Each member records the replies to its joins and syncs. `check` finds generations that are too large, and partitions
that two members of one generation were assigned.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from group_sidecar.codecs.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    partitions_in_assignment,
)
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from group_sidecar.codecs.schema import encode
from tests.linearizability.connections import GROUP, Connections, NotSent, Progress, Unanswered
from tests.linearizability.history import LineFile
from tests.linearizability.offsets_client import TOPIC

LIMIT = 3
"""The maximum number of members of a group. More clients than this try to join."""
GROUPS = ("members-0", "members-1")
SHARES = 6
"""The number of partitions that a leader distributes. They need not exist."""
MEMBERS_SUFFIX = ".members.jsonl"
_SESSION_MS, _REBALANCE_MS = 6000, 2500
_HEARTBEAT_SECONDS, _BACKOFF_SECONDS, _LEAVES = 0.3, 0.5, 0.01
_JOIN_VERSION, _SYNC_VERSION, _HEARTBEAT_VERSION, _LEAVE_VERSION = 7, 4, 3, 3
_REJOIN = {int(ErrorCode.REBALANCE_IN_PROGRESS), int(ErrorCode.ILLEGAL_GENERATION)}
_FAILURES = (NotSent, Unanswered)


@dataclass(frozen=True)
class GenerationReply:
    """The facts about a generation in a JoinGroup or SyncGroup reply to a member.

    Attributes:
        at: monotonic nanoseconds.
        group, generation, member: the member that got the reply, its group, and the generation.
        size: the number of members in a leader's JoinGroup reply; 0 in other replies.
        partitions: the assigned partitions in a SyncGroup reply.
    """

    at: int
    group: str
    generation: int
    member: str
    size: int = 0
    partitions: tuple[int, ...] = ()


class Member:
    """One client that joins its group again whenever it is not a member.

    Args:
        group: the group that it joins.
        connections: its connections to the brokers.
        random: decides when it leaves.
        file: the file for the replies about generations.
        progress: counts successes and errors.
    """

    def __init__(
        self, group: str, connections: Connections, random: Random, file: LineFile, progress: Progress
    ) -> None:
        self._group, self._connections, self._random = group, connections, random
        self._file, self._progress = file, progress
        self._member, self._generation = "", -1

    def run_once(self) -> None:
        """Joins if it is not a member. Otherwise sends a heartbeat or leaves."""
        try:
            if self._generation < 0:
                self._join()
            elif self._random.random() < _LEAVES:
                self._leave()
            else:
                self._heartbeat()
        except _FAILURES as error:
            self._progress.failed(str(error))
            time.sleep(_BACKOFF_SECONDS)

    def _join(self) -> None:
        subscription = b"\0\0" + encode(ConsumerProtocolSubscription(topics=(TOPIC,)), 0)
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self._member,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=subscription),),
        )
        reply = self._connections.ask(GROUP, self._group, request, _JOIN_VERSION)
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = reply.member_id
        elif self._fails(reply.error_code):
            self._member = ""
        else:
            self._member = reply.member_id
            members = [each.member_id for each in reply.members]
            at = time.monotonic_ns()
            self._note(GenerationReply(at, self._group, reply.generation_id, self._member, len(members)))
            self._sync(reply.generation_id, members)

    def _sync(self, generation: int, members: Sequence[str]) -> None:
        shares = tuple(
            SyncGroupRequestAssignment(member_id=member, assignment=_share(range(number, SHARES, len(members))))
            for number, member in enumerate(members)
        )
        request = SyncGroupRequest(
            group_id=self._group, generation_id=generation, member_id=self._member, assignments=shares
        )
        reply = self._connections.ask(GROUP, self._group, request, _SYNC_VERSION)
        if self._fails(reply.error_code):
            return
        self._generation = generation
        partitions = tuple(sorted(number for _, number in partitions_in_assignment(reply.assignment)))
        self._note(GenerationReply(time.monotonic_ns(), self._group, generation, self._member, partitions=partitions))
        self._progress.succeeded()

    def _heartbeat(self) -> None:
        time.sleep(_HEARTBEAT_SECONDS)
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member)
        reply = self._connections.ask(GROUP, self._group, request, _HEARTBEAT_VERSION)
        if reply.error_code in _REJOIN:
            self._generation = -1
        elif not self._fails(reply.error_code):
            self._progress.succeeded()

    def _leave(self) -> None:
        request = LeaveGroupRequest(group_id=self._group, members=(MemberIdentity(member_id=self._member),))
        self._member, self._generation = "", -1
        self._connections.ask(GROUP, self._group, request, _LEAVE_VERSION)
        time.sleep(_BACKOFF_SECONDS)

    def _fails(self, code: int) -> bool:
        """Counts an error and prepares the next try. Returns whether there is an error."""
        if not code:
            return False
        if code not in _REJOIN:
            self._progress.failed(int(code))
            time.sleep(_BACKOFF_SECONDS)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member, self._generation = "", -1
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._connections.forget(GROUP, self._group)
        return True

    def _note(self, reply: GenerationReply) -> None:
        self._file.append(json.dumps(asdict(reply)) + "\n")


@dataclass(frozen=True)
class Generations:
    """The result of `check`.

    Attributes:
        count: the number of generations.
        shared: descriptions of partitions that two members of one generation were assigned.
        large: the generations over the limit, with the time of the leader's reply.
    """

    count: int
    shared: list[str]
    large: list[tuple[str, float]]


def read(lines: Iterable[str]) -> list[GenerationReply]:
    """Reads what members have recorded."""
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [GenerationReply(**{**each, "partitions": tuple(each["partitions"])}) for each in found]


def check(replies: Iterable[GenerationReply], limit: int = LIMIT) -> Generations:
    """Returns which generations break a rule. Times are monotonic seconds."""
    owners: dict[tuple[str, int], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    large = []
    for each in replies:
        owned = owners[each.group, each.generation]
        for partition in each.partitions:
            owned[partition].add(each.member)
        if each.size > limit:
            large.append((f"{each.group} generation {each.generation}: {each.size} members", each.at / 1e9))
    shared = [
        f"{group} generation {generation}: partition {partition} of {', '.join(sorted(members))}"
        for (group, generation), owned in owners.items()
        for partition, members in owned.items()
        if len(members) > 1
    ]
    return Generations(len(owners), shared, large)


def _share(partitions: Sequence[int]) -> bytes:
    parts = (TopicPartition(topic=TOPIC, partitions=tuple(partitions)),)
    return b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=parts), 0)
