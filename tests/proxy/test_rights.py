"""What the broker granted: remembered for a time, never more than it said, and never for anybody else."""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import pytest

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.proxy.principals import Principal
from group_sidecar.proxy.rights import SETTLING_SECONDS, TRIMMED_AT_ONCE, Operation, Right, Rights, needed, shown
from tests.proxy.playbook import EPOCH, certain_copy, settled
from tests.proxy.test_answering import COMMITTED, committing

ALICE, BOB = Principal("SCRAM-SHA-256", b"n,,n=alice"), Principal("SCRAM-SHA-256", b"n,,n=bob")
LIST: Right = (Operation.LIST, "")
TOPIC_ID = UUID(int=7)


def group(name: str) -> Right:
    return Operation.DESCRIBE_GROUP, name


def topic(name: str | UUID) -> Right:
    return Operation.DESCRIBE_TOPIC, name


def listed(name: str) -> Right:
    return Operation.LIST_GROUP, name


# The table.


def table(seconds: float = 30, most: int = 100) -> tuple[Rights, Traffic]:
    traffic = Traffic()
    return Rights(seconds, most, traffic), traffic


def test_what_was_granted_is_held_by_whom_it_was_granted_to_until_it_runs_out() -> None:
    rights, _ = table()
    rights.grant(ALICE, [group("a"), topic("t")], 1000)
    assert rights.hold(ALICE, [group("a"), topic("t")], 1029.9)
    assert not rights.hold(ALICE, [group("a")], 1030)
    assert not rights.hold(ALICE, [group("a"), group("b")], 1000)
    assert not rights.hold(BOB, [group("a")], 1000)
    assert not rights.hold(ALICE, [topic("a")], 1000)


def test_a_grant_counts_from_the_latest_question() -> None:
    rights, traffic = table()
    for asked_at in (1000, 1020, 1010):
        rights.grant(ALICE, [group("a")], asked_at)
    assert rights.hold(ALICE, [group("a")], 1049)
    assert not rights.hold(ALICE, [group("a")], 1050)
    assert traffic.remembered_rights == 1


def test_with_no_seconds_nothing_is_remembered() -> None:
    rights, traffic = table(seconds=0)
    rights.grant(ALICE, [group("a")], 1000)
    assert not rights.hold(ALICE, [group("a")], 1000)
    assert traffic.remembered_rights == 0


def held(rights: Rights, who: Principal, names: Iterable[str]) -> list[str]:
    return [name for name in names if rights.hold(who, [group(name)], 1010)]


def test_the_oldest_grants_go() -> None:
    rights, traffic = table(most=3)
    for asked_at, (who, name) in enumerate([(ALICE, "a"), (ALICE, "b"), (BOB, "c"), (ALICE, "a"), (ALICE, "d")], 1000):
        rights.grant(who, [group(name)], asked_at)
    assert traffic.remembered_rights == 3
    assert (held(rights, ALICE, "abcd"), held(rights, BOB, "abcd")) == (["a", "b", "d"], [])
    rights.grant(BOB, [group("e")], 1009)
    assert (held(rights, ALICE, "abd"), held(rights, BOB, "e")) == (["a", "d"], ["e"])


def test_what_has_run_out_makes_room() -> None:
    rights, traffic = table()
    rights.grant(ALICE, [group("a"), group("b")], 1000)
    rights.grant(BOB, [group("a")], 1031)
    assert traffic.remembered_rights == 1


def test_one_reply_drops_few_grants_that_have_run_out() -> None:
    """200,000 of them took 0.2 seconds at once."""
    rights, traffic = table(most=100_000)
    rights.grant(ALICE, [group(str(number)) for number in range(2 * TRIMMED_AT_ONCE + 1)], 1000)
    for left in (TRIMMED_AT_ONCE + 2, 2, 1):
        rights.grant(BOB, [group("a")], 1031)
        assert traffic.remembered_rights == left
        assert not rights.hold(ALICE, [group(str(2 * TRIMMED_AT_ONCE))], 1031)


def test_a_principal_is_forgotten_alone() -> None:
    rights, traffic = table()
    rights.grant(ALICE, [group("a"), group("b")], 1000)
    rights.grant(BOB, [group("a")], 1000)
    rights.drop(ALICE)
    rights.drop(ALICE)
    assert (held(rights, ALICE, "ab"), held(rights, BOB, "a")) == ([], ["a"])
    assert traffic.remembered_rights == 1
    rights.forget()
    assert (held(rights, BOB, "a"), traffic.remembered_rights) == ([], 0)


def test_a_change_of_the_rules_ends_all_grants_and_for_a_while_none_is_remembered() -> None:
    rights, _ = table()
    rights.grant(ALICE, [group("a")], 1000)
    rights.rules_change()
    rights.rules_change()
    assert held(rights, ALICE, "a") == []
    rights.rules_changed(1001)
    rights.grant(ALICE, [group("a")], 1002 + SETTLING_SECONDS)
    assert held(rights, ALICE, "a") == []  # Another change is under way.
    rights.rules_changed(1002)
    found = []
    for asked_at in (1001, 1002, 1001.9 + SETTLING_SECONDS, 1002 + SETTLING_SECONDS):
        rights.grant(ALICE, [group("a")], asked_at)
        found.append(held(rights, ALICE, "a"))
    assert found == [[], [], [], ["a"]]


# What replies grant.


def exchange(question: Struct, version: int) -> Exchange:
    return Exchange(
        request=question,
        version=version,
        token="1:1",
        client_id="c",
        client_host="/h",
        sent_at=0,
        names={TOPIC_ID: "named"},
    )


def partitions(*errors: int) -> tuple[OffsetFetchResponsePartition, ...]:
    return tuple(
        OffsetFetchResponsePartition(partition_index=n, committed_offset=n, metadata="", error_code=error)
        for n, error in enumerate(errors)
    )


def answered(name: str, *errors: int, topic_id: UUID = ZERO_UUID) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(name=name, topic_id=topic_id, partitions=partitions(*errors))


def granted(question: Struct, version: int, answer: Struct) -> set[Right]:
    return set(shown(exchange(question, version), answer))


def test_a_listing_grants_to_be_listed_and_no_more() -> None:
    answer = ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="a", protocol_type=""),))
    assert granted(ListGroupsRequest(), 4, answer) == {LIST, listed("a")}
    assert granted(ListGroupsRequest(), 0, replace(answer, error_code=31)) == set()


def described(name: str, error: int = 0) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, group_id=name, group_state="Empty", protocol_type="", protocol_data="", members=()
    )


@pytest.mark.parametrize(
    ("error", "grants"), [(0, True), (69, True), (30, False), (14, False), (15, False), (16, False)]
)
def test_a_description_grants_what_it_tells(error: int, grants: bool) -> None:
    answer = DescribeGroupsResponse(groups=(described("a"), described("b", error)))
    assert granted(DescribeGroupsRequest(groups=("a", "b")), 6, answer) == {
        group("a"),
        *([group("b")] if grants else []),
    }


@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_grant_the_group_and_the_topics_that_are_told(version: int) -> None:
    question = OffsetFetchRequest(group_id="a", topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),))
    answer = OffsetFetchResponse(
        topics=(answered("t", 0, 0), answered("u", 29), answered("v", 88, 0), answered("w", 88), answered("x"))
    )
    assert granted(question, version, answer) == {group("a"), topic("t"), topic("v")}


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize("error", [30, 14, 15, 16])
def test_an_error_of_the_group_grants_nothing(version: int, error: int) -> None:
    answer = OffsetFetchResponse(error_code=error, topics=(answered("t", 0),))
    assert granted(OffsetFetchRequest(group_id="a", topics=None), version, answer) == set()


def test_all_that_the_oldest_form_tells_where_nothing_was_named_grants_the_group_only() -> None:
    """Brokers before 0.10.2 then do not look at who may see the topics."""
    answer = OffsetFetchResponse(topics=(answered("t", 0, 0),))
    assert granted(OffsetFetchRequest(group_id="a"), 1, answer) == {group("a")}


@pytest.mark.parametrize("errors", [(30, 30), (16,), ()])
def test_the_oldest_form_has_the_groups_error_on_each_partition(errors: tuple[int, ...]) -> None:
    answer = OffsetFetchResponse(topics=(answered("t", *errors),))
    assert granted(OffsetFetchRequest(group_id="a"), 1, answer) == set()


def test_what_zookeeper_tells_grants_nothing() -> None:
    answer = OffsetFetchResponse(topics=(answered("t", 0),))
    assert granted(OffsetFetchRequest(group_id="a"), 0, answer) == set()


@pytest.mark.parametrize("version", [8, 9])
def test_many_groups_are_granted_one_by_one(version: int) -> None:
    answer = OffsetFetchResponse(
        groups=(
            OffsetFetchResponseGroup(group_id="a", topics=(answered("t", 0), answered("u", 29))),
            OffsetFetchResponseGroup(group_id="b", topics=(answered("v", 0),), error_code=30),
            OffsetFetchResponseGroup(group_id="c", topics=()),
        )
    )
    assert granted(OffsetFetchRequest(), version, answer) == {group("a"), topic("t"), group("c")}


def test_topics_by_id_are_granted_by_name_where_that_is_known() -> None:
    other = UUID(int=8)
    topics = (answered("", 0, topic_id=TOPIC_ID), answered("", 0, topic_id=other), answered("", 100, topic_id=TOPIC_ID))
    answer = OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="a", topics=topics),))
    assert granted(OffsetFetchRequest(), 10, answer) == {group("a"), topic("named"), topic(other)}


# What answers need.


def asked(name: str = "", topic_id: UUID = ZERO_UUID) -> OffsetFetchRequestTopic:
    return OffsetFetchRequestTopic(name=name, topic_id=topic_id, partition_indexes=(0,))


def many(*groups: tuple[str, tuple[OffsetFetchRequestTopic, ...] | None]) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=g, topics=t) for g, t in groups))


@pytest.mark.parametrize(
    ("question", "version", "needs"),
    [
        (ListGroupsRequest(), 4, {LIST, listed("g"), listed("h")}),
        (ListGroupsRequest(states_filter=("Stable",)), 4, {LIST, listed("g"), listed("h")}),
        (DescribeGroupsRequest(groups=("g", "x")), 5, {group("g"), group("x")}),
        (OffsetFetchRequest(group_id="g", topics=(asked("t"), asked("u"))), 7, {group("g"), topic("t"), topic("u")}),
        (OffsetFetchRequest(group_id="g", topics=None), 2, {group("g"), topic("t")}),
        (OffsetFetchRequest(group_id="h", topics=None), 7, {group("h")}),
        (many(("g", None), ("x", (asked("u"),))), 8, {group("g"), topic("t"), group("x"), topic("u")}),
        (
            many(("x", (asked("", TOPIC_ID), asked("", UUID(int=8))))),
            10,
            {group("x"), topic("named"), topic(UUID(int=8))},
        ),
        (
            ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False),
            1,
            {(Operation.OTHER, "")},
        ),
    ],
)
def test_an_answer_needs_all_that_the_copy_would_tell(question: Struct, version: int, needs: set[Right]) -> None:
    copy = certain_copy()
    (line,) = settled(copy, "m1")
    settled(copy, "m2", group="h")
    line.exchange(committing(42), COMMITTED, 7)
    assert set(needed(exchange(question, version), copy.manager, EPOCH + 100)) == needs
