"""Tests histories and their check without brokers."""

import io
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.go_tools import go
from tests.linearizability import checker, failovers, members, record_check
from tests.linearizability.history import NO_OFFSET, LineFile, Operation, checkable, made_stale, read

KEY = "group/0"


def operation(kind: str, value: int, began: int, ended: int | None, *, txn: int = 0, client: str = "") -> Operation:
    """Returns an operation on one key. Each has its own client unless `client` is given."""
    return Operation(KEY, client or f"client-{began}", kind, began, ended, value, txn)


def steps(*done: tuple[str, int] | tuple[str, int, int]) -> list[Operation]:
    """Returns operations in sequence, from kind, value and transaction. The end of a transaction has no end time."""
    found = []
    for number, (kind, value, *txn) in enumerate(done):
        ended = None if kind.startswith("end") else 10 * number + 5
        found.append(operation(kind, value, 10 * number, ended, txn=sum(txn)))
    return found


STALE = steps(("commit", 1), ("read", 1), ("commit", 2), ("read", 1))
UNKNOWN = [operation("commit", 1, 0, 5), operation("commit", 2, 10, None), *steps(("read", 1))]
LINEARIZABLE = {
    "a read of the last commit": steps(("read", NO_OFFSET), ("commit", 1), ("read", 1), ("commit", 2), ("read", 2)),
    "a delete": steps(("commit", 1), ("delete", NO_OFFSET), ("read", NO_OFFSET)),
    "a read during a commit": [operation("commit", 1, 0, 100), *steps(("read", NO_OFFSET), ("read", 1))],
    "an unknown commit is seen late": [
        operation("commit", 1, 0, None),
        operation("read", NO_OFFSET, 10, 15),
        operation("read", 1, 20, 25),
    ],
    "a transaction is seen late": steps(
        ("stage", 1, 1), ("end_commit", 1, 1), ("read", NO_OFFSET), ("read", 1), ("stable_read", 1)
    ),
    "a commit that was sent twice": [
        *steps(("commit", 1), ("commit", 2), ("read", 2), ("read", 1)),
        operation("commit_again", 1, 0, None, client="again"),
    ],
    "an aborted transaction": steps(("commit", 1), ("stage", 2, 1), ("end_abort", 2, 1), ("stable_read", 1)),
    "a later commit replaces a pending offset": steps(
        ("stage", 1, 1), ("commit", 2), ("end_commit", 1, 1), ("stable_read", 2)
    ),
    "a delete drops a pending offset": steps(
        ("stage", 1, 1), ("delete", NO_OFFSET), ("end_commit", 1, 1), ("stable_read", NO_OFFSET)
    ),
    "the later of two pending offsets stays": steps(
        ("stage", 1, 1), ("stage", 2, 2), ("end_commit", 2, 2), ("end_commit", 1, 1), ("stable_read", 2)
    ),
}
NOT_LINEARIZABLE = {
    "a stale read": STALE,
    "a read of what nobody has written": steps(("commit", 1), ("read", 3)),
    "a lost commit": steps(("commit", 1), ("read", NO_OFFSET)),
    "a commit that is undone": [
        operation("commit", 1, 0, None),
        *(operation("read", value, began, began + 5) for value, began in ((1, 10), (NO_OFFSET, 20))),
    ],
    "a deleted offset": steps(("commit", 1), ("delete", NO_OFFSET), ("read", 1)),
    "an aborted offset": steps(("commit", 1), ("stage", 2, 1), ("end_abort", 2, 1), ("read", 2)),
    "an offset of an open transaction": steps(("stage", 1, 1), ("read", 1)),
    "a stable read before the end of a transaction": steps(("commit", 1), ("stage", 2, 1), ("stable_read", 1)),
    "a pending offset after a later commit": steps(("stage", 1, 1), ("commit", 2), ("end_commit", 1, 1), ("read", 1)),
}


@pytest.mark.parametrize("name", LINEARIZABLE)
def test_linearizable(name: str) -> None:
    go()
    found = checker.check(LINEARIZABLE[name])
    assert (found.violations, found.undecided, found.keys) == ([], [], 1)


@pytest.mark.parametrize("name", NOT_LINEARIZABLE)
def test_not_linearizable(name: str, tmp_path: Path) -> None:
    """The checker names the key of a history that is not linearizable, and draws a picture."""
    go()
    [violation] = checker.check(NOT_LINEARIZABLE[name], tmp_path).violations
    assert violation["key"] == KEY
    assert Path(violation["picture"]).is_file()


def test_first_operation_that_does_not_fit_is_named() -> None:
    go()
    [violation] = checker.check(STALE).violations
    assert (violation["first"], violation["clock"]) == ("read 1 txn 0 by client-30", 30)


def test_keys_are_independent() -> None:
    """A commit of one partition does not affect the reads of another partition."""
    go()
    other = [Operation("group/1", "other", "read", 100, 101)]
    assert checker.check([*steps(("commit", 1)), *other]).violations == []


def test_recorded_lines_are_read_again(tmp_path: Path) -> None:
    file = io.StringIO()
    lines = LineFile(file)
    operations = [*STALE, operation("stage", 4, 50, None, txn=7)]
    for each in operations:
        lines.append(each.line())
    (tmp_path / "file").write_text(file.getvalue())
    assert list(read([tmp_path / "file"])) == operations


def test_unknown_commits_that_nobody_read_are_left_out() -> None:
    assert checkable(UNKNOWN) == [UNKNOWN[0], UNKNOWN[2]]
    seen = [*UNKNOWN, operation("read", 2, 20, 25)]
    assert checkable(seen) == seen
    with_transaction = [*UNKNOWN, operation("stage", 3, 20, 25, txn=1)]
    assert checkable(with_transaction) == with_transaction


def test_stale_read_can_be_planted() -> None:
    right = steps(("commit", 1), ("read", 1), ("commit", 2), ("read", 2))
    assert made_stale(right) == STALE
    assert made_stale(steps(("commit", 1), ("read", 1), ("read", 1))) is None


def test_reads_at_a_leader_with_an_old_high_watermark(tmp_path: Path) -> None:
    """The brokers' logs explain a stale read of a partition's groups after a failover, and no other read."""
    present = datetime.now()
    began = time.time_ns()
    start = "Leader __consumer_offsets-{} with topic id Some(x) starts at leader epoch 1 from offset {} with partition"
    lines = [
        f"{present:%H:%M:%S.%f}"[:-3] + f" INFO  logger [Broker id=1] {start.format(partition, end)} epoch 4, high "
        f"watermark 236, ISR [1], adding replicas [] . Previous leader Some(3) and previous leader epoch was 0."
        for partition, end in ((3, 243), (4, 236))
    ]
    log = tmp_path / "broker.log"
    log.write_text("\n".join(lines))
    [lag] = failovers.lags([log], clock_offset=0)
    assert lag.partition == 3
    assert abs(lag.since - began) < 10**9
    group_of_3, group_of_4 = "run2-4-6", "run2-4-7"
    reads = [
        Operation(f"{group}/0", "client", kind, lag.since + 10**9, lag.since + 2 * 10**9)
        for group in (group_of_3, group_of_4)
        for kind in ("read", "commit")
    ]
    early = Operation(f"{group_of_3}/0", "client", "read", lag.since - 2, lag.since - 1)
    assert failovers.unexplained([*reads, early], [lag], 6, forwarded=None) == [*reads[1:], early]
    forwarded = failovers.ForwardedReads([("client", reads[0].began + 5), ("other", early.began)])
    assert failovers.unexplained([*reads, early], [lag], 6, forwarded) == [*reads[1:], early]
    began = reads[0].began
    repeated = failovers.ForwardedReads([("client", began + 5)], [("client", began + 4), ("client", began + 6)])
    assert failovers.unexplained([*reads, early], [lag], 6, repeated) == [*reads, early]
    resent = failovers.ForwardedReads([("client", began + 7)], [("client", began + 4), ("client", began + 6)])
    assert failovers.unexplained([*reads, early], [lag], 6, resent) == [*reads[1:], early]
    sidecars_own = failovers.ForwardedReads([("client", began - 1), ("other", began + 5)])
    assert failovers.unexplained([*reads, early], [lag], 6, sidecars_own) == [*reads, early]


def test_generations() -> None:
    replies = [
        members.GenerationReply(at=1, group="g", generation=1, member="a", size=3),
        members.GenerationReply(at=2, group="g", generation=1, member="a", partitions=(0, 1)),
        members.GenerationReply(at=3, group="g", generation=1, member="b", partitions=(2,)),
        members.GenerationReply(at=4, group="g", generation=2, member="b", partitions=(0,)),
        members.GenerationReply(at=5, group="h", generation=1, member="b", partitions=(0,)),
    ]
    assert members.check(replies, limit=3) == members.Generations(3, [], [])
    shared = members.GenerationReply(at=6, group="g", generation=1, member="b", partitions=(1,))
    found = members.check([*replies, shared], limit=2)
    assert found.shared == ["g generation 1: partition 1 of a, b"]
    assert found.large == [("g generation 1: 3 members", 1e-9)]


@pytest.mark.parametrize(
    ("found", "problems"),
    [
        (["0", "1", "2"], []),
        (["0", "1", "2", "3"], []),
        (["0", "2"], ["partition 0: 1 was acknowledged and lost"]),
        (["0", "1", "1", "2"], ["partition 0: 1 2 times"]),
        (["0", "2", "1"], ["partition 0: 1 after 2"]),
    ],
)
def test_acknowledged_records(found: list[str], problems: list[str]) -> None:
    assert record_check.check_plain([(0, 0), (0, 1), (0, 2), (1, 5)], {0: found}) == problems


@pytest.mark.parametrize(
    ("found", "problems"),
    [
        (["1:0", "1:1"], []),
        (["1:0", "1:1", "3:0", "3:1"], []),
        (["1:0"], ["transaction 1 is committed and has 1 of 2 records"]),
        (["1:0", "1:1", "2:0"], ["transaction 2 is aborted and has 1 of 2 records"]),
        (["1:0", "1:1", "3:1"], ["transaction 3 is unknown and has 1 of 2 records"]),
        (["1:0", "1:1", "1:1"], ["1:1 2 times"]),
        (["3:0", "1:0", "1:1", "3:1"], ["partition 0: transactions are not in order"]),
    ],
)
def test_transactions(found: list[str], problems: list[str]) -> None:
    outcomes = {1: "committed", 2: "aborted", 3: "unknown"}
    assert record_check.check_transactions(outcomes, {0: found}, 2) == problems


def test_records_that_the_group_has_not_read() -> None:
    """Each acknowledged or committed record that the group has not read is reported."""
    produced = record_check.Produced([(2, 7)], {1: "committed", 2: "aborted", 3: "unknown"})
    required = produced.required("plain", "transactional", size=2, partitions=3)
    assert required == {("plain", "2/7"), ("transactional", "0/1:0"), ("transactional", "1/1:1")}
    assert record_check.check_consumed(required, required) == []
    lacking = required - {("plain", "2/7")}
    assert record_check.check_consumed(required, lacking) == ["the group has not read 2/7 of plain"]
