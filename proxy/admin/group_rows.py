"""Converts one group, member or partition to its JSON model."""

from typing import NamedTuple

from group_sidecar.coordinator.model.facts import RebalanceCause
from group_sidecar.coordinator.model.views import CommittedOffset, MemberView, TopicPartition
from group_sidecar.coordinator.state.committed_offsets import RawOffsets
from group_sidecar.metrics.flight_recorder import LastRebalance
from group_sidecar.metrics.group_snapshot import GroupFigures, LogEndLookup, lag_behind
from group_sidecar.metrics.records import timestamp
from group_sidecar.proxy.admin import json_models as m
from group_sidecar.proxy.admin.member_rows import AnyMember, MemberAssignment, consumer_view, member_count
from group_sidecar.proxy.broker.group_queries import Node


class RebalanceHistory(NamedTuple):
    """The recorded rebalances of a group: the last one or None, and the number of rebalances in the last hour."""

    last: LastRebalance | None
    rebalances: int

    @property
    def cause(self) -> RebalanceCause | None:
        """The cause of the last rebalance, or None if no rebalance is recorded."""
        return self.last.cause if self.last else None


class OffsetsSnapshot(NamedTuple):
    """A group's committed offsets and the log ends at one moment. The offsets are decoded later."""

    offsets: RawOffsets
    log_end: LogEndLookup

    def row(self, where: TopicPartition, committed: CommittedOffset | None, owner: AnyMember | None) -> m.Offset:
        """Returns the row of the partition `where`, which may have no committed offset and no owner (None)."""
        return _offset(where, committed, self.log_end(where), owner)


def summary(figures: GroupFigures, past: RebalanceHistory) -> m.GroupSummary:
    """Returns a group's row in the list of groups. `past`: the group's recorded rebalances."""
    view, consumer = figures.view, consumer_view(figures.view)
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
        lacking=view.fallback_reason,
        offsets_lacking=view.offsets_fallback_reason,
    )


def coordinator_row(node: Node | None) -> m.Coordinator | None:
    """Returns the model of a group's coordinator."""
    return m.Coordinator(id=node.id, host=node.host, port=node.port) if node else None


def member_row(assigned: MemberAssignment) -> m.Member:
    """Returns the model of a member and its assignment."""
    member = assigned.member
    return m.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        principal=member.principal,
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
        principal=owner.principal if owner else None,
    )


def _moment(at: float | None) -> str | None:
    """Returns a time in ISO 8601, or None if the time is unknown (None or 0)."""
    return timestamp(at) if at else None
