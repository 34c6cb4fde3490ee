"""What is said of one group, one member, one partition.

Owns: how views become the models of JSON. Must not know: where views come from, how many there are.
"""

from typing import NamedTuple

from group_sidecar.coordinator.committed import OffsetsRead
from group_sidecar.coordinator.facts import RebalanceCause
from group_sidecar.coordinator.views import CommittedOffset, MemberView, TopicPartition
from group_sidecar.metrics.flight_recorder import LastRebalance
from group_sidecar.metrics.records import timestamp
from group_sidecar.metrics.survey import GroupFigures, LogEnd, lag_behind
from group_sidecar.proxy.admin import models as m
from group_sidecar.proxy.admin.members import AnyMember, Assigned, member_count, newer
from group_sidecar.proxy.questions import Node


class Past(NamedTuple):
    """What the recorder has of a group's rebalances: the last one, and how many in an hour."""

    last: LastRebalance | None
    rebalances: int

    @property
    def cause(self) -> RebalanceCause | None:
        """What brought the last one about."""
        return self.last.cause if self.last else None


class Stand(NamedTuple):
    """Where a group stood at one moment, to be read when there is time."""

    offsets: OffsetsRead
    log_end: LogEnd

    def row(self, where: TopicPartition, committed: CommittedOffset | None, owner: AnyMember | None) -> m.Offset:
        """A partition: what was committed there, and who has it."""
        return _offset(where, committed, self.log_end(where), owner)


def summary(figures: GroupFigures, past: Past) -> m.GroupSummary:
    """A group in a line."""
    view, consumer = figures.view, newer(figures.view)
    return m.GroupSummary(
        group=view.group_id,
        protocol=view.kind,
        state=view.state,
        protocol_type=view.protocol_type,
        assignor=view.protocol if consumer is None else ", ".join(consumer.assignors),
        generation=view.generation if consumer is None else consumer.epoch,
        members=member_count(view),
        members_known=view.roster_known,
        limit=figures.limit,
        lag=figures.lag,
        lag_unknown_partitions=figures.unknown_lags,
        committed_partitions=figures.committed,
        last_rebalance_at=_moment(view.last_rebalance_at or (past.last.at if past.last else None)),
        last_cause=past.cause,
        last_reason=past.last.reason if past.last else None,
        rebalances=past.rebalances,
        lacking=view.lacking,
        offsets_lacking=view.offsets_lacking,
    )


def coordinator_row(node: Node | None) -> m.Coordinator | None:
    """A group's coordinator."""
    return m.Coordinator(id=node.id, host=node.host, port=node.port) if node else None


def member_row(assigned: Assigned) -> m.Member:
    """A member and what it has."""
    member = assigned.member
    return m.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        since=_moment(member.since) if isinstance(member, MemberView) else None,
        assignment=assigned.partitions,
        assignment_bytes=assigned.size,
    )


def _offset(
    where: TopicPartition,
    committed: CommittedOffset | None,
    end: tuple[int, float] | None,
    owner: AnyMember | None,
) -> m.Offset:
    return m.Offset(
        topic=where[0],
        partition=where[1],
        current_offset=committed.offset if committed else None,
        log_end_offset=end[0] if end else None,
        log_end_at=_moment(end[1]) if end else None,
        lag=lag_behind(end[0], committed.offset) if committed and end else None,
        metadata=committed.metadata if committed else None,
        committed_at=_moment(committed.at) if committed else None,
        member_id=owner.member_id if owner else None,
        client_id=owner.client_id if owner else None,
        client_host=owner.client_host if owner else None,
    )


def _moment(at: float | None) -> str | None:
    """None where it is not known, as which 0 counts too."""
    return timestamp(at) if at else None
