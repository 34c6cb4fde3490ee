"""Compares each reply to a client with what the model broker could have answered.

A reply that the broker sent must reach the client as the broker sent it. A reply that the sidecar made itself must show
states that the broker had while the client waited.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.schema import Struct
from tests.coordinator.model_groups import DEAD
from tests.simulation.broker_connection import BrokerConnection
from tests.simulation.group_replies import listed, offsets_reply
from tests.simulation.history import Aspect, Effect, GroupState, History
from tests.simulation.kafka import SEEN_AT
from tests.simulation.timeline import Violation

REWRITTEN = (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_GROUPS)
"""The APIs whose replies the sidecar may change: the offered versions, and the hosts of members."""
NEW_PARTITION_SECONDS = 2.5
"""A list must have the groups of a partition this many seconds after the broker has become the partition's leader."""
REFUSED = (ErrorCode.GROUP_MAX_SIZE_REACHED_KIP_389, ErrorCode.GROUP_MAX_SIZE_REACHED)
# First versions with instance ids in DescribeGroups, and with states and types in ListGroups.
_INSTANCES_SINCE, _STATES_SINCE, _TYPES_SINCE = 4, 4, 5
# First versions of OffsetFetch with leader epochs, and with several groups.
_EPOCHS_SINCE, _MANY_GROUPS_SINCE = 5, 8


class Asker(Protocol):
    """The client of a request. `host`: the client's host as DescribeGroups shows it."""

    name: str
    host: str

    def disconnect(self) -> None:
        """Closes the connection at once."""


@dataclass
class Sent:
    """A request of a client.

    Attributes:
        frame: the request without its length.
        arrived_at: when the sidecar could read all of it.
        effect: what the request changed at the broker; None if the broker has not received the request.
        broker_reply: the frame of the broker's reply, with its length; None before the broker has replied.
        seen: for a question, how many states each of its groups had had when the broker answered.
        handled_at: when the broker handled the request; infinite before.
        ended_at: when the client got the reply or the connection ended; infinite before.
        is_lost: whether the connection ended before the reply.
        connection: the connection on which the broker received the request; None before.
    """

    client: Asker
    request: Struct
    version: int
    correlation: int
    frame: bytes
    end: int
    sent_at: float
    arrived_at: float | None = None
    effect: Effect | None = None
    broker_reply: bytes | None = None
    seen: dict[str, int] = field(default_factory=dict)
    handled_at: float = math.inf
    ended_at: float = math.inf
    is_lost: bool = False
    connection: BrokerConnection | None = None

    @property
    def was_reset(self) -> bool:
        """Whether a `Reset` breaks the connection between the sidecar and the broker, now or with the next reply."""
        return self.connection is not None and self.connection.was_reset

    @property
    def is_parked(self) -> bool:
        """Whether the broker has the request, and the client waits for the reply."""
        return self.effect is not None and math.isinf(self.ended_at)


@dataclass
class Checker:
    """Checks replies.

    Attributes:
        limit: the group.max.size that is in force; None without a limit.
        hosts: the hosts of the clients that got a member id, by the id.
        local: how many replies the sidecar made itself, by API.
        forwarded: how many replies of the broker the sidecar forwarded, by API.
    """

    history: History
    limit: int | None = None
    hosts: dict[str, set[str]] = field(default_factory=dict)
    local: Counter[str] = field(default_factory=Counter)
    forwarded: Counter[str] = field(default_factory=Counter)

    def check(self, sent: Sent, frame: bytes, reply: Struct, now: float) -> bool:
        """Checks a reply (with its length) to a request. Returns whether the sidecar made it. Raises Violation."""
        name = type(sent.request).__name__.removesuffix("Request")
        if sent.broker_reply is not None:
            self.forwarded[name] += 1
            if frame != sent.broker_reply and sent.request.KEY not in REWRITTEN:
                raise Violation(f"{sent.client.name} gets a {name} reply that is not the broker's: {reply}")
            return False
        self.local[name] += 1
        if sent.arrived_at is None:
            raise Violation(f"{sent.client.name} gets a reply to {name} before the request has arrived")
        match sent.request, reply:
            case DescribeGroupsRequest(), DescribeGroupsResponse():
                self._check_described(sent, sent.request, reply, now)
            case ListGroupsRequest(), ListGroupsResponse():
                self._check_listed(sent, sent.request, reply, now)
            case OffsetFetchRequest(), OffsetFetchResponse():
                self._check_offsets(sent, sent.request, reply, now)
            case JoinGroupRequest(), JoinGroupResponse():
                if self.limit is None or reply.error_code not in REFUSED:
                    raise Violation(f"the sidecar answers a join of {sent.client.name} with error {reply.error_code}")
            case _:
                raise Violation(f"the sidecar itself answers {name} of {sent.client.name}: {reply}")
        return True

    def _possible(self, sent: Sent, group_id: str, now: float) -> list[GroupState]:
        assert sent.arrived_at is not None
        return self.history.possible(group_id, aspect_of(sent.request), sent.arrived_at, now)

    def _wrong(self, sent: Sent, answered: Any, possible: Iterable[Any]) -> Violation:
        states = "".join(f"\n    {each}" for each in possible)
        name = type(sent.request).__name__.removesuffix("Request")
        return Violation(
            f"{sent.client.name} asked {name} v{sent.version} at {sent.arrived_at:.6f}, and the sidecar answered\n"
            f"    {answered}\nwhere the broker could have answered{states}"
        )

    def _check_described(
        self, sent: Sent, request: DescribeGroupsRequest, reply: DescribeGroupsResponse, now: float
    ) -> None:
        if [each.group_id for each in reply.groups] != [*request.groups]:
            raise Violation(f"{sent.client.name} gets descriptions of other groups: {reply}")
        for group in reply.groups:
            possible = [
                _plain(state.described, sent.version) if not state.error else state.error
                for state in self._possible(sent, group.group_id, now)
            ]
            answered = group.error_code or _plain(group, sent.version)
            if answered not in possible:
                raise self._wrong(sent, answered, possible)
            for member in group.members:
                if member.client_host not in {SEEN_AT, *self.hosts.get(member.member_id, (member.client_host,))}:
                    raise Violation(f"member {member.member_id} is described at {member.client_host}")

    def _check_listed(self, sent: Sent, request: ListGroupsRequest, reply: ListGroupsResponse, now: float) -> None:
        answered = {each.group_id: each for each in reply.groups}
        if len(answered) < len(reply.groups) or not answered.keys() <= self.history.versions.keys():
            raise Violation(f"{sent.client.name} gets a list with other groups: {reply}")
        states = [each.lower() for each in request.states_filter]
        errors = set()
        for group_id in self.history.versions:
            possible: list[Any] = []
            for state in self._possible(sent, group_id, now):
                errors.add(state.error)
                name = state.described.group_state
                is_listed = name != DEAD and not state.error and (not states or name.lower() in states)
                entry = listed(state.described)
                if sent.version < _STATES_SINCE:
                    entry = replace(entry, group_state="")
                if sent.version < _TYPES_SINCE:
                    entry = replace(entry, group_type="")
                possible.append(entry if is_listed else None)
            if any(state.error for state in self.history.since(group_id, now - NEW_PARTITION_SECONDS)):
                possible.append(None)
            if not reply.error_code and answered.get(group_id) not in possible:
                raise self._wrong(sent, (group_id, answered.get(group_id)), possible)
        if reply.error_code not in {0, *errors}:
            raise self._wrong(sent, reply, errors)

    def _check_offsets(self, sent: Sent, request: OffsetFetchRequest, reply: OffsetFetchResponse, now: float) -> None:
        many = sent.version >= _MANY_GROUPS_SINCE
        groups = [each.group_id for each in request.groups] if many else [request.group_id]
        if many and [each.group_id for each in reply.groups] != groups:
            raise Violation(f"{sent.client.name} gets offsets of other groups: {reply}")
        for at, group_id in enumerate(groups):
            possible = []
            for state in self._possible(sent, group_id, now):
                expected = _expected(request, sent.version, state)
                possible.append(_offsets_of_group(expected, at, sent.version))
            answered = _offsets_of_group(reply, at, sent.version)
            if answered not in possible and not self._is_mixed(sent, request, group_id, at, answered, now):
                raise self._wrong(sent, (group_id, answered), possible)

    def _is_mixed(
        self, sent: Sent, request: OffsetFetchRequest, group_id: str, at: int, answered: Any, now: float
    ) -> bool:
        """Whether each partition of an answer is right on its own, in a state of its own.

        The reply to the later of two commits may pass the sidecar before the reply to the earlier. An answer in between
        shows only the later commit.
        """
        assert sent.arrived_at is not None
        history, [error, rows] = self.history, answered
        if error:
            return False
        shown = {row[:2]: row for row in rows}

        def value_of(partition: tuple[str, int], state: GroupState) -> Any:
            code, found = _offsets_of_group(_expected(request, sent.version, state), at, sent.version)
            return code or next((row for row in found if row[:2] == partition), None)

        partitions = {*shown, *(each for version in history.versions[group_id] for each in version.state.offsets)}
        return all(
            shown.get(each) in history.values(group_id, partial(value_of, each), sent.arrived_at, now)
            for each in sorted(partitions)
        )


def aspect_of(question: Struct) -> Aspect:
    """Returns the aspect of a group about which a question asks."""
    return Aspect.OFFSETS if isinstance(question, OffsetFetchRequest) else Aspect.MEMBERS


def _expected(request: OffsetFetchRequest, version: int, state: GroupState) -> OffsetFetchResponse:
    """Returns the reply if all groups had this state."""
    return offsets_reply(request, version, lambda _: state.offsets, lambda _: state.error, lambda _: state.pending)


def _offsets_of_group(reply: OffsetFetchResponse, at: int, version: int) -> Any:
    """Returns the error and the offsets of one group in a reply, in a form that does not depend on their order."""
    if version >= _MANY_GROUPS_SINCE:
        error, topics = reply.groups[at].error_code, reply.groups[at].topics
    else:
        error, topics = reply.error_code, reply.topics
    return error, sorted(_offsets_of_topics(topics, version))


def _offsets_of_topics(topics: Iterable[OffsetFetchResponseTopic], version: int) -> Iterable[tuple[Any, ...]]:
    for topic in topics:
        for each in topic.partitions:
            epoch = each.committed_leader_epoch if version >= _EPOCHS_SINCE else -1
            yield topic.name, each.partition_index, each.committed_offset, epoch, each.metadata or "", each.error_code


def _plain(group: DescribedGroup, version: int) -> DescribedGroup:
    """Returns a description without hosts, and without fields that the version lacks."""
    shows_instance = version >= _INSTANCES_SINCE
    members = (
        replace(each, client_host="", group_instance_id=each.group_instance_id if shows_instance else None)
        for each in group.members
    )
    return replace(group, members=tuple(sorted(members, key=lambda each: each.member_id)))
