"""The states that a group is brought into. `STATES` has one row per state."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
)
from tests.conformance.differential.group_setup import LAST_SINGLE_FETCH, Scene
from tests.kafka.dialect import until
from tests.kafka.group_members import ClassicMember, ConsumerMember, succeeded
from tests.kafka.processes import host_port
from tests.kafka.share_and_streams_members import ShareMember, StreamsMember

_GROUP_CONFIG = 32  # A resource type of IncrementalAlterConfigs.
_DESCRIBE_CONFIGS, _INCREMENTAL_ALTER_CONFIGS = 32, 44
_SHORT_SESSION_MS = 1_000
_WITHOUT_MEMBERS = ("Empty", "Dead")
"""Brokers before 0.10.1 have no empty groups. When the last member leaves, the group is removed, and its offsets
stay."""


@dataclass(frozen=True)
class Since:
    """The first Kafka version that has a state, and why older versions do not have it."""

    version: tuple[int, ...]
    because: str


@dataclass(frozen=True)
class State:
    """One row.

    Args:
        make: brings the scene's group into this state.
        since: the first version that has the state; None if all versions have it.
        by_itself: whether the broker brings the group into this state without a request, so that no exchange shows the
            state.
        settling_seconds: the seconds in which the sidecar may still leave questions to the broker.
    """

    name: str
    make: Callable[[Scene], None]
    since: Since | None = None
    by_itself: bool = False
    settling_seconds: float = 0.5

    def exists(self, version: str) -> bool:
        """Whether a broker of this version has the state."""
        return self.since is None or tuple(int(part) for part in version.split(".")) >= self.since.version


def _never_seen(scene: Scene) -> None:
    """No request has named the group."""


def _simple(scene: Scene) -> None:
    scene.commit({0: 3, 2: 0})


def _empty(scene: Scene) -> None:
    _alone(scene).leave()


def _preparing(scene: Scene) -> None:
    """One member's join is parked until the other member joins again, which it never does."""
    _alone(scene)
    scene.classic().send_join()
    until(lambda: scene.described() == "PreparingRebalance", "the group prepares its rebalance")


def _completing(scene: Scene) -> None:
    """The leader never syncs."""
    scene.classic().join()


def _completing_follower(scene: Scene) -> None:
    """A second generation, in which the follower has synced and the leader has not."""
    leader, follower = _rebalanced(scene)
    follower.send_sync()
    assert leader.leads


def _stable(scene: Scene) -> None:
    leader, follower = _rebalanced(scene)
    leader.sync()
    follower.sync()
    succeeded(leader.commit({0: 7}))
    succeeded(follower.commit({1: 8}))


def _dead(scene: Scene) -> None:
    """The only member has left without a commit, so the broker soon removes the group."""
    member = scene.classic()
    member.join()
    member.sync()
    succeeded(member.leave())
    until(lambda: scene.listed_as() == "", "the broker has dropped the empty group")


def _session_expired(scene: Scene) -> None:
    member = scene.classic(session_ms=_SHORT_SESSION_MS)
    member.join()
    member.sync()
    succeeded(member.commit({0: 7}))
    member.vanish()
    until(lambda: scene.described() in _WITHOUT_MEMBERS, "the broker has dropped the silent member")


def _expired(scene: Scene) -> None:
    scene.commit({0: 3}, retention_time_ms=1)
    until(lambda: not (scene.listed_as() or scene.committed()), "the broker has dropped the group with its offset")


def _partly_expired(scene: Scene) -> None:
    scene.commit({1: 4})
    scene.commit({0: 3}, retention_time_ms=1)
    until(lambda: set(scene.committed()) == {1}, "the broker has dropped the offset")


def _deleted(scene: Scene) -> None:
    scene.commit({0: 3})
    _delete(scene)


def _deleted_and_back(scene: Scene) -> None:
    _deleted(scene)
    scene.commit({1: 5})


def _offset_deleted(scene: Scene) -> None:
    scene.commit({0: 3, 1: 4})
    gone = (OffsetDeleteRequestPartition(partition_index=0),)
    topics = (OffsetDeleteRequestTopic(name=scene.topic, partitions=gone),)
    succeeded(scene.client.ask(OffsetDeleteRequest(group_id=scene.group, topics=topics)))


def _static(scene: Scene) -> None:
    member = scene.classic(instance_id="one")
    member.join()
    member.sync()
    succeeded(member.commit({0: 7}))


def _static_replaced(scene: Scene) -> None:
    """An instance joins again without its member id. It gets a new member id, and the group stays stable."""
    first = scene.classic(instance_id="one")
    first.join()
    first.sync()
    succeeded(first.commit({0: 7}))
    second = scene.classic(instance_id="one")
    second.join()
    assert second.member_id != first.member_id
    first.vanish()
    assert scene.described() == "Stable"


def _pending_alone(scene: Scene) -> None:
    """A member has an id and has not joined yet. A committed offset keeps the group from being removed."""
    scene.commit({0: 3})
    scene.classic().request_id()


def _pending_beside(scene: Scene) -> None:
    _alone(scene)
    scene.classic().request_id()


def _transaction_pending(scene: Scene) -> None:
    scene.commit({0: 3, 2: 1})
    scene.transaction().commit_offsets(scene.group, scene.topic, {0: 30, 1: 31})


def _transaction_only_pending(scene: Scene) -> None:
    """The group has only pending offsets, so there is no committed offset."""
    scene.transaction().commit_offsets(scene.group, scene.topic, {0: 30})


def _transaction_committed(scene: Scene) -> None:
    scene.commit({0: 3, 2: 1})
    transaction = scene.transaction()
    transaction.commit_offsets(scene.group, scene.topic, {0: 30, 1: 31})
    transaction.end(commit=True)
    until(lambda: scene.committed() == {0: 30, 1: 31, 2: 1}, "the transaction markers are written")


def _transaction_aborted(scene: Scene) -> None:
    scene.commit({0: 3, 2: 1})
    transaction = scene.transaction()
    transaction.commit_offsets(scene.group, scene.topic, {0: 30, 1: 31})
    transaction.end(commit=False)
    until(lambda: _no_longer_pending(scene), "the transaction markers are written")


def _no_longer_pending(scene: Scene) -> bool:
    """Whether the broker reports that no offset is pending. A broker before 2.5 cannot report pending offsets."""
    if scene.direct.dialect.newest(OffsetFetchRequest.KEY) < LAST_SINGLE_FETCH:
        return True
    request = OffsetFetchRequest(group_id=scene.group, topics=None, require_stable=True)
    reply = scene.direct.ask(request, LAST_SINGLE_FETCH)
    return all(part.error_code == 0 for topic in reply.topics for part in topic.partitions)


def _consumer_stable(scene: Scene) -> None:
    member = _consumer_alone(scene)
    scene.member = (member.member_id, member.epoch)


def _consumer_empty(scene: Scene) -> None:
    _consumer_alone(scene).leave()
    assert scene.consumer_state() == "Empty"


def _consumer_assigning(scene: Scene) -> None:
    """The second member waits for an assignment, because the broker computes assignments for this group only rarely."""
    _configure_group(scene, "consumer.assignment.interval.ms", "600000")
    _consumer_alone(scene)
    scene.consumer().join()
    assert scene.consumer_state() == "Assigning"


def _consumer_reconciling(scene: Scene) -> None:
    """The first member does not revoke the partitions that the second member is to get."""
    first = _consumer_alone(scene)
    second = scene.consumer()
    second.join()

    def target_reached_both() -> bool:
        first.heartbeat()
        second.heartbeat()
        return scene.consumer_state() == "Reconciling" and sum(map(len, first.assigned.values())) < 4

    until(target_reached_both, "the broker asks the first member to revoke partitions")
    scene.member = (first.member_id, first.epoch)


def _consumer_static_away(scene: Scene) -> None:
    member = _consumer_alone(scene, instance_id="one")
    member.leave(for_a_restart=True)


def _consumer_unassigned(scene: Scene) -> None:
    """A librdkafka member without partitions, because its topic does not exist. Each heartbeat repeats all fields."""
    bootstrap = host_port(scene.client.address)
    settings = {"bootstrap.servers": bootstrap, "group.id": scene.group, "group.protocol": "consumer"}
    member = Consumer({**settings, "log_level": 0})
    scene.stack.callback(member.close)
    member.subscribe(["missing-topic"])
    until(lambda: scene.consumer_state() == "Stable", "the group is stable")


def _consumer_deleted(scene: Scene) -> None:
    _consumer_empty(scene)
    _delete(scene)


def _converted(scene: Scene) -> None:
    """A classic group that a member of the new protocol has joined."""
    _alone(scene)
    scene.consumer().join()
    assert scene.consumer_state() in {"Assigning", "Reconciling", "Stable"}


def _share(scene: Scene) -> None:
    scene.other(ShareMember).join()


def _share_empty(scene: Scene) -> None:
    member = scene.other(ShareMember)
    member.join()
    member.leave()


def _streams(scene: Scene) -> None:
    scene.other(StreamsMember).join()
    until(lambda: scene.listed_as() != "Assigning", "the streams group has its assignment")


def _streams_empty(scene: Scene) -> None:
    """A committed offset keeps the group from being removed."""
    member = scene.other(StreamsMember)
    member.join()
    member.leave()
    scene.commit({0: 3})


def _alone(scene: Scene) -> ClassicMember:
    """Returns the only member of a stable group with an offset."""
    member = scene.classic()
    member.join()
    member.sync()
    succeeded(member.commit({0: 7, 1: 8}))
    return member


def _rebalanced(scene: Scene) -> tuple[ClassicMember, ClassicMember]:
    """Returns the leader and the follower of a second generation, neither of which has synced."""
    leader, follower = _alone(scene), scene.classic()
    follower.send_join()
    until(lambda: scene.described() == "PreparingRebalance", "the group prepares its rebalance")
    leader.join()
    succeeded(follower.receive_join())
    return leader, follower


def _consumer_alone(scene: Scene, **options: Any) -> ConsumerMember:
    """Returns the only member of a stable group with an offset. The member owns all partitions."""
    member = scene.consumer(**options)
    member.join()

    def assigned() -> bool:
        member.heartbeat()
        return bool(member.assigned)

    until(lambda: bool(member.assigned) or assigned(), "the member has its target assignment")
    member.take()
    until(lambda: scene.consumer_state() == "Stable", "the group is stable")
    succeeded(member.commit(scene.topic, {0: 7, 1: 8}))
    return member


def _delete(scene: Scene) -> None:
    [result] = scene.client.ask(DeleteGroupsRequest(groups_names=(scene.group,))).results
    assert result.error_code == 0, result


def _configure_group(scene: Scene, name: str, value: str) -> None:
    """Sets a property of the group (IncrementalAlterConfigs), and waits until the broker shows it (DescribeConfigs)."""

    def text(string: str) -> bytes:
        return struct.pack(">h", len(string)) + string.encode()

    setting = struct.pack(">i", 1) + text(name) + b"\0" + text(value)
    body = struct.pack(">ib", 1, _GROUP_CONFIG) + text(scene.group) + setting + b"\0"
    head = struct.pack(">hhih", _INCREMENTAL_ALTER_CONFIGS, 0, 1, -1)
    with scene.client.wire() as wire:
        wire.send_token(head + body)
        [code] = struct.unpack_from(">h", wire.receive(), 12)
    assert code == 0, f"the group's {name} could not be set: {code}"
    question = struct.pack(">hhih", _DESCRIBE_CONFIGS, 1, 1, -1)
    question += struct.pack(">ib", 1, _GROUP_CONFIG) + text(scene.group) + struct.pack(">i", 1) + text(name) + b"\0"

    def known() -> bool:
        with scene.direct.wire() as wire:
            wire.send_token(question)
            return text(name) + text(value) in wire.receive()

    until(known, f"the broker reports the group's {name}")


_KIP_98 = Since((0, 11), "Kafka has transactions since 0.11 (KIP-98)")
_KIP_229 = Since((1, 1), "clients can delete groups since 1.1 (KIP-229)")
_KIP_345 = Since((2, 4), "descriptions show static members since 2.4 (KIP-345)")
_KIP_394 = Since((2, 2), "brokers require member ids since 2.2 (KIP-394)")
_KIP_496 = Since((2, 4), "clients can delete offsets since 2.4 (KIP-496)")
_KIP_848 = Since((4, 0), "the new protocol is enabled since 4.0 (KIP-848)")
_PUT_OFF = Since((4, 3), "brokers can delay assignments since 4.3")
_KIP_932 = Since((4, 2), "share groups are enabled since 4.2 (KIP-932)")
_KIP_1071 = Since((4, 2), "streams groups are enabled since 4.2 (KIP-1071)")

STATES: tuple[State, ...] = (
    State("never seen", _never_seen),
    State("simple", _simple),
    State("empty", _empty),
    State("preparing", _preparing),
    State("completing", _completing),
    State("completing again", _completing_follower),
    State("stable", _stable),
    State("dead", _dead, by_itself=True),
    State("session expired", _session_expired, by_itself=True),
    State("expired", _expired, by_itself=True),
    State("partly expired", _partly_expired, by_itself=True),
    State("deleted", _deleted, since=_KIP_229),
    State("deleted and back", _deleted_and_back, since=_KIP_229),
    State("offset deleted", _offset_deleted, since=_KIP_496),
    State("static", _static, since=_KIP_345),
    State("static replaced", _static_replaced, since=_KIP_345),
    State("pending alone", _pending_alone, since=_KIP_394),
    State("pending beside", _pending_beside, since=_KIP_394),
    State("transaction pending", _transaction_pending, since=_KIP_98),
    State("transaction only pending", _transaction_only_pending, since=_KIP_98),
    State("transaction committed", _transaction_committed, since=_KIP_98, by_itself=True),
    State("transaction aborted", _transaction_aborted, since=_KIP_98, by_itself=True),
    State("consumer stable", _consumer_stable, since=_KIP_848),
    State("consumer empty", _consumer_empty, since=_KIP_848),
    State("consumer assigning", _consumer_assigning, since=_PUT_OFF),
    State("consumer reconciling", _consumer_reconciling, since=_KIP_848),
    State("consumer static away", _consumer_static_away, since=_KIP_848),
    State("consumer unassigned", _consumer_unassigned, since=_KIP_848, settling_seconds=5.0),
    State("consumer deleted", _consumer_deleted, since=_KIP_848),
    State("converted", _converted, since=_KIP_848),
    State("share", _share, since=_KIP_932),
    State("share empty", _share_empty, since=_KIP_932),
    State("streams", _streams, since=_KIP_1071),
    State("streams empty", _streams_empty, since=_KIP_1071),
)
