"""Tests that grants are cached for a time, for one principal, and never exceed what the broker granted."""

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
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.authorization_cache import (
    MAX_TRIMMED_AT_ONCE,
    RULE_CHANGE_SECONDS,
    AuthorizationCache,
    Operation,
    Right,
    granted_rights,
    required_rights,
)
from group_sidecar.proxy.broker.client_principals import Principal
from tests.proxy.dataplane.playbook import EPOCH, complete_state, stable_group
from tests.proxy.handlers.test_local_answers import COMMITTED, committing

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


def table(seconds: float = 30, max_grants: int = 100) -> tuple[AuthorizationCache, TrafficCounters]:
    traffic = TrafficCounters()
    return AuthorizationCache(seconds, max_grants, traffic), traffic


def test_grant_is_per_principal_and_expires() -> None:
    """A grant counts for its principal and its rights until it expires."""
    rights, _ = table()
    rights.grant(ALICE, [group("a"), topic("t")], 1000)
    assert rights.has_all(ALICE, [group("a"), topic("t")], 1029.9)
    assert not rights.has_all(ALICE, [group("a")], 1030)
    assert not rights.has_all(ALICE, [group("a"), group("b")], 1000)
    assert not rights.has_all(BOB, [group("a")], 1000)
    assert not rights.has_all(ALICE, [topic("a")], 1000)


def test_latest_request_extends_grant() -> None:
    """A grant counts from the latest of its requests."""
    rights, traffic = table()
    for asked_at in (1000, 1020, 1010):
        rights.grant(ALICE, [group("a")], asked_at)
    assert rights.has_all(ALICE, [group("a")], 1049)
    assert not rights.has_all(ALICE, [group("a")], 1050)
    assert traffic.cached_authorizations == 1


def test_zero_seconds_disable_cache() -> None:
    """With a lifetime of zero, no grant is cached."""
    rights, traffic = table(seconds=0)
    rights.grant(ALICE, [group("a")], 1000)
    assert not rights.has_all(ALICE, [group("a")], 1000)
    assert traffic.cached_authorizations == 0


def held(rights: AuthorizationCache, who: Principal, names: Iterable[str]) -> list[str]:
    return [name for name in names if rights.has_all(who, [group(name)], 1010)]


def test_oldest_grants_are_evicted() -> None:
    """Above the limit, the oldest grants are evicted."""
    rights, traffic = table(max_grants=3)
    for asked_at, (who, name) in enumerate([(ALICE, "a"), (ALICE, "b"), (BOB, "c"), (ALICE, "a"), (ALICE, "d")], 1000):
        rights.grant(who, [group(name)], asked_at)
    assert traffic.cached_authorizations == 3
    assert (held(rights, ALICE, "abcd"), held(rights, BOB, "abcd")) == (["a", "b", "d"], [])
    rights.grant(BOB, [group("e")], 1009)
    assert (held(rights, ALICE, "abd"), held(rights, BOB, "e")) == (["a", "d"], ["e"])


def test_expired_grants_are_removed() -> None:
    """Expired grants are removed when a new one is added."""
    rights, traffic = table()
    rights.grant(ALICE, [group("a"), group("b")], 1000)
    rights.grant(BOB, [group("a")], 1031)
    assert traffic.cached_authorizations == 1


def test_expired_grants_are_removed_in_parts() -> None:
    """One new grant removes a bounded number of expired grants, because many at once take long."""
    rights, traffic = table(max_grants=100_000)
    rights.grant(ALICE, [group(str(number)) for number in range(2 * MAX_TRIMMED_AT_ONCE + 1)], 1000)
    for left in (MAX_TRIMMED_AT_ONCE + 2, 2, 1):
        rights.grant(BOB, [group("a")], 1031)
        assert traffic.cached_authorizations == left
        assert not rights.has_all(ALICE, [group(str(2 * MAX_TRIMMED_AT_ONCE))], 1031)


def test_principal_is_forgotten_alone() -> None:
    """A principal can be forgotten alone, and all principals together."""
    rights, traffic = table()
    rights.grant(ALICE, [group("a"), group("b")], 1000)
    rights.grant(BOB, [group("a")], 1000)
    rights.forget_principal(ALICE)
    rights.forget_principal(ALICE)
    assert (held(rights, ALICE, "ab"), held(rights, BOB, "a")) == ([], ["a"])
    assert traffic.cached_authorizations == 1
    rights.forget()
    assert (held(rights, BOB, "a"), traffic.cached_authorizations) == ([], 0)


def test_rule_change_suspends_grants() -> None:
    """A change of access rules ends all grants, and no grant counts until some time after its end."""
    rights, _ = table()
    rights.grant(ALICE, [group("a")], 1000)
    rights.begin_rule_change()
    rights.begin_rule_change()
    assert held(rights, ALICE, "a") == []
    rights.end_rule_change(1001)
    rights.grant(ALICE, [group("a")], 1002 + RULE_CHANGE_SECONDS)
    assert held(rights, ALICE, "a") == []  # The other change has not ended.
    rights.end_rule_change(1002)
    found = []
    for asked_at in (1001, 1002, 1001.9 + RULE_CHANGE_SECONDS, 1002 + RULE_CHANGE_SECONDS):
        rights.grant(ALICE, [group("a")], asked_at)
        found.append(held(rights, ALICE, "a"))
    assert found == [[], [], [], ["a"]]


# Rights that replies prove.


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
    return set(granted_rights(exchange(question, version), answer))


def test_listing_grants_only_listing() -> None:
    """A list of groups grants the right to list these groups and nothing else."""
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
def test_description_grants_described_groups(error: int, grants: bool) -> None:
    """A description grants each group that it describes without a denial or coordinator error."""
    answer = DescribeGroupsResponse(groups=(described("a"), described("b", error)))
    assert granted(DescribeGroupsRequest(groups=("a", "b")), 6, answer) == {
        group("a"),
        *([group("b")] if grants else []),
    }


@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_grant_group_and_topics(version: int) -> None:
    """A reply with offsets grants the group and each topic with at least one partition without an error."""
    question = OffsetFetchRequest(group_id="a", topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),))
    answer = OffsetFetchResponse(
        topics=(answered("t", 0, 0), answered("u", 29), answered("v", 88, 0), answered("w", 88), answered("x"))
    )
    assert granted(question, version, answer) == {group("a"), topic("t"), topic("v")}


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize("error", [30, 14, 15, 16])
def test_group_error_grants_nothing(version: int, error: int) -> None:
    """A reply with a group error grants nothing."""
    answer = OffsetFetchResponse(error_code=error, topics=(answered("t", 0),))
    assert granted(OffsetFetchRequest(group_id="a", topics=None), version, answer) == set()


def test_offset_fetch_v1_grants_group_only() -> None:
    """OffsetFetch version 1 without named topics grants the group only, because old brokers do not check its topics."""
    answer = OffsetFetchResponse(topics=(answered("t", 0, 0),))
    assert granted(OffsetFetchRequest(group_id="a"), 1, answer) == {group("a")}


@pytest.mark.parametrize("errors", [(30, 30), (16,), ()])
def test_offset_fetch_v1_has_partition_errors(errors: tuple[int, ...]) -> None:
    """In OffsetFetch version 1, the group's error on each partition prevents a grant."""
    answer = OffsetFetchResponse(topics=(answered("t", *errors),))
    assert granted(OffsetFetchRequest(group_id="a"), 1, answer) == set()


def test_zookeeper_offsets_grant_nothing() -> None:
    """Offsets from ZooKeeper grant nothing."""
    answer = OffsetFetchResponse(topics=(answered("t", 0),))
    assert granted(OffsetFetchRequest(group_id="a"), 0, answer) == set()


@pytest.mark.parametrize("version", [8, 9])
def test_batched_groups_are_granted_separately(version: int) -> None:
    """A reply with several groups grants each group separately."""
    answer = OffsetFetchResponse(
        groups=(
            OffsetFetchResponseGroup(group_id="a", topics=(answered("t", 0), answered("u", 29))),
            OffsetFetchResponseGroup(group_id="b", topics=(answered("v", 0),), error_code=30),
            OffsetFetchResponseGroup(group_id="c", topics=()),
        )
    )
    assert granted(OffsetFetchRequest(), version, answer) == {group("a"), topic("t"), group("c")}


def test_topic_ids_are_granted_by_name() -> None:
    """Topics by id are granted by name if the name is known, otherwise by id."""
    other = UUID(int=8)
    topics = (answered("", 0, topic_id=TOPIC_ID), answered("", 0, topic_id=other), answered("", 100, topic_id=TOPIC_ID))
    answer = OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="a", topics=topics),))
    assert granted(OffsetFetchRequest(), 10, answer) == {group("a"), topic("named"), topic(other)}


# Rights that answers need.


def requested_topic(name: str = "", topic_id: UUID = ZERO_UUID) -> OffsetFetchRequestTopic:
    return OffsetFetchRequestTopic(name=name, topic_id=topic_id, partition_indexes=(0,))


def many(*groups: tuple[str, tuple[OffsetFetchRequestTopic, ...] | None]) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=g, topics=t) for g, t in groups))


@pytest.mark.parametrize(
    ("question", "version", "needs"),
    [
        (ListGroupsRequest(), 4, {LIST, listed("g"), listed("h")}),
        (ListGroupsRequest(states_filter=("Stable",)), 4, {LIST, listed("g"), listed("h")}),
        (DescribeGroupsRequest(groups=("g", "x")), 5, {group("g"), group("x")}),
        (
            OffsetFetchRequest(group_id="g", topics=(requested_topic("t"), requested_topic("u"))),
            7,
            {group("g"), topic("t"), topic("u")},
        ),
        (OffsetFetchRequest(group_id="g", topics=None), 2, {group("g"), topic("t")}),
        (OffsetFetchRequest(group_id="h", topics=None), 7, {group("h")}),
        (many(("g", None), ("x", (requested_topic("u"),))), 8, {group("g"), topic("t"), group("x"), topic("u")}),
        (
            many(("x", (requested_topic("", TOPIC_ID), requested_topic("", UUID(int=8))))),
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
def test_answer_requires_rights_to_its_content(question: Struct, version: int, needs: set[Right]) -> None:
    """An answer requires the rights to every group and topic that it would contain."""
    state = complete_state()
    (line,) = stable_group(state, "m1")
    stable_group(state, "m2", group="h")
    line.exchange(committing(42), COMMITTED, 7)
    assert set(required_rights(exchange(question, version), state.copy.manager, EPOCH + 100)) == needs
