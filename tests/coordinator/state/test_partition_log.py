"""Records of transactions in a partition log: which offsets survive, and how much work one step does."""

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.coordinator.state.partition_log import RECORDS_PER_STEP, PartitionLog
from tests.coordinator.log.test_follower import ABORT, COMMIT, Reader, offset
from tests.coordinator.model_log import Entry, batch

Held = dict[bytes, tuple[int, bytes | None]]
PLAIN = -1
STEPS = st.tuples(
    st.sampled_from(["write", "write", "delete", "commit", "abort"]), st.integers(PLAIN, 3), st.integers(0, 2)
)


def replay(log: PartitionLog, *entries: Entry, producer: int = PLAIN) -> Iterator[None]:
    """Replays a batch of records. A producer's batch belongs to its transaction."""
    return log.replay(batch(log.next_offset, list(entries), producer_id=producer, transactional=producer != PLAIN))


def end(log: PartitionLog, producer: int, marker: bytes = COMMIT) -> Iterator[None]:
    """Replays the marker that ends a transaction."""
    entries: list[Entry] = [(marker, b"")]
    return log.replay(batch(log.next_offset, entries, producer_id=producer, transactional=True, control=True))


class Pending(dict[int, Held]):
    """Pending offsets by producer. Counts the transactions that a loop over them visits."""

    visited = 0

    def __iter__(self) -> Iterator[int]:
        self.visited += len(self)
        return super().__iter__()

    def values(self) -> Iterator[Held]:  # type: ignore[override]
        for held in super().values():
            self.visited += 1
            yield held

    def items(self) -> Iterator[tuple[int, Held]]:  # type: ignore[override]
        for entry in super().items():
            self.visited += 1
            yield entry


def test_write_does_not_visit_open_transactions() -> None:
    """The work for a record does not grow with the number of open transactions of its group."""
    log = PartitionLog(0)
    for producer in range(300):
        list(replay(log, offset(0, 1), producer=producer))
    group = log.groups[b"g"]
    group.pending = pending = Pending(group.pending)
    list(replay(log, *(offset(partition, 2) for partition in range(300))))
    for producer in range(300):
        list(end(log, producer))
    assert pending.visited == 0
    assert (group.pending, group.pending_keys, group.overwritten, log.counted_bytes) == ({}, {}, {}, 0)


@given(st.lists(STEPS, max_size=40))
def test_latest_write_survives_transactions(steps: list[tuple[str, int, int]]) -> None:
    """A transaction commits an offset only if no later write of the same offset has been committed before."""
    log, expected, held = PartitionLog(0), dict[bytes, tuple[int, bytes | None]](), dict[int, Held]()
    for what, producer, partition in steps:
        if what in ("write", "delete"):
            at = log.next_offset
            key, value = offset(partition, at if what == "write" else None)
            written = expected if producer == PLAIN else held.setdefault(producer, {})
            written[key[5:]] = at, value
            list(replay(log, (key, value), producer=producer))
        elif producer != PLAIN:
            list(end(log, producer, COMMIT if what == "commit" else ABORT))
            ended = held.pop(producer, {})
            if what == "commit":
                expected |= {key: each for key, each in ended.items() if each[0] > expected.get(key, (-1,))[0]}
    assert _offsets(log) == {key: value for key, (_, value) in expected.items() if value is not None}
    open_keys = {key for each in held.values() for key in each}
    for group in log.groups.values():
        log.recount(group)
        assert group.pending_keys.keys() == open_keys
        assert group.overwritten.keys() <= open_keys
        assert (group.pending, log.size) == (held, len(group.offsets) + sum(map(len, held.values())))


MANY = 5 * RECORDS_PER_STEP


def many(*groups: str) -> list[Entry]:
    """Returns MANY records, which are spread over the groups."""
    return [offset(number, number, groups[number % len(groups)]) for number in range(MANY)]


def state(log: PartitionLog) -> tuple[int, int]:
    """Returns how many offsets are pending, and how many are committed."""
    groups = log.groups.values()
    return sum(group.pending_count for group in groups), sum(len(group.offsets) for group in groups)


def largest_step(log: PartitionLog, steps: Iterator[None]) -> int:
    """Runs all steps. Returns how many offsets became pending, became committed, or were dropped in one step."""
    largest, before = 0, state(log)
    for _ in chain(steps, [None]):
        after = state(log)
        largest = max(largest, *(abs(new - old) for new, old in zip(after, before, strict=True)))
        before = after
    return largest


@pytest.mark.parametrize("marker", [COMMIT, ABORT])
@pytest.mark.parametrize("groups", [("g",), ("g", "h"), tuple(map(str, range(100)))])
def test_long_transaction_is_applied_in_steps(groups: tuple[str, ...], marker: bytes) -> None:
    """Neither the records of a transaction nor its end are applied in one long step."""
    log = PartitionLog(0)
    assert largest_step(log, replay(log, *many(*groups), producer=1)) <= 2 * RECORDS_PER_STEP
    assert state(log) == (MANY, 0)
    assert largest_step(log, end(log, 1, marker)) <= 2 * RECORDS_PER_STEP
    assert state(log) == (0, MANY if marker == COMMIT else 0)
    assert not log.has_partial_batch


def test_many_ended_transactions_are_applied_in_steps() -> None:
    """The offsets that several markers of one Fetch reply commit count towards the same step."""
    log, count = PartitionLog(0), RECORDS_PER_STEP // 2
    for producer in range(10):
        list(replay(log, *(offset(producer * count + each, 1) for each in range(count)), producer=producer))
    entries: list[Entry] = [(COMMIT, b"")]
    markers = [
        batch(log.next_offset + each, entries, producer_id=each, transactional=True, control=True) for each in range(10)
    ]
    assert largest_step(log, log.replay(b"".join(markers))) <= 2 * RECORDS_PER_STEP
    assert state(log) == (0, 10 * count)


@pytest.mark.parametrize("marker", [COMMIT, ABORT])
def test_half_ended_transaction_is_left_to_broker(marker: bytes) -> None:
    """While a transaction is being ended in steps, the offsets of all its groups are left to the broker."""
    reader = Reader()
    list(replay(reader.log, *many("g", "h"), producer=1))
    reader.catch_up(1, 1)
    between = [(reader.offsets(1, "g"), reader.offsets(1, "h")) for _ in end(reader.log, 1, marker)]
    assert len(between) >= 4
    assert all(isinstance(each, FallbackReason) for pair in between for each in pair)
    reader.catch_up(1, 1)
    assert [len(reader.offsets(1, group)) for group in ("g", "h")] == ([MANY // 2] * 2 if marker == COMMIT else [0, 0])


def test_half_read_transaction_is_left_to_broker() -> None:
    """While a long batch of a transaction is being read in steps, no offset of the partition is answered."""
    reader = Reader(load=[offset(0, 1, "other")])
    between = [reader.offsets(0, "other") for _ in replay(reader.log, *many("g"), producer=1)]
    assert set(map(str, between)) == {FallbackReason.IN_DOUBT}
    assert reader.offsets(0, "other") == {("t", 0): 1}


@pytest.mark.parametrize("stop_after", [1, 2, 3])
@pytest.mark.parametrize("marker", [COMMIT, ABORT])
def test_stopped_replay_continues(marker: bytes, stop_after: int) -> None:
    """A batch whose replay was stopped counts as partial until it has been read again, with the same result."""
    reader = Reader()
    log = reader.log
    for steps in (partial(replay, log, *many("g", "h", "i"), producer=1), partial(end, log, 1, marker)):
        at = log.next_offset
        stopped = steps()
        list(islice(stopped, stop_after))
        stopped.close()  # type: ignore[attr-defined]
        assert (log.has_partial_batch, log.next_offset) == (True, at)
        reader.catch_up(1, 1)  # An aborted transaction may leave a group without any record. It is then forgotten.
        assert isinstance(reader.offsets(1, "g"), FallbackReason)
        list(steps())
        assert not log.has_partial_batch
    reader.catch_up(1, 1)
    assert (state(log), log.counted_bytes) == ((0, MANY if marker == COMMIT else 0), 0)
    assert set(log.groups) == ({b"g", b"h", b"i"} if marker == COMMIT else set())


def test_compacted_batch_is_no_longer_partial() -> None:
    """A batch whose replay was stopped, and which compaction has removed since, no longer counts as partial."""
    log = PartitionLog(0)
    stopped = replay(log, *many("g", "h", "i"))
    next(stopped)
    stopped.close()  # type: ignore[attr-defined]
    assert log.has_partial_batch
    list(log.replay(batch(log.next_offset + MANY, [offset(0, 1)])))
    assert not log.has_partial_batch


def _offsets(log: PartitionLog) -> dict[bytes, bytes]:
    return log.groups[b"g"].offsets if log.groups else {}
