"""The state that follows from the records of a group of the new protocols, and its ConsumerGroupDescribe reply."""

from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from group_sidecar.codecs.messages.consumer_group_describe import TopicPartitions as ToldPartitions
from group_sidecar.codecs.offsets_topic import (
    GroupKey,
    KeyType,
    MemberKey,
    RegularExpressionKey,
    UnknownKeyType,
    encode_key,
    encode_value,
)
from group_sidecar.codecs.offsets_topic_values import (
    CLASSIC_MEMBER_METADATA_TAG,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answers.consumer_group_describe import consumer_group_describe
from group_sidecar.coordinator.log.consumer_groups import consumer_group_from_records
from group_sidecar.coordinator.model.views import ConsumerGroupView, ConsumerMemberView, GroupKind, GroupState
from group_sidecar.coordinator.state.logged_state import DecodedMember

TOPIC, OTHER = UUID(int=1), UUID(int=2)
NAMES = {TOPIC: "topic", OTHER: "other"}
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = 0, 1, 2, 127
"""Kafka's ``MemberState``."""
NEW, CLASSIC = ((CLASSIC_MEMBER_METADATA_TAG, b"\0"),), ()


@dataclass
class Log:
    """The records of one group, as Kafka writes them."""

    records: dict[bytes, bytes] = field(default_factory=dict)

    def put(self, kind: KeyType, key: GroupKey | MemberKey | RegularExpressionKey, value: Struct) -> "Log":
        self.records[encode_key(kind, key)] = encode_value(value, 0)
        return self

    def group(self, epoch: int, assignment_epoch: int | None) -> "Log":
        key = GroupKey(group_id="g")
        self.put(KeyType.CONSUMER_GROUP_METADATA, key, ConsumerGroupMetadataValue(epoch=epoch))
        if assignment_epoch is not None:
            target = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=assignment_epoch)
            self.put(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, key, target)
        return self

    def member(self, name: str, *, assignor: str | None = None, tags: tuple[tuple[int, bytes], ...] = NEW) -> "Log":
        known = ConsumerGroupMemberMetadataValue(
            instance_id=f"instance-{name}",
            rack_id=f"rack-{name}",
            client_id=f"client-{name}",
            client_host="/10.0.0.1",
            subscribed_topic_names=("topic", "other"),
            subscribed_topic_regex="t.*",
            server_assignor=assignor,
            unknown_tags=tags,
        )
        return self.put(KeyType.CONSUMER_GROUP_MEMBER_METADATA, MemberKey(group_id="g", member_id=name), known)

    def current(self, name: str, epoch: int, state: int = STABLE) -> "Log":
        current = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=0,
            state=state,
            assigned_partitions=(
                TopicPartitions(topic_id=TOPIC, partitions=(3, 1)),
                TopicPartitions(topic_id=OTHER, partitions=(0,)),
            ),
            partitions_pending_revocation=(TopicPartitions(topic_id=TOPIC, partitions=(2,)),),
        )
        key = MemberKey(group_id="g", member_id=name)
        return self.put(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, current)

    def target(self, name: str) -> "Log":
        target = ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(TopicPartition(topic_id=TOPIC, partitions=(4, 1)),)
        )
        key = MemberKey(group_id="g", member_id=name)
        return self.put(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key, target)

    def read(self) -> ConsumerGroupView:
        return consumer_group_from_records("g", self.records)


def whole() -> Log:
    """Returns the log of a group with two members and all kinds of records."""
    log = Log().group(7, 6)
    for name in ("b", "a"):
        log.member(name, assignor="range").current(name, 5, UNREVOKED).target(name)
    return log.member("b", tags=CLASSIC)


def test_view_contains_all_record_fields() -> None:
    """consumer_group_from_records puts all fields of a group's records into the view."""
    view = whole().read()
    assert replace(view, members=()) == ConsumerGroupView(
        group_id="g",
        kind=GroupKind.CONSUMER,
        state=GroupState.ASSIGNING,
        epoch=7,
        assignment_epoch=6,
        assignors=("range",),
    )
    first, second = view.members
    assert first == ConsumerMemberView(
        member_id="a",
        instance_id="instance-a",
        rack_id="rack-a",
        epoch=5,
        client_id="client-a",
        client_host="/10.0.0.1",
        broker_host="/10.0.0.1",
        subscribed_topic_names=("topic", "other"),
        subscribed_topic_regex="t.*",
        server_assignor="range",
        assignment={TOPIC: (1, 3), OTHER: (0,)},
        revoking={TOPIC: (2,)},
        target_assignment={TOPIC: (1, 4)},
        reconciled=False,
    )
    assert (second.member_id, second.classic, second.server_assignor) == ("b", True, None)


@pytest.mark.parametrize("changed", ["member", "current", "target"])
def test_only_changed_members_are_decoded(changed: str) -> None:
    """A change of one member's record leaves the other members as they were decoded before."""
    log, decoded = whole(), dict[str, DecodedMember]()
    before = consumer_group_from_records("g", log.records, decoded)
    assert consumer_group_from_records("g", log.records, decoded).members[0] is before.members[0]
    if changed == "member":
        log.member("b", assignor="uniform")
    elif changed == "current":
        log.current("b", 9)
    else:
        log.records.pop(
            encode_key(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, MemberKey(group_id="g", member_id="b"))
        )
    after = consumer_group_from_records("g", log.records, decoded)
    assert after == log.read() != before
    assert after.members[0] is before.members[0]


def test_removed_member_is_not_kept() -> None:
    """A member without metadata in the log is neither in the view nor kept for later."""
    log, decoded = whole(), dict[str, DecodedMember]()
    consumer_group_from_records("g", log.records, decoded)
    del log.records[encode_key(KeyType.CONSUMER_GROUP_MEMBER_METADATA, MemberKey(group_id="g", member_id="a"))]
    assert consumer_group_from_records("g", log.records, decoded) == log.read()
    assert decoded.keys() == {"b"}


def test_record_order_does_not_matter() -> None:
    """consumer_group_from_records returns the same view for records in reverse order."""
    records = whole().records
    assert consumer_group_from_records("g", dict(reversed(records.items()))) == consumer_group_from_records(
        "g", records
    )


@pytest.mark.parametrize(
    ("log", "state"),
    [
        pytest.param(Log().group(3, 3), GroupState.EMPTY, id="nobody"),
        pytest.param(Log().group(4, 3), GroupState.EMPTY, id="nobody, and nothing assigned for it"),
        pytest.param(Log().group(1, None).member("a"), GroupState.ASSIGNING, id="never assigned"),
        pytest.param(Log().group(4, 3).member("a").current("a", 3), GroupState.ASSIGNING, id="assigned before"),
        pytest.param(Log().group(4, 4).member("a").current("a", 4), GroupState.STABLE, id="arrived"),
        pytest.param(Log().group(4, 4).member("a").current("a", 3), GroupState.RECONCILING, id="behind"),
        pytest.param(Log().group(4, 4).member("a").current("a", -2), GroupState.RECONCILING, id="away"),
        pytest.param(Log().group(4, 4).member("a"), GroupState.RECONCILING, id="no assignment yet"),
        pytest.param(Log().group(4, 4).member("a").current("a", 4, UNREVOKED), GroupState.RECONCILING, id="unrevoked"),
        pytest.param(
            Log().group(4, 4).member("a").current("a", 4, UNRELEASED), GroupState.RECONCILING, id="unreleased"
        ),
        pytest.param(Log().group(4, 4).member("a").current("a", 4, UNKNOWN), GroupState.RECONCILING, id="unknown"),
        pytest.param(
            Log().group(4, 4).member("a").current("a", 4).member("b").current("b", 3), GroupState.RECONCILING, id="one"
        ),
    ],
)
def test_states(log: Log, state: GroupState) -> None:
    """The state of a consumer group follows from its epochs, its members' epochs and its members' states."""
    assert log.read().state is state


def test_target_assignment_alone_is_no_member() -> None:
    """A target assignment without a member record adds no member to the view."""
    assert Log().group(4, 4).target("a").read().members == ()


def test_preferred_assignors() -> None:
    """The view contains the assignors that most members prefer, all of them if several are tied."""
    log = Log().group(1, 1).member("a")
    assert log.read().assignors == ()
    log.member("b", assignor="uniform").member("c", assignor="range")
    assert log.read().assignors == ("range", "uniform")
    log.member("d", assignor="range")
    assert log.read().assignors == ("range",)


def test_regex_record_makes_consumer_group() -> None:
    """A regular expression record alone makes an empty consumer group with epoch 0."""
    key = RegularExpressionKey(group_id="g", regular_expression="t.*")
    value = ConsumerGroupRegularExpressionValue(topics=("topic",), version=1, timestamp=2)
    view = Log().put(KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION, key, value).read()
    assert (view.kind, view.state, view.epoch) == (GroupKind.CONSUMER, GroupState.EMPTY, 0)


def key_of(kind: KeyType, key: GroupKey | MemberKey) -> bytes:
    return encode_key(kind, key)


def test_share_and_streams_keys_set_kind() -> None:
    """Record keys alone identify share groups and streams groups, and a member key makes a share group stable."""
    group, member = GroupKey(group_id="g"), MemberKey(group_id="g", member_id="m")
    share = {
        key_of(KeyType.SHARE_GROUP_METADATA, group): b"any",
        key_of(KeyType.SHARE_GROUP_STATE_PARTITION_METADATA, group): b"",
    }
    assert consumer_group_from_records("g", share) == ConsumerGroupView(
        group_id="g", kind=GroupKind.SHARE, state=GroupState.EMPTY
    )
    share[key_of(KeyType.SHARE_GROUP_MEMBER_METADATA, member)] = b"any"
    assert consumer_group_from_records("g", share).state is GroupState.STABLE
    streams = {key_of(KeyType.STREAMS_GROUP_MEMBER_METADATA, member): b"any"}
    assert consumer_group_from_records("g", streams) == ConsumerGroupView(group_id="g", kind=GroupKind.STREAMS)


def test_unreadable_records_raise() -> None:
    """consumer_group_from_records raises an error for no records, an unknown key type and a malformed value."""
    with pytest.raises(ValueError, match="group g has no records"):
        consumer_group_from_records("g", {})
    with pytest.raises(UnknownKeyType):
        consumer_group_from_records("g", {b"\0\x63\0\1g": b""})
    with pytest.raises(DecodeError, match="ConsumerGroupMetadataValue"):
        consumer_group_from_records(
            "g", {encode_key(KeyType.CONSUMER_GROUP_METADATA, GroupKey(group_id="g")): b"\0\0\0"}
        )


def describe(
    views: dict[str, ConsumerGroupView | None],
    version: int = 1,
    names: dict[UUID, str] = NAMES,
    *,
    default: str | None = "the default",
    explains: bool = True,
    reports_revoking: bool | None = True,
    operations: bool = False,
) -> ConsumerGroupDescribeResponse | None:
    request = ConsumerGroupDescribeRequest(group_ids=tuple(views), include_authorized_operations=operations)
    return consumer_group_describe(
        request, version, views, names, default, sends_error_messages=explains, reports_revoking=reports_revoking
    )


def test_described_group_fields() -> None:
    """ConsumerGroupDescribe reports all fields of a group and its members, and adds partitions being revoked to the
    assignment.
    """
    reply = describe({"g": whole().read()})
    assert reply is not None
    (group,) = reply.groups
    assert replace(group, members=()) == DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Assigning",
        group_epoch=7,
        assignment_epoch=6,
        assignor_name="range",
        members=(),
    )
    assert group.members[0] == Member(
        member_id="a",
        instance_id="instance-a",
        rack_id="rack-a",
        member_epoch=5,
        client_id="client-a",
        client_host="/10.0.0.1",
        subscribed_topic_names=("topic", "other"),
        subscribed_topic_regex="t.*",
        assignment=Assignment(
            topic_partitions=(
                ToldPartitions(topic_id=TOPIC, topic_name="topic", partitions=(1, 2, 3)),
                ToldPartitions(topic_id=OTHER, topic_name="other", partitions=(0,)),
            )
        ),
        target_assignment=Assignment(
            topic_partitions=(ToldPartitions(topic_id=TOPIC, topic_name="topic", partitions=(1, 4)),)
        ),
        member_type=1,
    )
    assert [member.member_type for member in group.members] == [1, 0]


def test_version_0_has_no_member_types() -> None:
    """ConsumerGroupDescribe v0 reports member type -1 for each member."""
    reply = describe({"g": whole().read()}, version=0)
    assert reply is not None
    assert [member.member_type for member in reply.groups[0].members] == [-1, -1]


def test_default_assignor_without_preference() -> None:
    """ConsumerGroupDescribe reports the default assignor if no member prefers an assignor."""
    reply = describe({"g": Log().group(1, 1).member("a").read()})
    assert reply is not None
    assert reply.groups[0].assignor_name == "the default"


def test_other_group_kinds_get_error() -> None:
    """ConsumerGroupDescribe reports an error for classic, share, streams and unknown groups and an empty group id."""
    kinds = {kind.value: ConsumerGroupView(group_id=kind.value, kind=kind) for kind in GroupKind}
    del kinds["consumer"]
    reply = describe({**kinds, "nowhere": None, "": None})
    assert reply is not None
    assert [(group.group_id, group.error_code, group.error_message) for group in reply.groups] == [
        ("classic", 69, "Group classic is not a consumer group."),
        ("share", 69, "Group share is not a consumer group."),
        ("streams", 69, "Group streams is not a consumer group."),
        ("nowhere", 69, "Group nowhere not found."),
        ("", 24, None),
    ]
    assert {(group.group_state, group.assignor_name, group.members) for group in reply.groups} == {("", "", ())}


def test_error_message_depends_on_broker() -> None:
    """Without broker support for error messages, an unknown group has no error message and an empty group id yields no
    reply.
    """
    reply = describe({"nowhere": None}, explains=False)
    assert reply is not None
    assert (reply.groups[0].error_code, reply.groups[0].error_message) == (69, None)
    assert describe({"": None}, explains=False) is None


def test_revoking_partitions_only_if_reported() -> None:
    """Partitions being revoked are missing from the assignment if the broker does not report them."""
    reply = describe({"g": whole().read()}, reports_revoking=False)
    assert reply is not None
    assert reply.groups[0].members[0].assignment.topic_partitions[0].partitions == (1, 3)


def test_revoked_topic_appears_in_assignment() -> None:
    """A topic with only partitions being revoked appears in the member's assignment."""
    view = whole().read()
    member = replace(view.members[0], assignment={}, revoking={OTHER: (1,)})
    reply = describe({"g": replace(view, members=(member,))})
    assert reply is not None
    assert reply.groups[0].members[0].assignment.topic_partitions == (
        ToldPartitions(topic_id=OTHER, topic_name="other", partitions=(1,)),
    )


def test_unknown_field_yields_no_reply() -> None:
    """ConsumerGroupDescribe yields no reply if authorized operations, the assignor, a topic name or the reporting of
    revocations are unknown.
    """
    view = whole().read()
    tied = replace(view, assignors=("range", "uniform"))
    assert describe({"g": view}, operations=True) is None
    assert describe({"g": view, "h": tied}) is None
    assert describe({"g": replace(view, assignors=())}, default=None) is None
    assert describe({"g": Log().group(3, 3).read()}, default="") is None
    assert describe({"g": view}, names={TOPIC: "topic"}) is None
    assert describe({"g": view}, reports_revoking=None) is None
    settled = replace(view, members=tuple(replace(member, revoking={}) for member in view.members))
    assert describe({"g": settled}, reports_revoking=None) is not None
    only_target = replace(view, members=tuple(replace(member, assignment={}, revoking={}) for member in view.members))
    assert describe({"g": only_target}, names={OTHER: "other"}) is None
    only_revoking = replace(view, members=tuple(replace(m, assignment={}, target_assignment={}) for m in view.members))
    assert describe({"g": only_revoking}, names={OTHER: "other"}) is None
