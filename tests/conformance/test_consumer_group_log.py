"""Groups of the new protocols (KIP-848, 932, 1071), read from the offsets topic, are described as the broker does.

The broker returns members, topics, topic names and partitions in the order of its hash tables. It returns groups in the
order of their log partitions. So the tests compare all of these as sets.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition

from group_sidecar.codecs.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest
from group_sidecar.codecs.offsets_topic import KeyType, decode_key
from group_sidecar.coordinator.answers.consumer_group_describe import consumer_group_describe
from group_sidecar.coordinator.log.consumer_groups import consumer_group_from_records
from group_sidecar.coordinator.model.views import ConsumerGroupView, GroupKind, GroupState
from tests.conformance.held_groups import held, population
from tests.conformance.librdkafka import consumer, create_topic, poll_until, settled
from tests.conformance.new_protocol import NewMember, new_member, send, share_member, streams_heartbeat
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.kafka.wire import Wire, ask

NEW: dict[str, Any] = {"group_protocol": "consumer"}
PARTITIONS = 4
VERSIONS = (0, 1)
_BETWEEN_BEATS = 0.05

T = TypeVar("T")


@pytest.fixture(scope="module")
def run(broker: KafkaBroker) -> Run:
    """A run of this module with a direct route to the broker."""
    broker.wait_for_coordinator()
    run = Run(Route("direct", broker.direct, broker.sasl_direct), f"t{secrets.token_hex(5)}")
    for topic in ("topic", "other"):
        create_topic(run, topic, PARTITIONS)
    return run


def described(run: Run, group: str, version: int = 1) -> DescribedGroup:
    """Returns the broker's description of a group."""
    request = ConsumerGroupDescribeRequest(group_ids=(run.name(group),), include_authorized_operations=False)
    answer: ConsumerGroupDescribeResponse = ask(run.route.plain, request, version)
    return answer.groups[0]


def beat_until(condition: Callable[[], bool], what: str, *members: NewMember) -> None:
    """Makes members follow their assignments until a condition is true."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting for {what}"
        for member in members:
            member.follow()
        time.sleep(_BETWEEN_BEATS)


def become(run: Run, group: str, state: GroupState, *members: NewMember) -> None:
    """Makes members follow their assignments until the group is in a state."""
    beat_until(lambda: described(run, group).group_state == state, f"{group} to be {state}", *members)


# Functions that bring a group into a state and hold it there.


def _stable(run: Run, stack: ExitStack, group: str, **settings: Any) -> list[Consumer]:
    members: list[Consumer] = []
    for number in range(2):
        own: dict[str, Any] = {name: f"{value}{number}" for name, value in settings.items()}
        client_id = run.name(f"{group}-{number}")
        members.append(stack.enter_context(consumer(run, group, ["topic"], client_id=client_id, **NEW, **own)))
    poll_until(members, settled(members, PARTITIONS), f"{group} to settle")
    return members


def _static(run: Run, stack: ExitStack, group: str) -> None:
    _stable(run, stack, group, group_instance_id="instance-", client_rack="rack-")


def _static_away(run: Run, stack: ExitStack, group: str) -> None:
    """A static member that announces its return stays a member, with epoch -2."""
    one = stack.enter_context(new_member(run, group, instance_id="one"))
    become(run, group, GroupState.STABLE, one)
    one.beat(member_epoch=-2)


def _pattern(run: Run, stack: ExitStack, group: str) -> None:
    member = stack.enter_context(consumer(run, group, [f"^{run.prefix}-t.*"], **NEW))
    poll_until([member], settled([member], PARTITIONS), f"{group} to settle")


def _pattern_of_the_broker(run: Run, stack: ExitStack, group: str) -> None:
    """The broker resolves a pattern in the background, and reports the topics in a later heartbeat's reply."""
    member = stack.enter_context(new_member(run, group, subscribed_topic_regex=f"{run.prefix}-.*"))
    beat_until(lambda: len(member.target_partitions) == 2, "the pattern's topics", member)
    become(run, group, GroupState.STABLE, member)


def _left(run: Run, stack: ExitStack, group: str) -> None:
    members = _stable(run, stack, group)
    members[0].close()
    poll_until(members[1:], settled(members[1:], PARTITIONS), f"{group} to settle again")


def _empty(run: Run, stack: ExitStack, group: str) -> None:
    with consumer(run, group, ["topic"], **NEW) as member:
        poll_until([member], settled([member], PARTITIONS), f"{group} to settle")
        member.commit(offsets=[TopicPartition(run.name("topic"), 1, 2)], asynchronous=False)


def _two(run: Run, stack: ExitStack, group: str) -> tuple[NewMember, NewMember]:
    """Returns a member that owns all partitions, and a member that has not joined yet."""
    first = stack.enter_context(new_member(run, group))
    become(run, group, GroupState.STABLE, first)
    return first, stack.enter_context(new_member(run, group))


def _assigning(run: Run, stack: ExitStack, group: str) -> None:
    """The second member joins. The broker computes the next target assignment at a later heartbeat (KIP-1263)."""
    _, second = _two(run, stack, group)
    second.beat()


def _unrevoked(run: Run, stack: ExitStack, group: str) -> None:
    """The broker asks the first member to revoke half of the partitions, and the member does not."""
    first, second = _two(run, stack, group)
    second.beat()
    become(run, group, GroupState.RECONCILING, second)
    whole = first.target_partitions
    first.beat(whole)
    assert first.target_partitions != whole, "the broker did not ask the first member to revoke partitions"


def _unreleased(run: Run, stack: ExitStack, group: str) -> None:
    """The second member waits for partitions. The first member does not know yet that it has to revoke them."""
    _, second = _two(run, stack, group)
    second.beat()
    become(run, group, GroupState.RECONCILING, second)


def _assignor(run: Run, stack: ExitStack, group: str) -> None:
    member = stack.enter_context(new_member(run, group, server_assignor="range"))
    become(run, group, GroupState.STABLE, member)


def _upgraded(run: Run, stack: ExitStack, group: str) -> None:
    """The join of a member of the new protocol has converted a classic group to the new protocol."""
    classic = stack.enter_context(held(run, group))
    classic.join()
    classic.sync()
    member = stack.enter_context(new_member(run, group))
    member.beat()


STATES: dict[str, tuple[Callable[[Run, ExitStack, str], object], GroupState]] = {
    "stable": (_stable, GroupState.STABLE),
    "static": (_static, GroupState.STABLE),
    "static-away": (_static_away, GroupState.RECONCILING),
    "pattern": (_pattern, GroupState.STABLE),
    "pattern-of-the-broker": (_pattern_of_the_broker, GroupState.STABLE),
    "left": (_left, GroupState.STABLE),
    "empty": (_empty, GroupState.EMPTY),
    "assigning": (_assigning, GroupState.ASSIGNING),
    "unrevoked": (_unrevoked, GroupState.RECONCILING),
    "unreleased": (_unreleased, GroupState.RECONCILING),
    "assignor": (_assignor, GroupState.STABLE),
    "upgraded": (_upgraded, GroupState.RECONCILING),
}
"""A function for each kind of group, and the state that the broker reports for it."""


# The log, and the comparison.


def logged(run: Run) -> dict[str, dict[bytes, bytes]]:
    """Returns, by group, the latest value of every key of the new protocols in the offsets topic."""
    reader = Consumer({"bootstrap.servers": run.bootstrap, "group.id": "unused", "enable.partition.eof": True})
    try:
        partitions = (
            reader.list_topics("__consumer_offsets", timeout=GIVE_UP_SECONDS).topics["__consumer_offsets"].partitions
        )
        reader.assign([TopicPartition("__consumer_offsets", number, 0) for number in partitions])
        latest: dict[bytes, bytes | None] = {}
        ended: set[int] = set()
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, "the end of the offsets topic was not reached"
            for message in reader.consume(1000, 0.1):
                key, value, partition = message.key(), message.value(), message.partition()
                if message.error() is not None and partition is not None:
                    ended.add(partition)
                elif key is not None:
                    latest[key] = value
    finally:
        reader.close()
    groups: dict[str, dict[bytes, bytes]] = {}
    for key, value in latest.items():
        if value is not None and decode_key(key)[0] > KeyType.GROUP_METADATA:
            groups.setdefault(decode_key(key)[1].group_id, {})[key] = value
    return groups


def held_still(run: Run, group: str, look: Callable[[], T]) -> tuple[dict[int, DescribedGroup], T]:
    """Returns the broker's description in each version, and the result of `look` for the same state of the group."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        before = {version: described(run, group, version) for version in VERSIONS}
        seen = look()
        if before == {version: described(run, group, version) for version in VERSIONS}:
            return before, seen
        assert time.monotonic() < deadline, f"{group} changed during each comparison"


def unordered(group: DescribedGroup) -> DescribedGroup:
    """Returns a group in which each list is sorted if Kafka does not define its order."""

    def sorted_assignment(assignment: Assignment) -> Assignment:
        topics = sorted(assignment.topic_partitions, key=lambda topic: topic.topic_id)
        return Assignment(topic_partitions=tuple(map(sorted_partitions, topics)))

    def sorted_partitions(topic: TopicPartitions) -> TopicPartitions:
        return replace(topic, partitions=tuple(sorted(topic.partitions)))

    def sorted_member(member: Member) -> Member:
        return replace(
            member,
            subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
            assignment=sorted_assignment(member.assignment),
            target_assignment=sorted_assignment(member.target_assignment),
        )

    return replace(group, members=tuple(sorted(map(sorted_member, group.members), key=lambda one: one.member_id)))


def topic_names(run: Run) -> dict[UUID, str]:
    """Returns the names of the broker's topics by id."""
    topics = ask(run.route.plain, MetadataRequest(topics=None), 12).topics
    return {topic.topic_id: topic.name for topic in topics}


def answered(
    views: Mapping[str, ConsumerGroupView | None], version: int, names: Mapping[UUID, str]
) -> tuple[DescribedGroup, ...]:
    """Returns the groups in the sidecar's own answer."""
    request = ConsumerGroupDescribeRequest(group_ids=tuple(views), include_authorized_operations=False)
    reply = consumer_group_describe(request, version, views, names, reports_revoking=True)
    assert reply is not None, "the sidecar lacks data for its own answer"
    return reply.groups


@pytest.mark.parametrize("group", STATES)
def test_group_matches_broker_description(run: Run, group: str) -> None:
    """A consumer group read from the log is described as the broker describes it, in each state."""
    make, state = STATES[group]
    with ExitStack() as stack:
        make(run, stack, group)
        description, records = held_still(run, group, lambda: logged(run)[run.name(group)])
        names = topic_names(run)
    assert description[1].group_state == state
    view = consumer_group_from_records(run.name(group), records)
    assert view.kind is GroupKind.CONSUMER
    for version in VERSIONS:
        assert [unordered(ours) for ours in answered({run.name(group): view}, version, names)] == [
            unordered(description[version])
        ]


def test_deleted_group_has_no_records(run: Run) -> None:
    """A deleted consumer group has no records in the log."""
    with new_member(run, "deleted") as member:
        become(run, "deleted", GroupState.STABLE, member)
    assert logged(run)[run.name("deleted")]
    reply = ask(run.route.plain, DeleteGroupsRequest(groups_names=(run.name("deleted"),)), 2)
    assert [result.error_code for result in reply.results] == [0]
    assert run.name("deleted") not in logged(run)


def test_other_group_kinds_match_broker(run: Run) -> None:
    """ConsumerGroupDescribe of classic, share and missing groups gives the broker's errors."""
    run = replace(run, prefix=f"{run.prefix}k")
    with population(run, ("stable", "simple")), share_member(run, "share"):
        beat_until(lambda: run.name("share") in logged(run), "the share group")
        views: dict[str, ConsumerGroupView | None] = {
            run.name("stable"): ConsumerGroupView(group_id=run.name("stable"), kind=GroupKind.CLASSIC),
            run.name("simple"): ConsumerGroupView(group_id=run.name("simple"), kind=GroupKind.CLASSIC),
            run.name("share"): consumer_group_from_records(run.name("share"), logged(run)[run.name("share")]),
            run.name("nowhere"): None,
            "": None,
        }
        request = ConsumerGroupDescribeRequest(group_ids=tuple(views), include_authorized_operations=False)
        for version in VERSIONS:
            groups = {group.group_id: group for group in ask(run.route.plain, request, version).groups}
            assert {group.group_id: group for group in answered(views, version, {})} == groups


def listed(run: Run, group: str) -> tuple[str, str]:
    """Returns the type and the state with which the broker lists a group."""
    groups = ask(run.route.plain, ListGroupsRequest(states_filter=(), types_filter=()), 5).groups
    return next((one.group_type, one.group_state) for one in groups if one.group_id == run.name(group))


def test_share_groups(run: Run) -> None:
    """A share group read from the log has the kind and state that the broker lists."""

    def told() -> tuple[str, str | None]:
        view = consumer_group_from_records(run.name("shared"), logged(run)[run.name("shared")])
        return view.kind.value, view.state

    with share_member(run, "shared"):
        beat_until(lambda: run.name("shared") in logged(run), "the share group")
        assert told() == listed(run, "shared") == (GroupKind.SHARE, GroupState.STABLE)
    assert told() == listed(run, "shared") == (GroupKind.SHARE, GroupState.EMPTY)


def test_streams_groups(run: Run) -> None:
    """A streams group read from the log has the kind that the broker lists."""
    with Wire(run.route.plain) as wire:
        send(wire, streams_heartbeat(run, "streams"))
        beat_until(lambda: run.name("streams") in logged(run), "the streams group")
        view = consumer_group_from_records(run.name("streams"), logged(run)[run.name("streams")])
        assert view == ConsumerGroupView(group_id=run.name("streams"), kind=GroupKind.STREAMS)
        assert listed(run, "streams")[0] == GroupKind.STREAMS
