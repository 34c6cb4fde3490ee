"""Records of transactions in a partition log: which offsets survive, and how much work one step does."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.coordinator.state.partition_log import PartitionLog
from tests.coordinator.log.test_follower import ABORT, COMMIT, offset
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

    def values(self) -> Iterator[Held]:  # type: ignore[override]
        for held in super().values():
            self.visited += 1
            yield held


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


def _offsets(log: PartitionLog) -> dict[bytes, bytes]:
    return log.groups[b"g"].offsets if log.groups else {}
