"""What is asked about a group: every version of every API that only reads groups, in each way that a version allows.

Owns: `questions`. Must not know: the group's state, nor who answers.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from group_sidecar.codecs.registry import api_name
from group_sidecar.codecs.schema import Struct
from tests.kafka.dialect import Dialect

Topics = tuple[OffsetFetchRequestTopic, ...] | None

APIS_ASKED = ("ListGroups", "DescribeGroups", "OffsetFetch", "ConsumerGroupDescribe")
_UNKNOWN_ID = UUID(int=0x1234_5678_9ABC_DEF0)


@dataclass(frozen=True)
class Subject:
    """Whom the questions are about.

    Args:
        group: its name.
        topic: where it may have offsets.
        other: where it has none.
        topic_ids: the ids of both, where the broker knows ids.
        member: a member of the new protocol and its epoch, where there is one.
    """

    group: str
    topic: str
    other: str
    topic_ids: Mapping[str, UUID]
    member: tuple[str, int] | None = None


@dataclass(frozen=True)
class Question:
    """One request about a group in one version. `way` tells it from the others of its API and version."""

    api: str
    version: int
    way: str
    request: Struct
    group: str = ""

    def __str__(self) -> str:
        return f"{self.api} v{self.version}" + (f" ({self.way})" if self.way else "")


@dataclass(frozen=True)
class Way:
    """One way to put a question, in the versions from `since` to `until`."""

    name: str
    request: Callable[[Subject, int], Struct]
    since: int = 0
    until: int = 99


def questions(subject: Subject, dialect: Dialect) -> Iterator[Question]:
    """All that a broker of this dialect can be asked about the subject."""
    for key, ways in _WAYS.items():
        for way in ways:
            for version in dialect.versions(key):
                if way.since <= version <= way.until:
                    yield Question(api_name(key), version, way.name, way.request(subject, version), subject.group)


def _describe(subject: Subject, version: int) -> Struct:
    return DescribeGroupsRequest(groups=(subject.group,))


def _describe_several(subject: Subject, version: int) -> Struct:
    return DescribeGroupsRequest(groups=(subject.group, f"{subject.group}, never seen"))


def _describe_twice(subject: Subject, version: int) -> Struct:
    return DescribeGroupsRequest(groups=(subject.group, subject.group))


def _describe_operations(subject: Subject, version: int) -> Struct:
    return DescribeGroupsRequest(groups=(subject.group,), include_authorized_operations=True)


def _consumer_describe(subject: Subject, version: int) -> Struct:
    return ConsumerGroupDescribeRequest(
        group_ids=(subject.group, f"{subject.group}, never seen"), include_authorized_operations=False
    )


def _consumer_describe_operations(subject: Subject, version: int) -> Struct:
    return ConsumerGroupDescribeRequest(group_ids=(subject.group,), include_authorized_operations=True)


def _fetch_all(subject: Subject, version: int) -> Struct:
    return _fetch(subject, version, None)


def _fetch_none(subject: Subject, version: int) -> Struct:
    return _fetch(subject, version, ())


def _fetch_named(subject: Subject, version: int) -> Struct:
    return _fetch(subject, version, _named(subject, version))


def _fetch_no_partitions(subject: Subject, version: int) -> Struct:
    return _fetch(subject, version, _asked(subject, version, {subject.topic: (), subject.other: (0,)}))


def _fetch_twice(subject: Subject, version: int) -> Struct:
    topic = _asked(subject, version, {subject.topic: (0, 0)})
    return _fetch(subject, version, (*topic, *topic))


def _fetch_stable(subject: Subject, version: int) -> Struct:
    return replace(_fetch(subject, version, _named(subject, version)), require_stable=True)


def _fetch_all_stable(subject: Subject, version: int) -> Struct:
    return replace(_fetch(subject, version, None), require_stable=True)


def _fetch_several(subject: Subject, version: int) -> Struct:
    groups = (
        OffsetFetchRequestGroup(group_id=subject.group, topics=_named(subject, version)),
        OffsetFetchRequestGroup(group_id=f"{subject.group}, never seen", topics=None),
        OffsetFetchRequestGroup(group_id="", topics=None),
    )
    return OffsetFetchRequest(groups=groups)


def _fetch_as_member(subject: Subject, version: int) -> Struct:
    member, epoch = subject.member or ("somebody", 1)
    return _fetch_by(subject, member, epoch)


def _fetch_in_another_epoch(subject: Subject, version: int) -> Struct:
    member, epoch = subject.member or ("somebody", 1)
    return _fetch_by(subject, member, epoch + 7)


def _fetch_as_stranger(subject: Subject, version: int) -> Struct:
    return _fetch_by(subject, "a stranger", 1)


def _fetch_by(subject: Subject, member: str, epoch: int) -> Struct:
    group = OffsetFetchRequestGroup(group_id=subject.group, member_id=member, member_epoch=epoch, topics=None)
    return OffsetFetchRequest(groups=(group,))


def _fetch(subject: Subject, version: int, topics: Topics) -> OffsetFetchRequest:
    if version <= _LAST_SINGLE:
        return OffsetFetchRequest(group_id=subject.group, topics=topics)
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=subject.group, topics=topics),))


def _named(subject: Subject, version: int) -> tuple[OffsetFetchRequestTopic, ...]:
    """Partitions with and without an offset, one too many, and topics without any and unknown."""
    return _asked(subject, version, {subject.topic: (1, 0, 3, 99), subject.other: (0,), "nowhere": (0,)})


def _asked(
    subject: Subject, version: int, partitions: Mapping[str, tuple[int, ...]]
) -> tuple[OffsetFetchRequestTopic, ...]:
    """Partitions by topic, which newer versions name by id."""
    if version < _FIRST_BY_ID:
        return tuple(OffsetFetchRequestTopic(name=name, partition_indexes=its) for name, its in partitions.items())
    ids = {**subject.topic_ids, "nowhere": _UNKNOWN_ID}
    return tuple(OffsetFetchRequestTopic(topic_id=ids[name], partition_indexes=its) for name, its in partitions.items())


_LAST_SINGLE = 7
_FIRST_BY_ID = 10

_WAYS: Mapping[int, tuple[Way, ...]] = {
    ListGroupsRequest.KEY: (
        Way("", lambda subject, version: ListGroupsRequest()),
        Way("in a state", lambda subject, version: ListGroupsRequest(states_filter=("Stable", "Empty")), since=4),
        Way("in a STATE", lambda subject, version: ListGroupsRequest(states_filter=("STABLE", "empty")), since=4),
        Way("in no state", lambda subject, version: ListGroupsRequest(states_filter=("NoSuchState",)), since=4),
        Way("of a type", lambda subject, version: ListGroupsRequest(types_filter=("classic",)), since=5),
        Way("of a TYPE", lambda subject, version: ListGroupsRequest(types_filter=("Classic",)), since=5),
        Way("of the new type", lambda subject, version: ListGroupsRequest(types_filter=("consumer",)), since=5),
        Way("of no type", lambda subject, version: ListGroupsRequest(types_filter=("nosuchtype",)), since=5),
    ),
    DescribeGroupsRequest.KEY: (
        Way("", _describe),
        Way("several", _describe_several),
        Way("twice", _describe_twice),
        Way("operations", _describe_operations, since=3),
    ),
    OffsetFetchRequest.KEY: (
        Way("all", _fetch_all, since=2),
        Way("none", _fetch_none),
        Way("named", _fetch_named),
        Way("no partitions", _fetch_no_partitions),
        Way("twice", _fetch_twice),
        Way("stable", _fetch_stable, since=7),
        Way("all stable", _fetch_all_stable, since=7),
        Way("several", _fetch_several, since=8),
        Way("as a member", _fetch_as_member, since=9),
        Way("in another epoch", _fetch_in_another_epoch, since=9),
        Way("as a stranger", _fetch_as_stranger, since=9),
    ),
    ConsumerGroupDescribeRequest.KEY: (
        Way("", _consumer_describe),
        Way("operations", _consumer_describe_operations),
    ),
}
