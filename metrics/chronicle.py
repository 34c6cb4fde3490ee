"""Facts and what stands become records.

Owns: which fact becomes which record, what a restatement says and in what order, and the numbering of records.
Must not know: where records go, nor what time it is: time is an argument, in seconds since the epoch.

What changes is told once, when it happens. What stands is told again at intervals: so a reader that begins late has
all of it, and the windows of an idle fleet close.
"""

import math
from collections.abc import Iterable, Iterator
from uuid import uuid4

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.facts import (
    ClientRefused,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCompleted,
)
from group_sidecar.coordinator.views import GroupView
from group_sidecar.metrics.records import (
    VERSION,
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
from group_sidecar.metrics.survey import GroupFigures, LogEndSeen, Visit

Observation = tuple[float, Body]
"""When it was seen, in seconds since the epoch, and what."""

_UNTOLD = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
"""Of groups of which the sidecar does not know how they stand now."""
JOINED = "joined"
"""The change of a member record for a member that came; for one that went it is a `Departure`."""


class Chronicle:
    """Numbers and stamps the records of one start of a sidecar.

    Records are made as the iterators are consumed, all in one thread.

    Attributes:
        sidecar: id of the sidecar.
        boot: this start of it, as 32 hexadecimal digits.
    """

    def __init__(self, sidecar: str) -> None:
        self.sidecar = sidecar
        self.boot = uuid4().hex
        self._seq = 0

    def tell(self, facts: Iterable[Fact], now: float) -> Iterator[Record]:
        """Records of those facts that have one."""
        for fact in facts:
            if (body := body_of(fact)) is not None:
                yield self._stamp((fact.at, body), timestamp(now))

    def restate(
        self, groups: Iterable[Visit | None], log_ends: Iterable[LogEndSeen], sample: Sample, now: float
    ) -> Iterator[Record | None]:
        """Records of all that stands; see `restatement`."""
        emitted_at = timestamp(now)
        for observation in restatement(groups, log_ends, sample, now):
            yield None if observation is None else self._stamp(observation, emitted_at)

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


def body_of(fact: Fact) -> Body | None:
    """What a fact says as a record; None for facts that a restatement tells better, or the completion does."""
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
        change=change,
    )


def restatement(
    groups: Iterable[Visit | None], log_ends: Iterable[LogEndSeen], sample: Sample, now: float
) -> Iterator[Observation | None]:
    """All that stands: a heartbeat, then each group with its committed offsets, then the log ends.

    The heartbeat comes first, so that a journal that has to drop some of it still says that the sidecar lives.
    Figures that are not finite are left out of the sample: JSON has no word for them.

    Args:
        groups: as `survey.walk` has them; None, where it breathes, is passed on. A group whose partition of the log is
            being read, as when the broker cannot be reached, is left out: another broker may coordinate it by now.
        log_ends: of all partitions.
        sample: figures of the sidecar alone.
        now: seconds since the epoch.
    """
    yield now, Heartbeat(sample={name: value for name, value in sample.items() if math.isfinite(value)})
    for visit in groups:
        if visit is None:
            yield None
            continue
        if visit.figures.view.error_code in _UNTOLD:
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
    """Of a consumer group the one that its members name; where none does, the broker's default, it is not known."""
    named = view.consumer.assignors if view.consumer else ()
    return named[0] if len(named) == 1 else view.protocol
