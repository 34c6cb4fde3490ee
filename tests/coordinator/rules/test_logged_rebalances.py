"""Rebalances that only the log shows: generations of clients that bypass the sidecar, and groups of KIP-848."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.consumer_protocol import ConsumerProtocolAssignment
from group_sidecar.codecs.consumer_protocol import TopicPartition as ToldPartition
from group_sidecar.codecs.offsets_topic import GroupKey, KeyType, MemberKey, encode_key, encode_value
from group_sidecar.codecs.offsets_topic_values import (
    CLASSIC_MEMBER_METADATA_TAG,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataValue,
    MemberMetadata,
    TopicPartitions,
)
from group_sidecar.codecs.schema import encode
from group_sidecar.coordinator.model.events import (
    ConsumerMemberSeen,
    Event,
    JoinAccepted,
    JoiningMember,
    JoinSent,
    LeaveSent,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    RebalanceSeen,
)
from group_sidecar.coordinator.model.facts import (
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.coordinator.rules.consumer_members import CONSUMER_SESSION_MS
from tests.coordinator.log.test_follower import Reader
from tests.coordinator.model_log import Entry
from tests.coordinator.sweeping import swept

TOPIC = UUID(int=1)
WHO: Any = {"client_id": "c", "client_host": "/h"}
HEARTBEAT_SECONDS, SILENT_SECONDS = 5.0, 11.0
"""How often KIP-848 members send heartbeats, and seconds of silence that show that a heartbeat was missed."""


class Copy(Reader):
    """A copy that reads one partition, with its facts. Each step takes a second."""

    def __init__(self, *, exclusive: bool = False, load: Iterable[Entry] = ()) -> None:
        self.facts: list[Fact] = []
        self.now = 100.0
        super().__init__(exclusive=exclusive, load=load)

    def catch_up(self, asked_at: float, now: float) -> Any:
        for facts in self.follower.merge(0, now):
            self.facts += facts
        return list(self.follower.end_reached(0, asked_at, now))[-1]

    def log_says(self, *entries: Entry) -> list[Fact]:
        """Reads new records. Returns the resulting facts."""
        self.facts, self.now = [], self.now + 1
        self.read(*entries, at=self.now)
        return self.facts

    def wire_says(self, kind: type[Event], **fields: Any) -> list[Fact]:
        self.now += 1
        return self.manager.apply([kind(group_id="g", sent_at=self.now, **fields)], self.now)


def of(facts: list[Fact], kind: type[Any]) -> list[Any]:
    return [fact for fact in facts if isinstance(fact, kind)]


# Classic groups.


def assignment(*partitions: int) -> bytes:
    """Returns an assignment of these partitions of topic "t"."""
    parts = (ToldPartition(topic="t", partitions=partitions),) if partitions else ()
    return b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=parts), 0)


def generation(number: int, *owners: str, static: bool = False, **parts: tuple[int, ...]) -> Entry:
    """Returns the record of a generation. `parts`: partitions of "t" by member. `owners`: members without any."""
    shares = {**dict.fromkeys(owners, ()), **parts}
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=number,
        protocol="range" if shares else None,
        leader=min(shares, default=None),
        members=tuple(
            MemberMetadata(
                member_id=name,
                group_instance_id=name[0] if static else None,
                client_id=f"client-{name}",
                client_host="/h",
                rebalance_timeout=5000,
                session_timeout=5000,
                subscription=b"",
                assignment=assignment(*share),
            )
            for name, share in shares.items()
        ),
    )
    return encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g")), encode_value(value, 3)


def test_loaded_generations_report_nothing() -> None:
    """Generations that are loaded from the log report no facts."""
    copy = Copy(load=[generation(1, a=(0, 1)), generation(2, a=(0,), b=(1,))])
    assert copy.facts == []


def test_new_logged_group() -> None:
    """A new group in the log reports a joined member and a complete rebalance with the cause NEW_MEMBER."""
    joined, started, completed = Copy().log_says(generation(1, a=(0, 1)))
    assert isinstance(joined, MemberJoined)
    assert isinstance(started, RebalanceStarted)
    assert isinstance(completed, RebalanceCompleted)
    assert (joined.client_id, started.cause) == ("client-a", RebalanceCause.NEW_MEMBER)
    assert (completed.generation, completed.protocol, completed.members, completed.joined) == (1, "range", 1, 1)
    assert (completed.duration_seconds, completed.by and completed.by.member_id) == (0.0, "a")


def test_new_member_in_log() -> None:
    """A new member in a logged generation is the cause NEW_MEMBER."""
    copy = Copy(load=[generation(1, a=(0, 1))])
    [completed] = of(copy.log_says(generation(2, a=(0,), b=(1,))), RebalanceCompleted)
    assert (completed.cause, completed.by.member_id) == (RebalanceCause.NEW_MEMBER, "b")
    assert (completed.joined, completed.gone, completed.moved_partitions) == (1, 0, 1)


@pytest.mark.parametrize("heard", ["never", "long ago", "lately"])
def test_missing_member_in_log(heard: str) -> None:
    """A member missing from a logged generation is EXPIRED if it was silent for a session on the wire, and otherwise
    DROPPED.
    """
    copy = Copy(load=[generation(1, a=(0,), b=(1,))])
    if heard != "never":
        who: Any = {"member_id": "b", "instance_id": None, "client_id": "client-b", "client_host": "/h"}
        copy.wire_says(MemberSeen, generation=1, no_rebalance=True, **who)
    copy.now += 0 if heard == "lately" else 60
    facts = copy.log_says(generation(2, a=(0, 1)))
    [gone], [completed] = of(facts, MemberGone), of(facts, RebalanceCompleted)
    expired = heard == "long ago"
    assert (gone.member_id, gone.how) == ("b", Departure.EXPIRED if expired else Departure.DROPPED)
    assert completed.cause is (RebalanceCause.SESSION_EXPIRED if expired else RebalanceCause.UNKNOWN)
    assert (completed.gone, completed.moved_partitions, completed.by.member_id) == (1, 1, "b")


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_silent_member_stays_in_view_if_it_may_bypass(exclusive: bool, heard: bool) -> None:
    """A member that may bypass the sidecar stays in the view after its session, until the log shows that it is gone.

    If requests of the member were seen, or no client may bypass the sidecar, silence shows that the member is gone.
    """
    copy = Copy(load=[generation(1, a=(0, 1))], exclusive=exclusive)
    if heard:
        client: Any = {"member_id": "a", "instance_id": None, "client_id": "client-a", "client_host": "/h"}
        copy.wire_says(MemberSeen, generation=1, no_rebalance=True, **client)
    copy.now += 60
    facts = swept(copy.manager, copy.now)
    view = copy.manager.view("g", copy.now)
    stays = not (exclusive or heard)
    assert (view.state, len(view.members), facts == []) == (
        (GroupState.STABLE, 1, True) if stays else (GroupState.EMPTY, 0, False)
    )
    copy.log_says(generation(2))
    view = copy.manager.view("g", copy.now)
    assert (view.state, view.members) == (GroupState.EMPTY, ())


def test_member_known_to_bypass_stays_in_view() -> None:
    """A member that is known to bypass the sidecar stays in the view, although the sidecar should be exclusive."""
    copy = Copy(load=[generation(1, a=(0, 1))], exclusive=True)
    group = copy.manager._cache.group("g")
    assert group is not None
    group.members["a"].note_bypass()
    copy.now += 60
    swept(copy.manager, copy.now)
    view = copy.manager.view("g", copy.now)
    assert (view.state, len(view.members)) == (GroupState.STABLE, 1)


def test_leave_request_explains_missing_member() -> None:
    """A member that sent LeaveGroup and is missing from the next logged generation is LEFT with its reason."""
    copy = Copy(load=[generation(1, a=(0,), b=(1,))])
    assert copy.wire_says(LeaveSent, members=(("b", None),), reasons=("bye",)) == []
    facts = copy.log_says(generation(2, a=(0, 1)))
    [gone], [started], [completed] = (of(facts, kind) for kind in (MemberGone, RebalanceStarted, RebalanceCompleted))
    assert (gone.how, gone.said) == (Departure.LEFT, "bye")
    assert (completed.cause, completed.said, started.said) == (RebalanceCause.MEMBER_LEFT, "bye", "bye")


def test_same_members_give_unknown_cause() -> None:
    """A logged generation with the same members has the cause UNKNOWN and no moved partitions."""
    copy = Copy(load=[generation(1, a=(0, 1))])
    [_, completed] = copy.log_says(generation(2, a=(0, 1)))
    assert isinstance(completed, RebalanceCompleted)
    assert (completed.cause, completed.by, completed.moved_partitions) == (RebalanceCause.UNKNOWN, None, 0)


def test_last_member_leaves_without_rebalance() -> None:
    """A logged generation without members reports only the departure, and the next generation does not count this
    departure.
    """
    copy = Copy(load=[generation(1, a=(0, 1))])
    facts = copy.log_says(generation(2))
    assert [type(fact) for fact in facts] == [MemberGone], "an Empty group has no rebalance"
    [completed] = of(copy.log_says(generation(3, b=(0, 1))), RebalanceCompleted)
    assert (completed.joined, completed.gone, completed.moved_partitions) == (1, 0, 0)


def test_static_member_returns_in_log() -> None:
    """A static member under a new id in the log is reported as FENCED and moves no partitions."""
    copy = Copy(load=[generation(1, static=True, a1=(0, 1), b1=())])
    facts = copy.log_says(generation(2, static=True, a2=(0, 1), b1=()))
    assert [gone.how for gone in of(facts, MemberGone)] == [Departure.FENCED]
    assert of(facts, RebalanceCompleted)[0].moved_partitions == 0


def test_log_repeats_no_wire_facts() -> None:
    """The log does not report a departure or a rebalance start again that the wire has reported."""
    copy = Copy(load=[generation(1, a=(0,), b=(1,))])
    copy.wire_says(MembersLeft, members=(("b", None),))
    copy.wire_says(LeaveSent, members=(("a", None),))
    facts = copy.log_says(generation(2, a=(0, 1)))
    assert of(facts, MemberGone) == []
    [completed] = of(facts, RebalanceCompleted)
    assert (completed.cause, completed.gone) == (RebalanceCause.MEMBER_LEFT, 1)
    assert of(facts, RebalanceStarted) == []


# Together with the wire.


def sends_join(copy: Copy, member_id: str = "a", protocols: tuple[str, ...] = ("range",)) -> JoiningMember:
    """Applies a join of a member that the log has shown, by default the leader."""
    joining = JoiningMember(
        token=f"1:{member_id}",
        member_id=member_id,
        instance_id=None,
        client_id=f"client-{member_id}",
        client_host="/h",
        session_timeout_ms=5000,
        rebalance_timeout_ms=5000,
        protocol_type="consumer",
        protocols=tuple((name, b"") for name in protocols),
        will_park=True,
    )
    copy.wire_says(JoinSent, joining=joining)
    return joining


def is_let_in(copy: Copy, joining: JoiningMember, generation: int = 2) -> list[Fact]:
    """Applies the reply to a join. A leader's reply contains only the leader. Returns the facts."""
    return copy.wire_says(
        JoinAccepted,
        joining=joining,
        member_id=joining.member_id,
        generation=generation,
        protocol_type="consumer",
        protocol="range",
        leader="a",
        roster=(("a", None, b""),) if joining.member_id == "a" else (),
    )


def test_silent_member_is_dropped_not_expired() -> None:
    """Unless the copy is exclusive, a silent member is DROPPED by a generation without it, and does not expire."""
    copy = Copy(load=[generation(1, a=(0,), b=(1,))])
    copy.now += 60
    assert swept(copy.manager, copy.now) == []
    facts = is_let_in(copy, sends_join(copy))
    assert [(gone.member_id, gone.how) for gone in of(facts, MemberGone)] == [("b", Departure.DROPPED)]


# Groups of KIP-848.


class Group:
    """The records of a group of the new protocol. They always contain the whole last state."""

    def __init__(self) -> None:
        self.epoch = self.assigned = 0
        self.members: dict[str, tuple[tuple[int, ...], int, str]] = {}
        self._written: dict[bytes, bytes] = {}

    def member(self, name: str, *partitions: int, epoch: int | None = None, topic: str = "t") -> "Group":
        """Adds a member that owns these partitions, by default at the group's epoch."""
        self.members[name] = partitions, self.epoch if epoch is None else epoch, topic
        return self

    def at(self, epoch: int, assigned: int | None = None) -> "Group":
        self.epoch, self.assigned = epoch, epoch if assigned is None else assigned
        return self

    def without(self, name: str) -> "Group":
        del self.members[name]
        return self

    def write(self, *, static: bool = False, client_id: str = "") -> list[Entry]:
        group = GroupKey(group_id="g")
        records = {
            encode_key(KeyType.CONSUMER_GROUP_METADATA, group): encode_value(
                ConsumerGroupMetadataValue(epoch=self.epoch), 0
            ),
            encode_key(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, group): encode_value(
                ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=self.assigned), 0
            ),
        }
        for name, (partitions, epoch, topic) in self.members.items():
            key = MemberKey(group_id="g", member_id=name)
            known = ConsumerGroupMemberMetadataValue(
                instance_id=name[0] if static else None,
                rack_id=None,
                client_id=client_id or f"client-{name}",
                client_host="/h",
                subscribed_topic_names=(topic,),
                subscribed_topic_regex=None,
                server_assignor="uniform",
                unknown_tags=((CLASSIC_MEMBER_METADATA_TAG, b"\0"),),
            )
            owned = (TopicPartitions(topic_id=TOPIC, partitions=partitions),) if partitions else ()
            current = ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=epoch,
                previous_member_epoch=0,
                state=0,
                assigned_partitions=owned,
                partitions_pending_revocation=(),
            )
            records[encode_key(KeyType.CONSUMER_GROUP_MEMBER_METADATA, key)] = encode_value(known, 0)
            records[encode_key(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key)] = encode_value(current, 0)
        gone = self._written.keys() - records.keys()
        self._written = records
        return [*records.items(), *((key, None) for key in sorted(gone))]


def kinds(facts: list[Fact]) -> list[type[Fact]]:
    return [type(fact) for fact in facts]


def beat(copy: Copy, name: str, epoch: int, *, joins: bool = False) -> list[Fact]:
    return copy.wire_says(
        ConsumerMemberSeen,
        member_id=name,
        instance_id=None,
        epoch=epoch,
        client_id=f"client-{name}",
        client_host="/h",
        is_join=joins,
        heartbeat_seconds=HEARTBEAT_SECONDS,
    )


@pytest.fixture
def group() -> Group:
    """A group of two members, at epoch 5."""
    return Group().at(5).member("a", 0).member("b", 1)


def test_loaded_consumer_group_reports_nothing(group: Group) -> None:
    """A consumer group that is loaded from the log reports no facts."""
    assert Copy(load=group.write()).facts == []


def test_new_consumer_group() -> None:
    """A new consumer group in the log reports a joined member and a complete rebalance with the cause NEW_MEMBER."""
    facts = Copy().log_says(*Group().at(1).member("a", 0, 1).write())
    assert kinds(facts) == [MemberJoined, RebalanceStarted, RebalanceCompleted]
    completed = of(facts, RebalanceCompleted)[0]
    assert (completed.cause, completed.by.client_id) == (RebalanceCause.NEW_MEMBER, "client-a")
    assert (completed.protocol, completed.generation, completed.joined, completed.moved_partitions) == (
        "uniform",
        1,
        1,
        0,
    )


def test_new_consumer_group_seen_on_wire() -> None:
    """A member that the wire has reported is not reported again by the log, and stays the cause of the rebalance."""
    copy = Copy()
    assert kinds(beat(copy, "a", 1, joins=True)) == [MemberJoined]
    facts = copy.log_says(*Group().at(1).member("a", 0, 1).write())
    assert kinds(facts) == [RebalanceStarted, RebalanceCompleted]
    [completed] = of(facts, RebalanceCompleted)
    assert (completed.cause, completed.by.member_id, completed.joined) == (RebalanceCause.NEW_MEMBER, "a", 1)


def test_new_member_reconciles(group: Group) -> None:
    """A rebalance of a consumer group starts with its new member and completes when all members have reconciled."""
    copy = Copy(load=group.write())
    begun = copy.log_says(*group.at(6).member("a", 0, epoch=5).member("c").write())
    assert kinds(begun) == [MemberJoined, RebalanceStarted]
    assert copy.log_says(*group.member("a", epoch=5).write()) == []
    [completed] = copy.log_says(*group.member("a").member("b", 1).member("c", 0).write())
    assert isinstance(completed, RebalanceCompleted)
    assert (completed.cause, completed.by and completed.by.member_id) == (RebalanceCause.NEW_MEMBER, "c")
    assert (completed.generation, completed.members, completed.duration_seconds) == (6, 3, 2.0)
    assert (completed.joined, completed.gone, completed.moved_partitions) == (1, 0, 1)


@pytest.mark.parametrize("wire_first", [True, False])
def test_consumer_member_leaves(group: Group, wire_first: bool) -> None:
    """A consumer group member that sent a leave request is LEFT when the log drops it, with the cause MEMBER_LEFT."""
    copy = Copy(load=group.write())
    assert copy.wire_says(LeaveSent, members=(("b", None),)) == []
    if wire_first:
        assert beat(copy, "b", -1) == []
    facts = copy.log_says(*group.without("b").at(6).member("a", 0, 1).write())
    [gone], [completed] = of(facts, MemberGone), of(facts, RebalanceCompleted)
    assert (gone.member_id, gone.how) == ("b", Departure.LEFT)
    assert (completed.cause, completed.gone, completed.moved_partitions) == (RebalanceCause.MEMBER_LEFT, 1, 1)


def test_silent_shared_member_does_not_expire() -> None:
    """Unless the copy is exclusive, members that are silent on the wire do not expire and do not count as departed."""
    copy = Copy(load=[generation(1, a=(0,), b=(1,))])
    copy.now += 60
    assert swept(copy.manager, copy.now) == []
    [completed] = of(copy.log_says(generation(2, a=(0,), b=(1,), c=(2,))), RebalanceCompleted)
    assert (completed.cause, completed.joined, completed.gone) == (RebalanceCause.NEW_MEMBER, 1, 0)


def test_silence_names_no_cause() -> None:
    """Unless the copy is exclusive, a rebalance error does not make a silent member the cause."""
    copy = Copy(load=[generation(1, a=(0,), b=(1,))])
    copy.now += 60
    copy.wire_says(MemberSeen, member_id="a", instance_id=None, generation=1, no_rebalance=True, **WHO)
    [started] = copy.wire_says(RebalanceSeen, member_id="a", generation=1, is_heartbeat=True)
    assert isinstance(started, RebalanceStarted)
    assert (started.cause, started.by) == (RebalanceCause.UNKNOWN, None)


@pytest.mark.parametrize(("heard", "exclusive"), [(True, False), (False, True), (False, False)])
def test_consumer_member_expires(group: Group, heard: bool, exclusive: bool) -> None:
    """A consumer group member missing from the log is EXPIRED if the copy is exclusive or has seen its heartbeats,
    otherwise DROPPED.
    """
    copy = Copy(exclusive=exclusive, load=group.write())
    if heard:
        beat(copy, "b", 5)
        copy.now += SILENT_SECONDS
    facts = copy.log_says(*group.without("b").at(6).member("a", 0, 1).write())
    [gone], [completed] = of(facts, MemberGone), of(facts, RebalanceCompleted)
    assert gone.how is (Departure.EXPIRED if heard or exclusive else Departure.DROPPED), (
        "an unobserved member may have left without this sidecar"
    )
    assert completed.cause is (RebalanceCause.SESSION_EXPIRED if heard or exclusive else RebalanceCause.UNKNOWN)
    assert kinds(beat(copy, "b", 7, joins=True)) == []
    assert kinds(copy.log_says(*group.at(7).member("b").write()))[0] is MemberJoined, (
        "the member has joined again under its old id"
    )


def test_fenced_consumer_member_has_not_expired(group: Group) -> None:
    """A KIP-848 member that sends heartbeats and does not revoke its partitions in time is DROPPED, not EXPIRED."""
    copy = Copy(load=group.write())
    beat(copy, "b", 5)
    copy.now += HEARTBEAT_SECONDS
    facts = copy.log_says(*group.without("b").at(6).member("a", 0, 1).write())
    [gone], [completed] = of(facts, MemberGone), of(facts, RebalanceCompleted)
    assert (gone.how, completed.cause) == (Departure.DROPPED, RebalanceCause.UNKNOWN)


@pytest.mark.parametrize("reply_first", [False, True])
def test_new_consumer_member_expires(group: Group, reply_first: bool) -> None:
    """A KIP-848 member that sends only its first heartbeat expires, whether the log or the reply shows it first."""
    copy = Copy(load=group.write())
    joined = group.at(6).member("c").write()
    if reply_first:
        beat(copy, "c", 6, joins=True)
    copy.log_says(*joined)
    if not reply_first:
        beat(copy, "c", 6, joins=True)
    copy.now += SILENT_SECONDS
    [gone] = of(copy.log_says(*group.without("c").at(7).write()), MemberGone)
    assert gone.how is Departure.EXPIRED


def test_first_consumer_member_expires() -> None:
    """The member whose heartbeat has shown the group before the log expires as the other members do."""
    copy = Copy()
    beat(copy, "a", 1, joins=True)
    copy.log_says(*(group := Group().at(1).member("a", 0).member("b", 1)).write())
    copy.now += SILENT_SECONDS
    [gone] = of(copy.log_says(*group.without("a").at(2).write()), MemberGone)
    assert gone.how is Departure.EXPIRED


@pytest.mark.parametrize(
    ("how", "cause"),
    [("expires", RebalanceCause.SESSION_EXPIRED), ("leaves", RebalanceCause.MEMBER_LEFT)],
)
def test_converted_group_rebalances_once(group: Group, how: str, cause: RebalanceCause) -> None:
    """When the last KIP-848 member of a mixed group is gone, the broker converts the group and rebalances it. This is
    one rebalance, which the remaining members' joins complete. Their sessions begin with the conversion.
    """
    copy = Copy(exclusive=True, load=group.write())
    beat(copy, "a", 5)
    sent_at = copy.now
    if how == "leaves":
        copy.wire_says(LeaveSent, members=(("a", None),), client_id="client-a", client_host="/h")
    else:
        copy.now += SILENT_SECONDS
    facts = copy.log_says(*((key, None) for key, _ in group.write()), generation(6, b=(0, 1)))
    [started] = of(facts, RebalanceStarted)
    assert (started.cause, started.by.member_id, of(facts, RebalanceCompleted)) == (cause, "a", [])
    late_reply = ConsumerMemberSeen(group_id="g", sent_at=sent_at, member_id="a", instance_id=None, epoch=-1, **WHO)
    copy.manager.apply([late_reply], copy.now)
    view = copy.manager.view("g", copy.now)
    assert (view.kind, view.state) == (GroupKind.CLASSIC, GroupState.PREPARING_REBALANCE)
    copy.now += 4
    assert swept(copy.manager, copy.now) == []
    copy.now += 2
    [gone] = of(swept(copy.manager, copy.now), MemberGone)
    assert (gone.member_id, gone.how) == ("b", Departure.EXPIRED)


def test_unobserved_leaves_during_hand_over() -> None:
    """While a predecessor may still serve clients, a KIP-848 member without observed requests may have left through it.

    Only after a whole session since the end of the predecessor, such a member must have expired.
    """
    group = Group().at(5).member("a", 0).member("b", 1).member("c", 2).member("d", 3)
    copy = Copy(exclusive=True, load=group.write())
    copy.manager.begin_sharing()
    facts = copy.log_says(*group.without("b").at(6).write())
    copy.manager.end_sharing(copy.now + 1)
    copy.now += CONSUMER_SESSION_MS / 1000 - 1
    facts += copy.log_says(*group.without("c").at(7).write())
    copy.now += 10
    facts += copy.log_says(*group.without("d").at(8).member("a", 0, 1, 2, 3).write())
    hows = {"b": Departure.DROPPED, "c": Departure.DROPPED, "d": Departure.EXPIRED}
    assert {gone.member_id: gone.how for gone in of(facts, MemberGone)} == hows
    causes = [RebalanceCause.UNKNOWN, RebalanceCause.UNKNOWN, RebalanceCause.SESSION_EXPIRED]
    assert [started.cause for started in of(facts, RebalanceStarted)] == causes


def test_admin_removes_consumer_member(group: Group) -> None:
    """A consumer group member that an admin removes is reported once. A log that lags does not bring it back."""
    copy = Copy(load=group.write())
    [gone] = copy.wire_says(MembersLeft, members=(("b", None),), reasons=("off",), client_id="admin", client_host="/h")
    assert isinstance(gone, MemberGone)
    assert gone.how is Departure.REMOVED_BY_CLIENT
    behind = copy.log_says(*group.member("a", 0, epoch=5).write())
    assert of(behind, MemberJoined) == [], "the older record does not bring the member back"
    facts = copy.log_says(*group.without("b").at(6).member("a", 0, 1).write())
    assert of(facts, MemberGone) == []
    [completed] = of(facts, RebalanceCompleted)
    assert (completed.cause, completed.by.member_id, completed.said) == (RebalanceCause.MEMBER_REMOVED, "b", "off")
    assert completed.gone == 1
    back = copy.log_says(*group.at(7).member("a", 0).member("b", 1).write())
    assert [joined.member_id for joined in of(back, MemberJoined)] == ["b"], (
        "the member joined again without this sidecar"
    )


def test_removed_member_rejoins_before_log(group: Group) -> None:
    """A removed member that rejoins before the log shows its removal is reported as joined."""
    copy = Copy(load=group.write())
    copy.wire_says(MembersLeft, members=(("b", None),))
    assert beat(copy, "b", 7, joins=True) == []
    facts = copy.log_says(*group.at(7).member("a", 0).member("b", 1).write())
    assert [fact.member_id for fact in of(facts, MemberJoined)] == ["b"]


def test_unknown_consumer_member(group: Group) -> None:
    """UNKNOWN_MEMBER_ID for a consumer group member reports its departure once, with the cause SESSION_EXPIRED."""
    copy = Copy(load=group.write())
    [gone] = copy.wire_says(MemberUnknown, member_id="b")
    assert isinstance(gone, MemberGone)
    facts = copy.log_says(*group.without("b").at(6).member("a", 0, 1).write())
    assert of(facts, MemberGone) == []
    assert of(facts, RebalanceCompleted)[0].cause is RebalanceCause.SESSION_EXPIRED
    facts = copy.log_says(*group.at(7).member("a", 0, 1, 2).write())
    assert of(facts, RebalanceCompleted)[0].cause is RebalanceCause.TOPIC_METADATA
    group.at(6)
    beat(copy, "b", 7, joins=True)
    assert kinds(copy.log_says(*group.at(7).member("b").write()))[0] is MemberJoined


def test_consumer_member_changes_subscription(group: Group) -> None:
    """A consumer group member with another topic is the cause SUBSCRIPTION_CHANGED."""
    copy = Copy(load=group.write())
    facts = copy.log_says(*group.at(6).member("a", 0).member("b", topic="u").write())
    [started] = of(facts, RebalanceStarted)
    assert (started.cause, started.by.member_id) == (RebalanceCause.SUBSCRIPTION_CHANGED, "b")
    assert of(facts, RebalanceCompleted)[0].moved_partitions == 1


def test_consumer_group_topics_change(group: Group) -> None:
    """A new epoch of a consumer group without a member change has the cause TOPIC_METADATA."""
    copy = Copy(load=group.write())
    facts = copy.log_says(*group.at(6).member("a", 0, 2).member("b", 1).write())
    [started], [completed] = of(facts, RebalanceStarted), of(facts, RebalanceCompleted)
    assert (started.cause, started.by, completed.moved_partitions) == (RebalanceCause.TOPIC_METADATA, None, 0)


def test_consumer_static_member_returns() -> None:
    """A static consumer group member under a new id is FENCED, and the next rebalance has the cause STATIC_REPLACED."""
    group = Group().at(5).member("a1", 0).member("b1", 1)
    copy = Copy(load=group.write(static=True))
    facts = copy.log_says(*group.without("b1").member("b2", 1).write(static=True))
    assert kinds(facts) == [MemberJoined, MemberGone], "a static replacement leaves the group epoch unchanged"
    assert of(facts, MemberGone)[0].how is Departure.FENCED
    facts = copy.log_says(*group.at(6).without("b2").member("a1", 0).member("b3", 1, topic="u").write(static=True))
    [completed] = of(facts, RebalanceCompleted)
    assert (completed.cause, completed.joined, completed.gone) == (RebalanceCause.STATIC_REPLACED, 0, 0)
    assert completed.moved_partitions == 0


def test_second_cause_during_rebalance(group: Group) -> None:
    """A second cause during a consumer group's rebalance is reported as a start, and the completion keeps the first
    cause.
    """
    copy = Copy(load=group.write())
    beat(copy, "b", 5)
    copy.log_says(*group.at(6).member("c").member("a", 0, epoch=5).write())
    copy.now += SILENT_SECONDS
    [_, started] = copy.log_says(*group.at(7).without("b").write())
    assert isinstance(started, RebalanceStarted)
    assert started.cause is RebalanceCause.SESSION_EXPIRED
    [completed] = copy.log_says(*group.member("a", 0).member("c", 1).write())
    assert isinstance(completed, RebalanceCompleted)
    assert (completed.cause, completed.joined, completed.gone) == (RebalanceCause.NEW_MEMBER, 1, 1)


def test_consumer_group_becomes_empty(group: Group) -> None:
    """A consumer group that loses all members reports only departures, and the next rebalance does not count them."""
    copy = Copy(load=group.write())
    facts = copy.log_says(*group.at(6).without("a").without("b").write())
    assert kinds(facts) == [MemberGone, MemberGone]
    facts = copy.log_says(*group.at(7).member("c", 0, 1).write())
    [completed] = of(facts, RebalanceCompleted)
    assert (completed.joined, completed.gone) == (1, 0)


def test_unknown_consumer_member_has_not_expired() -> None:
    """UNKNOWN_MEMBER_ID comes soon after the last heartbeat of a KIP-848 member: the broker removed it otherwise."""
    copy = Copy()
    beat(copy, "b", 1, joins=True)
    copy.log_says(*Group().at(1).member("b", 0, 1).write())
    copy.now += 1
    beat(copy, "b", 1)
    copy.now += 1
    [gone] = of(copy.wire_says(MemberUnknown, member_id="b"), MemberGone)
    assert gone.how is Departure.DROPPED


def test_waiting_sync_does_not_expire() -> None:
    """The leader never syncs. The member whose sync waits is not named as expired when it joins again."""
    copy = Copy()
    b = sends_join(copy, "b")
    is_let_in(copy, b, generation=1)
    copy.now += 11
    again = replace(b, token="2:b", reason="rebalance failed due to RebalanceInProgressException")
    copy.wire_says(JoinSent, joining=again)
    [started] = of(is_let_in(copy, again, generation=2), RebalanceStarted)
    assert started.cause is RebalanceCause.UNKNOWN
