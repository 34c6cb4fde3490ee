"""Facts and snapshots become records.

Owns: which fact becomes which record, what a restatement says and in what order, and the numbering of records.
Must not know: where records go, nor what time it is: time is an argument, in seconds since the epoch.

What changes is told once, when it happens. What stands is told again at intervals: so a reader that begins late has
all of it, and the windows of an idle fleet close.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from uuid import uuid4

from group_sidecar.coordinator.facts import (
    ClientRefused,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCompleted,
)
from group_sidecar.coordinator.views import GroupView, Snapshot
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
    timestamp,
)

MaxSize = Callable[[GroupView], int | None]
"""The most members that a group may have; None where there is no limit."""

Observation = tuple[float, Body]
"""When it was seen, in seconds since the epoch, and what."""

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
        return self._stamped(((fact.at, body) for fact in facts if (body := body_of(fact)) is not None), now)

    def restate(self, snapshot: Snapshot, sample: Sample, max_size: MaxSize, now: float) -> Iterator[Record]:
        """Records of all that stands at this moment; see `restatement`."""
        return self._stamped(restatement(snapshot, sample, max_size, now), now)

    def _stamped(self, observations: Iterable[Observation], now: float) -> Iterator[Record]:
        emitted_at = timestamp(now)
        for observed_at, body in observations:
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
            yield Record(envelope=envelope, body=body)


def body_of(fact: Fact) -> Body | None:
    """What a fact says as a record; None for facts that a restatement tells better, or the completion does."""
    match fact:
        case RebalanceCompleted():
            return Rebalance(
                group=fact.group_id,
                generation=fact.generation,
                reason=fact.reason.value,
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
            return _member(fact, fact.instance_id, JOINED)
        case MemberGone():
            return _member(fact, None, fact.how.value)
        case _:
            return None


def _member(fact: MemberJoined | MemberGone, instance_id: str | None, change: str) -> Member:
    return Member(
        group=fact.group_id,
        member_id=fact.member_id,
        instance_id=instance_id,
        client_id=fact.client_id,
        client_host=fact.client_host,
        change=change,
    )


def restatement(snapshot: Snapshot, sample: Sample, max_size: MaxSize, now: float) -> Iterator[Observation]:
    """All that stands: a heartbeat, then every group, committed offset and log end.

    The heartbeat comes first, so that a journal that has to drop some of it still says that the sidecar lives.
    Figures that are not finite are left out of the sample: JSON has no word for them.
    """
    yield now, Heartbeat(sample={name: value for name, value in sample.items() if math.isfinite(value)})
    for view in snapshot.groups:
        yield now, _group(view, max_size)
    for view in snapshot.groups:
        for (topic, partition), committed in view.offsets.items():
            yield (
                committed.at,
                Commit(
                    group=view.group_id,
                    topic=topic,
                    partition=partition,
                    offset=committed.offset,
                    leader_epoch=committed.leader_epoch,
                ),
            )
    for (topic, partition), (offset, seen_at) in snapshot.log_ends.items():
        yield seen_at, LogEnd(topic=topic, partition=partition, offset=offset)


def _group(view: GroupView, max_size: MaxSize) -> Group:
    return Group(
        group=view.group_id,
        protocol=view.kind.value,
        state=view.state.value,
        protocol_type=view.protocol_type,
        assignor=view.protocol,
        generation=view.generation,
        members=len(view.members),
        max_size=max_size(view),
    )
