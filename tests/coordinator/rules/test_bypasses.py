"""Which commits and members count as bypassing the sidecar, and how the copy then answers.

The log of each test was loaded at 0 s. The copy judges records from 60 s on.
"""

from collections.abc import Callable

import pytest

from group_sidecar.codecs.offsets_topic import GroupKey, KeyType, encode_key, encode_value
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue, MemberMetadata
from group_sidecar.coordinator.model.events import (
    ConsumerMemberSeen,
    DescribedMember,
    GroupDeleted,
    GroupDescribed,
    MemberSeen,
    OffsetsDoubted,
    OffsetsPending,
    OffsetsStored,
    ReplyLost,
)
from group_sidecar.coordinator.model.facts import ClientBypassed, MemberGone
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupState
from group_sidecar.coordinator.state.exclusivity import (
    DOUBT_SECONDS,
    MAX_UNEXPLAINED,
    MAX_UNKNOWN_EFFECTS,
    SETTLE_SECONDS,
)
from tests.coordinator.log.test_consumer_group_records import CLASSIC
from tests.coordinator.log.test_consumer_group_records import Log as Records
from tests.coordinator.log.test_follower import COMMIT, PRODUCER, Reader, new_group, offset
from tests.coordinator.model_log import Entry
from tests.coordinator.sweeping import in_doubt, swept

SESSION = 10.0
LONG_AGO = 60.0 + SETTLE_SECONDS + 10.0
"""A time in seconds at which lost requests of the first minute no longer explain any record."""


def judged(*load: Entry, exclusive: bool = True) -> Reader:
    """Returns a reader whose log is judged, read to its end at 61 s."""
    reader = Reader(exclusive=exclusive, load=load)
    reader.catch_up(61, 61)
    return reader


def bypassed(reader: Reader, now: float) -> list[ClientBypassed]:
    """Sweeps all groups, and returns the clients that bypassed the sidecar."""
    return [fact for fact in swept(reader.manager, now) if isinstance(fact, ClientBypassed)]


def committed(reader: Reader, at: float, sent_at: float | None = None) -> None:
    """Applies a reply to a commit of t-0."""
    offsets = {("t", 0): CommittedOffset(5, 1, "m", at)}
    reader.manager.apply([OffsetsStored(group_id="g", sent_at=at if sent_at is None else sent_at, offsets=offsets)], at)


def lost(reader: Reader, at: float) -> None:
    """Loses the reply to a commit."""
    reader.manager.apply([OffsetsDoubted(group_id="g", sent_at=at, partitions=(("t", 0),), may_create_group=True)], at)


def unread(group: str | None) -> Callable[[Reader, float], None]:
    """Returns a function that applies a commit that could not be decoded."""

    def apply(reader: Reader, at: float) -> None:
        reader.manager.note_unread_write(group)
        reader.manager.note_unread_write(group, at)

    return apply


def shared(reader: Reader, at: float) -> None:
    """Another sidecar, which this sidecar replaces, forwards the commit and ends."""
    reader.manager.begin_sharing()
    reader.manager.end_sharing(at)


def unnamed(reader: Reader, at: float) -> None:
    """Applies a reply to a commit whose topic id has no known name."""
    reader.manager.apply([OffsetsStored(group_id="g", sent_at=at, offsets={}, unresolved=1)], at)


def pending(reader: Reader, at: float) -> None:
    """Applies a reply to a commit in a transaction."""
    offsets = {("t", 0): CommittedOffset(5, 1, "m", at)}
    reader.manager.apply([OffsetsPending(group_id="g", sent_at=at, producer_id=PRODUCER, offsets=offsets)], at)


def no_reply(_: Reader, at: float) -> None:
    """Applies nothing: the commit bypassed the sidecar."""


EXPLANATIONS = {
    "replied": committed,
    "lost": lost,
    "unread": unread("g"),
    "unread, unknown group": unread(None),
    "another sidecar": shared,
    "unnamed topic": unnamed,
    "transaction": pending,
}

# Commits.


def test_bypassing_commit_is_counted_once() -> None:
    """A commit without a reply on the wire is reported after SETTLE_SECONDS, once for its partition."""
    reader = judged()
    reader.read(offset(0, 5), at=62)
    reader.read(offset(0, 6), at=63)
    assert bypassed(reader, 62 + SETTLE_SECONDS - 1) == []
    at = 62 + SETTLE_SECONDS
    assert bypassed(reader, at) == [ClientBypassed(group_id="g", at=at, topic="t", partition=0)]
    assert bypassed(reader, at + 60) == []
    assert (reader.manager.exclusivity.commits, reader.manager.exclusivity.members) == (1, 0)


@pytest.mark.parametrize("explain", EXPLANATIONS.values(), ids=EXPLANATIONS)
@pytest.mark.parametrize("reply_first", [True, False], ids=["reply first", "record first"])
def test_passing_commit_is_not_counted(explain: Callable[[Reader, float], None], reply_first: bool) -> None:
    """A commit that passed the sidecar is not reported, whether its reply or its record is seen first."""
    reader = judged()
    if reply_first:
        explain(reader, 62)
        reader.read(offset(0, 5), at=63)
    else:
        reader.read(offset(0, 5), at=62)
        explain(reader, 63)
    reader.catch_up(64, 64)
    assert bypassed(reader, 64 + 2 * SETTLE_SECONDS) == []


@pytest.mark.parametrize("group", ["g", None])
def test_unread_write_in_flight_explains_commits(group: str | None) -> None:
    """A write that cannot be decoded may explain any commit for as long as it has no reply."""
    reader = judged()
    reader.manager.note_unread_write(group)
    reader.read(offset(0, 5), at=62)
    assert bypassed(reader, 200) == []


def test_other_sidecar_explains_commits() -> None:
    """While another sidecar forwards requests too, no commit counts, and the copy is not exclusive."""
    reader = judged()
    reader.manager.begin_sharing()
    assert not reader.manager.exclusivity.holds(62)
    reader.read(offset(0, 5), at=62)
    assert bypassed(reader, 200) == []
    reader.manager.end_sharing(201)
    assert reader.manager.exclusivity.holds(201)


@pytest.mark.parametrize("explain", [lost, unread("g"), unread(None), shared])
def test_broker_may_execute_lost_request_late(explain: Callable[[Reader, float], None]) -> None:
    """A request of unknown effect explains records that are appended within SETTLE_SECONDS, and no later ones."""
    reader = judged()
    explain(reader, 62)
    reader.catch_up(70, 70)
    reader.read(offset(0, 5), at=71)
    assert bypassed(reader, 71 + SETTLE_SECONDS) == []
    reader.catch_up(63 + SETTLE_SECONDS, 63 + SETTLE_SECONDS)
    reader.read(offset(0, 6), at=140)
    assert len(bypassed(reader, 140 + SETTLE_SECONDS)) == 1


def test_evicted_request_explains_any_commit() -> None:
    """If too many groups have requests of unknown effect, the evicted ones may explain records of any group."""
    reader = judged()
    for number in range(MAX_UNKNOWN_EFFECTS + 1):
        reader.manager.exclusivity.note_unknown_effect(f"g{number}", 62)
    reader.read(offset(0, 5, "g0"), offset(0, 5, "other"), at=63)
    assert bypassed(reader, 200) == []


def test_commit_without_room_for_group_is_not_counted() -> None:
    """A commit that passed is not reported if there is no room for its group in the copy."""
    reader = Reader(exclusive=True, max_groups=0)
    reader.catch_up(61, 61)
    committed(reader, 62)
    reader.read(offset(0, 5), at=63)
    assert bypassed(reader, 200) == []


def test_fast_commits_are_not_counted() -> None:
    """A record is also explained if a later commit of the same partition has replaced its offset in the copy."""
    reader = judged()
    committed(reader, 62)
    committed(reader, 62.1)
    reader.read(offset(0, 4), at=61.9)
    reader.read(offset(0, 5), at=63)
    assert bypassed(reader, 200) == []


def test_commit_in_bypassing_transaction_is_counted() -> None:
    """A commit in a transaction counts when its record is read, not when the transaction ends."""
    reader = judged()
    reader.append(offset(0, 5), producer=PRODUCER)
    reader.catch_up(62, 62)
    assert len(bypassed(reader, 62 + SETTLE_SECONDS)) == 1
    reader.end(COMMIT)
    reader.catch_up(130, 130)
    assert bypassed(reader, 300) == []


def test_partition_is_explained_alone() -> None:
    """A passing commit explains only its own partition."""
    reader = judged()
    committed(reader, 62)
    reader.read(offset(0, 5), offset(1, 5), at=63)
    assert [fact.partition for fact in bypassed(reader, 63 + SETTLE_SECONDS)] == [1]


def test_only_commits_are_judged() -> None:
    """Tombstones, loaded records, records of the first minute, and records without `exclusive` are not judged."""
    reader = Reader(exclusive=True, load=[offset(0, 5)])
    reader.read(offset(1, 5), at=SETTLE_SECONDS - 1)
    reader.catch_up(SETTLE_SECONDS, SETTLE_SECONDS)
    reader.read(offset(0, None), at=62)
    shared = judged(exclusive=False)
    shared.read(offset(0, 5), at=62)
    assert bypassed(reader, 200) == bypassed(shared, 200) == []


def test_lost_broker_interrupts_test() -> None:
    """After the connection to the broker was lost, no record is judged for SETTLE_SECONDS."""
    reader = judged()
    reader.read(offset(0, 5), at=62)
    list(reader.follower.connection_lost(63))
    reader.read(offset(1, 5), at=70)
    reader.read(offset(1, 6), at=71)
    assert bypassed(reader, 200) == []
    reader.catch_up(201, 201)
    reader.read(offset(1, 7), at=202)
    assert len(bypassed(reader, 202 + SETTLE_SECONDS)) == 1


def test_commit_before_deletion_is_not_counted() -> None:
    """A commit is not reported if the group was deleted before the record was read."""
    reader = judged()
    committed(reader, 62)
    reader.manager.apply([GroupDeleted(group_id="g", sent_at=62.5)], 62.5)
    reader.read(offset(0, 5), at=62.2)
    reader.read(offset(0, None), at=63)
    assert bypassed(reader, 200) == []


def test_unexplained_records_are_bounded() -> None:
    """At most MAX_UNEXPLAINED records are kept until they are due."""
    reader = judged()
    reader.read(*(offset(number, 5) for number in range(MAX_UNEXPLAINED + 10)), at=62)
    assert reader.manager.exclusivity.table.entries == MAX_UNEXPLAINED
    assert len(bypassed(reader, 200)) == MAX_UNEXPLAINED
    assert (reader.manager.exclusivity.table.entries, reader.manager.exclusivity.table.bytes) == (0, 0)


# Members of classic groups.


def generation(number: int, *members: str) -> Entry:
    """Returns the record of a generation."""
    members_of_record = tuple(
        MemberMetadata(
            member_id=name,
            client_id=f"client-{name}",
            client_host="/h",
            session_timeout=int(SESSION * 1000),
            subscription=b"",
            assignment=b"",
        )
        for name in members
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=number, protocol="range", leader=members[0], members=members_of_record
    )
    return encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g")), encode_value(value, 3)


def describe(reader: Reader, at: float, *members: str, state: GroupState = GroupState.STABLE) -> list[ClientBypassed]:
    """Applies a description by the broker, and returns the clients that bypassed the sidecar."""
    members_of_record = tuple(
        DescribedMember(
            member_id=name, instance_id=None, client_id=f"client-{name}", client_host="/h", metadata=b"", assignment=b""
        )
        for name in members
    )
    as_of = reader.manager.changes_of("g")[0]
    event = GroupDescribed(
        group_id="g",
        sent_at=at,
        state=state,
        protocol_type="consumer",
        protocol="range",
        members=members_of_record,
        as_of=as_of,
    )
    return [fact for fact in reader.manager.apply([event], at) if isinstance(fact, ClientBypassed)]


def heartbeat(reader: Reader, at: float, member: str = "a") -> None:
    """Applies an accepted heartbeat of generation 1."""
    seen = MemberSeen(
        group_id="g",
        sent_at=at,
        member_id=member,
        instance_id=None,
        generation=1,
        client_id="c",
        client_host="/h",
        no_rebalance=True,
    )
    reader.manager.apply([seen], at)


def test_bypassing_member_is_counted_once() -> None:
    """A member that the broker still has after two silent sessions is reported once, with its client."""
    reader = judged(generation(1, "a"))
    assert bypassed(reader, LONG_AGO) == []
    assert in_doubt(reader.manager) == ["g"], "the broker is asked about a silent member"
    assert describe(reader, LONG_AGO, "a") == []
    swept(reader.manager, LONG_AGO + 5)
    assert in_doubt(reader.manager) == ["g"]
    assert describe(reader, LONG_AGO + 2 * SESSION, "a") == []
    at = LONG_AGO + 2 * SESSION + 1
    [fact] = describe(reader, at, "a")
    assert fact.member is not None
    assert (fact.member.member_id, fact.member.client_id, fact.member.client_host) == ("a", "client-a", "/h")
    assert [fact for fact in swept(reader.manager, at + 60) if isinstance(fact, MemberGone)] == [], (
        "the broker still has the member"
    )
    assert describe(reader, at + 60, "a") == []
    assert (reader.manager.exclusivity.members, reader.manager.exclusivity.last_at) == (1, at + 60)


def described_twice(reader: Reader, *, between: Callable[[float], object]) -> list[ClientBypassed]:
    """Describes the group before and after two sessions, and calls `between` in the meantime."""
    describe(reader, LONG_AGO, "a", "b")
    between(LONG_AGO + 1)
    return describe(reader, LONG_AGO + 2 * SESSION + 1, "a", "b")


def test_silent_members_are_counted() -> None:
    """If none of their requests passed the sidecar, both members of the next tests are reported."""
    reader = judged(generation(1, "a", "b"))
    assert len(described_twice(reader, between=lambda at: None)) == 2


def test_member_with_requests_is_not_counted() -> None:
    """A member is not reported if one of its heartbeats passed the sidecar."""
    reader = judged(generation(1, "a", "b"))
    [fact] = described_twice(reader, between=lambda at: heartbeat(reader, at))
    assert fact.member is not None
    assert fact.member.member_id == "b"


def test_new_generation_restarts_sessions() -> None:
    """A member in a new generation is not reported, because its session has started again."""
    reader = judged(generation(1, "a", "b"))
    assert described_twice(reader, between=lambda at: reader.read(generation(2, "a", "b"), at=at)) == []


def test_lost_broker_restarts_sessions() -> None:
    """After the broker was lost, members are not reported, because a restarted broker starts all sessions again."""
    reader = judged(generation(1, "a", "b"))
    assert described_twice(reader, between=lambda at: list(reader.follower.connection_lost(at))) == []


def test_lost_join_explains_members() -> None:
    """A member is not reported if it may be the sender of a join whose reply was lost."""
    reader = judged(generation(1, "a", "b"))
    event = ReplyLost(group_id="g", sent_at=LONG_AGO, token="", may_create_group=True)
    assert described_twice(reader, between=lambda at: reader.manager.apply([event], at)) == []


def test_rebalancing_group_is_not_judged() -> None:
    """No member of a rebalancing group is reported, because the broker keeps members with parked joins."""
    reader = judged(generation(1, "a"))
    state = GroupState.PREPARING_REBALANCE
    assert describe(reader, LONG_AGO, "a", state=state) == describe(reader, LONG_AGO + 100, "a", state=state) == []


# Members of KIP-848 groups.


def consumer_heartbeat(reader: Reader, at: float) -> None:
    """Applies an accepted heartbeat of a KIP-848 member."""
    seen = ConsumerMemberSeen(
        group_id="g",
        sent_at=at,
        member_id="b",
        instance_id=None,
        epoch=8,
        client_id="c",
        client_host="/h",
        is_join=True,
    )
    reader.manager.apply([seen], at)


def second_member() -> list[Entry]:
    """Returns the records of a second member of a KIP-848 group."""
    return list(Records().group(8, 8).member("b").current("b", 8).target("b").records.items())


def test_bypassing_consumer_member_is_counted_once() -> None:
    """A new member in the log is reported after SETTLE_SECONDS if none of its heartbeats passed the sidecar."""
    reader = judged(*new_group())
    reader.read(*second_member(), at=62)
    [fact] = bypassed(reader, 62 + SETTLE_SECONDS)
    assert fact.member is not None
    assert (fact.member.member_id, fact.member.client_id) == ("b", "client-b")
    reader.read(*Records().group(9, 9).current("b", 9).records.items(), at=123)
    assert bypassed(reader, 300) == []


@pytest.mark.parametrize("reply_first", [True, False], ids=["reply first", "record first"])
def test_passing_consumer_member_is_not_counted(reply_first: bool) -> None:
    """A member is not reported if its first heartbeat passed the sidecar."""
    reader = judged(*new_group())
    for step in (consumer_heartbeat, lambda reader, at: reader.read(*second_member(), at=at))[
        :: 1 if reply_first else -1
    ]:
        step(reader, 62)
    assert bypassed(reader, 300) == []


def test_vanished_consumer_member_is_not_counted() -> None:
    """A member that has left before it is judged is not reported: the reply to its only heartbeat may be lost."""
    reader = judged(*new_group())
    reader.read(*second_member(), at=62)
    reader.read(*((key, None) for key, _ in Records().member("b").current("b", 8).target("b").records.items()), at=100)
    assert bypassed(reader, 300) == []


def test_reloaded_consumer_member_is_not_counted() -> None:
    """A member is not reported if its partition was read again, because the copy has forgotten its heartbeats."""
    reader = judged(*new_group())
    reader.read(*second_member(), at=62)
    consumer_heartbeat(reader, 63)
    swept(reader.manager, 70)
    reader.log = reader.follower.begin_load(0, 4, 0, 100)
    reader.read(*new_group(), *second_member(), at=121)
    assert bypassed(reader, 300) == []


def test_classic_member_of_consumer_group_is_not_judged() -> None:
    """A classic member of a KIP-848 group is not reported, although it sends no heartbeat of KIP-848."""
    reader = judged(*new_group())
    reader.read(*Records().group(8, 8).member("b", tags=CLASSIC).current("b", 8).target("b").records.items(), at=62)
    assert len(reader.manager.view("g", 62).members) == 2
    assert bypassed(reader, 300) == []


# What follows.


def test_bypass_leaves_classic_groups_to_broker() -> None:
    """After a bypass, questions about classic groups and the list are forwarded for DOUBT_SECONDS."""
    reader = judged(generation(1, "a"))
    reader.read(offset(0, 5, "h"), at=62)
    at = 62 + SETTLE_SECONDS
    heartbeat(reader, at - 2)
    describe(reader, at - 1.5, "a")

    def reasons(now: float) -> tuple[FallbackReason | None, FallbackReason | None, FallbackReason | None]:
        reader.catch_up(now, now)
        manager = reader.manager
        return (
            manager.group_fallback_reason("new", now),
            manager.listing_fallback_reason(now),
            manager.offsets_fallback_reason("h", now),
        )

    assert reasons(at - 1) == (None, None, None)
    assert reader.manager.view_with_occupancy("g", at - 1).occupancy.certain
    assert len(bypassed(reader, at)) == 1
    assert not reader.manager.view_with_occupancy("g", at).occupancy.certain
    bypass = FallbackReason.NOT_EXCLUSIVE
    assert reasons(at) == reasons(at + DOUBT_SECONDS - 1) == (bypass, bypass, None), (
        "the log has all offsets, also those of bypassing clients"
    )
    heartbeat(reader, at + DOUBT_SECONDS - 0.5)
    assert reasons(at + DOUBT_SECONDS) == (None, None, None)


@pytest.mark.parametrize("explain", [no_reply, committed])
def test_offsets_are_doubtful_while_clients_bypass(explain: Callable[[Reader, float], None]) -> None:
    """After a bypass, an offset that differs between log and wire is in doubt until the log is read."""
    reader = judged()
    reader.read(offset(1, 5), at=62)
    assert len(bypassed(reader, 62 + SETTLE_SECONDS)) == 1
    explain(reader, 130)
    reader.append(offset(0, 9))
    reader.catch_up(129, 130.5)
    assert reader.offsets(130.5) == ({("t", 0): 9, ("t", 1): 5} if explain is no_reply else FallbackReason.IN_DOUBT)


@pytest.mark.parametrize("is_bypassed", [True, False])
def test_late_reply_is_doubtful(is_bypassed: bool) -> None:
    """A reply that arrives after a different offset in the log puts the offset in doubt, with and without a bypass."""
    reader = judged()
    if is_bypassed:
        reader.manager.exclusivity.record_bypass(("t", 0), 100)
    reader.append(offset(0, 9))
    reader.catch_up(129, 130)
    committed(reader, 131, sent_at=129.5)
    assert reader.offsets(131) is FallbackReason.IN_DOUBT
