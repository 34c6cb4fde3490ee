"""The questions about a group: every version of every API that only reads groups, in each variant."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from group_sidecar.codecs.api_registry import api_name
from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from group_sidecar.codecs.schema import Struct
from tests.kafka.dialect import Dialect

Topics = tuple[OffsetFetchRequestTopic, ...] | None

APIS_ASKED = ("ListGroups", "DescribeGroups", "OffsetFetch", "ConsumerGroupDescribe")
_UNKNOWN_ID = UUID(int=0x1234_5678_9ABC_DEF0)


@dataclass(frozen=True)
class Subject:
    """The group that the questions are about.

    Args:
        group: its name.
        topic: a topic in which it may have offsets.
        other: a topic in which it has no offsets.
        topic_ids: the ids of both topics, if the broker has topic ids.
        member: a member of the new protocol and its epoch, if there is one.
    """

    group: str
    topic: str
    other: str
    topic_ids: Mapping[str, UUID]
    member: tuple[str, int] | None = None


@dataclass(frozen=True)
class Question:
    """One request about a group in one version. `way` distinguishes variants of the same API and version."""

    api: str
    version: int
    way: str
    request: Struct
    group: str = ""

    def __str__(self) -> str:
        return f"{self.api} v{self.version}" + (f" ({self.way})" if self.way else "")


@dataclass(frozen=True)
class RequestVariant:
    """A variant of a question, in the versions from `since` to `until`."""

    name: str
    request: Callable[[Subject, int], Struct]
    since: int = 0
    until: int = 99


def questions(subject: Subject, dialect: Dialect) -> Iterator[Question]:
    """Yields all questions about the subject that a broker with these versions supports."""
    for key, ways in _REQUEST_VARIANTS.items():
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
    """Returns partitions with and without an offset, a partition that does not exist, and empty and unknown topics."""
    return _asked(subject, version, {subject.topic: (1, 0, 3, 99), subject.other: (0,), "nowhere": (0,)})


def _asked(
    subject: Subject, version: int, partitions: Mapping[str, tuple[int, ...]]
) -> tuple[OffsetFetchRequestTopic, ...]:
    """Returns partitions by topic. Newer versions name topics by id."""
    if version < _FIRST_BY_ID:
        return tuple(OffsetFetchRequestTopic(name=name, partition_indexes=its) for name, its in partitions.items())
    ids = {**subject.topic_ids, "nowhere": _UNKNOWN_ID}
    return tuple(OffsetFetchRequestTopic(topic_id=ids[name], partition_indexes=its) for name, its in partitions.items())


_LAST_SINGLE = 7
_FIRST_BY_ID = 10

_REQUEST_VARIANTS: Mapping[int, tuple[RequestVariant, ...]] = {
    ListGroupsRequest.KEY: (
        RequestVariant("", lambda subject, version: ListGroupsRequest()),
        RequestVariant(
            "in a state", lambda subject, version: ListGroupsRequest(states_filter=("Stable", "Empty")), since=4
        ),
        RequestVariant(
            "in a STATE", lambda subject, version: ListGroupsRequest(states_filter=("STABLE", "empty")), since=4
        ),
        RequestVariant(
            "in no state", lambda subject, version: ListGroupsRequest(states_filter=("NoSuchState",)), since=4
        ),
        RequestVariant("of a type", lambda subject, version: ListGroupsRequest(types_filter=("classic",)), since=5),
        RequestVariant("of a TYPE", lambda subject, version: ListGroupsRequest(types_filter=("Classic",)), since=5),
        RequestVariant(
            "of the new type", lambda subject, version: ListGroupsRequest(types_filter=("consumer",)), since=5
        ),
        RequestVariant("of no type", lambda subject, version: ListGroupsRequest(types_filter=("nosuchtype",)), since=5),
    ),
    DescribeGroupsRequest.KEY: (
        RequestVariant("", _describe),
        RequestVariant("several", _describe_several),
        RequestVariant("twice", _describe_twice),
        RequestVariant("operations", _describe_operations, since=3),
    ),
    OffsetFetchRequest.KEY: (
        RequestVariant("all", _fetch_all, since=2),
        RequestVariant("none", _fetch_none),
        RequestVariant("named", _fetch_named),
        RequestVariant("no partitions", _fetch_no_partitions),
        RequestVariant("twice", _fetch_twice),
        RequestVariant("stable", _fetch_stable, since=7),
        RequestVariant("all stable", _fetch_all_stable, since=7),
        RequestVariant("several", _fetch_several, since=8),
        RequestVariant("as a member", _fetch_as_member, since=9),
        RequestVariant("in another epoch", _fetch_in_another_epoch, since=9),
        RequestVariant("as a stranger", _fetch_as_stranger, since=9),
    ),
    ConsumerGroupDescribeRequest.KEY: (
        RequestVariant("", _consumer_describe),
        RequestVariant("operations", _consumer_describe_operations),
    ),
}
