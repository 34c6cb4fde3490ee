"""Generates the events of a simulated fleet: rebalances with their causes, membership changes, and refusals."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.fleet_shape import EDGE, NEVER, Shape
from group_sidecar.coordinator.model.facts import Departure, RebalanceCause, RebalanceReason
from group_sidecar.metrics.record_builder import JOINED
from group_sidecar.metrics.records import Audit, Body, Member, Rebalance, Refusal

CAUSES: Sequence[tuple[RebalanceCause, RebalanceReason, float, str | None]] = (
    (RebalanceCause.NEW_MEMBER, RebalanceReason.JOIN, 0.34, JOINED),
    (RebalanceCause.MEMBER_LEFT, RebalanceReason.LEAVE, 0.26, Departure.LEFT),
    (RebalanceCause.SESSION_EXPIRED, RebalanceReason.EXPIRED, 0.2, Departure.EXPIRED),
    (RebalanceCause.TOPIC_METADATA, RebalanceReason.METADATA, 0.08, None),
    (RebalanceCause.MEMBER_REMOVED, RebalanceReason.LEAVE, 0.07, Departure.REMOVED_BY_POLICY),
    (RebalanceCause.UNKNOWN, RebalanceReason.UNKNOWN, 0.05, None),
)
"""Each cause of a rebalance, with its reason, its share of all rebalances, and the membership change, if any."""


REFUSED = 0.3
"""The share of refusals and audits together among all events. Refusals and audits are equally frequent."""
ERROR_CODES = {Refusal: 81, Audit: 26}
"""The error codes GROUP_MAX_SIZE_REACHED and INVALID_SESSION_TIMEOUT."""


class Event(NamedTuple):
    """An event, with its time in milliseconds since the beginning. `rebalanced` is the index of the group, or -1."""

    moment: int
    body: Body
    rebalanced: int


def events(shape: Shape, sidecar: int) -> Iterator[Event]:
    """Yields the events of a sidecar's groups in order. A few groups have most of the events."""
    fleet, random = shape.fleet, np.random.default_rng((shape.fleet.seed, sidecar, 2))
    groups = np.flatnonzero((shape.home == sidecar) & (shape.moved_at == NEVER))
    if len(groups) == 0:
        return
    number = int(random.poisson(fleet.facts * fleet.hours * len(groups)))
    moments = np.sort(random.integers(EDGE, fleet.length - EDGE, number)).tolist()
    chosen = groups[np.minimum(random.zipf(1.3, number) - 1, len(groups) - 1)].tolist()
    causes = random.choice(len(CAUSES), number, p=[share for _, _, share, _ in CAUSES]).tolist()
    for moment, group, cause, kind in zip(moments, chosen, causes, random.random(number).tolist(), strict=True):
        if kind < REFUSED:
            yield Event(moment, _verdict(shape, group, Refusal if kind < REFUSED / 2 else Audit), -1)
        else:
            yield from _rebalanced(shape, group, moment, cause, float(random.exponential(4)))


def _verdict(shape: Shape, group: int, kind: type[Refusal | Audit]) -> Body:
    size = int(shape.members[group])
    return kind(
        group=shape.groups[group],
        policy="group_max_size" if kind is Refusal else "group_min_session_timeout_ms",
        error_code=ERROR_CODES[kind],
        client_id=f"client-{size % 7}",
        client_host="/10.0.0.1",
        principal=None,
        size=size + 1,
        limit=size,
    )


def _rebalanced(shape: Shape, group: int, moment: int, cause: int, seconds: float) -> Iterator[Event]:
    why, reason, _, change = CAUSES[cause]
    name, members = shape.groups[group], int(shape.members[group])
    if change is not None:
        member = f"client-{moment}-0b3ae9b1"
        host = f"/10.0.{group % 250}.{moment % 250}"
        yield Event(
            moment,
            Member(
                group=name,
                member_id=member,
                instance_id=None,
                client_id="client",
                client_host=host,
                principal=None,
                change=change,
            ),
            -1,
        )
    rebalance = Rebalance(
        group=name,
        generation=-1,
        reason=reason.value,
        cause=why.value,
        duration_seconds=round(seconds, 3),
        members=members,
    )
    yield Event(moment, rebalance, group)
