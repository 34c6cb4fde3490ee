"""Turns facts and periodic snapshots into journal records, and numbers the records.

A fact becomes at most one record, when it happens. The current state is recorded again at intervals. So a reader that
starts late gets the whole state, and each time window has records even if the fleet is idle. Times are arguments, in
seconds since the epoch.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from uuid import uuid4

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.model.facts import (
    ClientRefused,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCompleted,
)
from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.metrics.array_lines import ArrayBuilder, Line, is_surely_valid
from group_sidecar.metrics.group_snapshot import GroupFigures, GroupWithOffsets, SeenLogEnd
from group_sidecar.metrics.records import (
    ARRAY_BODIES,
    ARRAY_VERSION,
    VERSION,
    ArrayEnvelope,
    Audit,
    Body,
    Commit,
    Envelope,
    Group,
    Heartbeat,
    LogEnd,
    Member,
    Rebalance,
    Record,
    Refusal,
    Sample,
    Timestamp,
    timestamp,
)

Observation = tuple[float, Body]
"""The time of an observation, in seconds since the epoch, and the record's body."""

_UNKNOWN_STATE_ERRORS = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
"""Errors of groups whose current state is unknown."""
RECORDS_PER_STEP = 50
"""While a snapshot builds array lines, it lets other tasks run after this many records: about half a millisecond."""
JOINED = "joined"
"""`change` in the record of a member that joined. For a member that left, `change` is a `Departure`."""


class RecordBuilder:
    """Builds, numbers and timestamps the records of one start of a sidecar.

    Records are built lazily while an iterator is consumed, all in one thread.

    Args:
        sidecar: id of the sidecar.
        contract_version: the version of the lines of snapshots: 1 for a line per record, 2 for array lines.

    Attributes:
        sidecar: id of the sidecar.
        boot: id of this start of the sidecar, as 32 hexadecimal digits.
    """

    def __init__(self, sidecar: str, contract_version: int = VERSION) -> None:
        self.sidecar = sidecar
        self._writes_arrays = contract_version == ARRAY_VERSION
        self.boot = uuid4().hex
        self._seq = 0

    def records_of(self, facts: Iterable[Fact], now: float) -> Iterator[Record]:
        """Yields the records of the facts. Some facts have no record."""
        for fact in facts:
            if (body := record_body(fact)) is not None:
                yield self._stamp((fact.at, body), timestamp(now))

    def snapshot(
        self, groups: Iterable[GroupWithOffsets | None], log_ends: Iterable[SeenLogEnd], sample: Sample, now: float
    ) -> Iterator[Line | None]:
        """Yields the lines of `snapshot_observations`, and None where other tasks may run."""
        emitted_at = timestamp(now)
        observations = snapshot_observations(groups, log_ends, sample, now)
        if self._writes_arrays:
            yield from self._array_lines(observations, emitted_at)
            return
        for observation in observations:
            yield None if observation is None else self._stamp(observation, emitted_at)

    def _array_lines(self, observations: Iterable[Observation | None], emitted_at: Timestamp) -> Iterator[Line | None]:
        """Yields array lines, and a single record for each observation that cannot be on an array line.

        Records get their numbers when their line is complete. So the numbers have no gap if the iterator is abandoned.
        """
        builders = {body: ArrayBuilder() for body in ARRAY_BODIES}
        collected = 0
        for observation in observations:
            if observation is None:
                yield None
                continue
            observed_at, body = observation
            builder, row = builders.get(type(body)), (timestamp(observed_at), body)
            if builder is None or not is_surely_valid(row, emitted_at):
                yield self._stamp(observation, emitted_at)
                continue
            collected += 1
            if builder.add(row):
                yield from self._complete(builder, emitted_at)
            elif collected % RECORDS_PER_STEP == 0:
                yield None
        for builder in builders.values():
            yield from self._complete(builder, emitted_at)

    def _complete(self, builder: ArrayBuilder, emitted_at: Timestamp) -> Sequence[Line]:
        """Returns the lines of the collected records, with the next numbers."""
        if not builder.rows:
            return ()
        envelope = ArrayEnvelope(
            version=ARRAY_VERSION,
            kind=builder.rows[0][1].KIND,
            sidecar=self.sidecar,
            boot=self.boot,
            seq=self._seq + 1,
            count=len(builder.rows),
            emitted_at=emitted_at,
        )
        self._seq += envelope.count
        return builder.take(envelope)

    def _stamp(self, observation: Observation, emitted_at: Timestamp) -> Record:
        observed_at, body = observation
        self._seq += 1
        envelope = Envelope(
            version=VERSION,
            kind=body.KIND,
            sidecar=self.sidecar,
            boot=self.boot,
            seq=self._seq,
            observed_at=timestamp(observed_at),
            emitted_at=emitted_at,
        )
        return Record(envelope=envelope, body=body)


def record_body(fact: Fact) -> Body | None:
    """Returns the record body of a fact. None if the journal has no record for the fact."""
    match fact:
        case RebalanceCompleted():
            return Rebalance(
                group=fact.group_id,
                generation=fact.generation,
                reason=fact.reason.value,
                cause=fact.cause.value,
                duration_seconds=fact.duration_seconds,
                members=fact.members,
            )
        case ClientRefused():
            return (Refusal if fact.enforced else Audit)(
                group=fact.group_id,
                policy=fact.policy,
                error_code=fact.error_code,
                client_id=fact.client_id,
                client_host=fact.client_host,
                principal=fact.principal or None,
                size=fact.size,
                limit=fact.limit,
            )
        case MemberJoined():
            return _member(fact, JOINED)
        case MemberGone():
            return _member(fact, fact.how.value)
        case _:
            return None


def _member(fact: MemberJoined | MemberGone, change: str) -> Member:
    return Member(
        group=fact.group_id,
        member_id=fact.member_id,
        instance_id=fact.instance_id,
        client_id=fact.client_id,
        client_host=fact.client_host,
        principal=fact.principal or None,
        change=change,
    )


def snapshot_observations(
    groups: Iterable[GroupWithOffsets | None], log_ends: Iterable[SeenLogEnd], sample: Sample, now: float
) -> Iterator[Observation | None]:
    """Yields the current state: a heartbeat, then each group with its committed offsets, then the log ends.

    The heartbeat is first, so that a journal that drops some records still reports that the sidecar is alive. Figures
    that are not finite are left out of the sample, because JSON cannot represent them.

    Args:
        groups: the groups from `group_snapshot.walk`, which yields None when other tasks may run. This function then
            yields None too. A group is left out if its log partition is still loading, or if the sidecar's broker does
            not lead the partition.
        log_ends: the log ends of all partitions.
        sample: figures of the sidecar itself.
        now: seconds since the epoch.
    """
    yield now, Heartbeat(sample={name: value for name, value in sample.items() if math.isfinite(value)})
    for visit in groups:
        if visit is None:
            yield None
            continue
        if visit.figures.view.error_code in _UNKNOWN_STATE_ERRORS:
            continue
        yield now, _group(visit.figures)
        for position in visit.each_position():
            commit = Commit(
                group=visit.figures.view.group_id,
                topic=position.topic,
                partition=position.partition,
                offset=position.offset,
                leader_epoch=position.leader_epoch,
            )
            yield position.committed_at, commit
    for (topic, partition), (offset, seen_at) in log_ends:
        yield seen_at, LogEnd(topic=topic, partition=partition, offset=offset)


def _group(figures: GroupFigures) -> Group:
    view = figures.view
    return Group(
        group=view.group_id,
        protocol=view.kind.value,
        state=view.state.value,
        protocol_type=view.protocol_type,
        assignor=_assignor(view),
        generation=view.generation,
        members=len(view.members),
        max_size=figures.limit,
    )


def _assignor(view: GroupView) -> str:
    """Returns the assignor that most members of a consumer group prefer, or else the view's protocol.

    If members prefer several assignors equally, the result is the view's protocol too.
    """
    named = view.consumer.assignors if view.consumer else ()
    return named[0] if len(named) == 1 else view.protocol
