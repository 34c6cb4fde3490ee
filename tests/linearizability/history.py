"""Operations on committed offsets, as clients saw them, and the files that hold them.

A file has one operation in each line, as JSON:

- `key`: group and partition. Each key is checked on its own.
- `client`: the client of the operation. A client has one operation at a time.
- `kind`: `commit`, `commit_again` (a copy of a commit that a client may have sent again), `delete`, `read`,
  `stable_read` (with `require_stable`), `stage` (TxnOffsetCommit), `end_commit` or `end_abort` (EndTxn).
- `value`: the offset that was written or read; -1 if none was read.
- `txn`: the number of the transaction; 0 outside transactions.
- `from`, `to`: nanoseconds of the monotonic clock, which all processes of a machine share. `to` is null if the
  operation may take effect at any later time: its result is unknown, or it is the end of a transaction that was not
  seen to be complete. The markers of a transaction are written after the reply to EndTxn.

A read without a result, and a write that certainly failed, are not recorded.
"""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

NO_OFFSET = -1
OPERATIONS_SUFFIX = ".operations.jsonl"


@dataclass(frozen=True)
class Operation:
    """One operation on one key. The fields are those of the file, `began` for `from` and `ended` for `to`."""

    key: str
    client: str
    kind: str
    began: int
    ended: int | None
    value: int = NO_OFFSET
    txn: int = 0

    def line(self) -> str:
        """Returns the line of the file."""
        fields = asdict(self)
        fields |= {"from": fields.pop("began"), "to": fields.pop("ended")}
        return json.dumps(fields) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Operation":
        """Reads a line of the file."""
        fields = json.loads(line)
        return cls(began=fields.pop("from"), ended=fields.pop("to"), **fields)


class LineFile:
    """A file to which several threads append lines."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._lock = threading.Lock()

    def append(self, line: str) -> None:
        """Appends a line that ends with a line feed."""
        with self._lock:
            self._file.write(line)


def key_of(group: str, partition: int) -> str:
    """Returns the key of a group's partition."""
    return f"{group}/{partition}"


def now() -> int:
    """Returns the time in nanoseconds, for `began` and `ended`."""
    return time.monotonic_ns()


def read(paths: Iterable[Path]) -> Iterator[Operation]:
    """Yields the operations of all files."""
    for path in paths:
        with path.open() as file:
            yield from map(Operation.from_line, file)


def checkable(operations: Iterable[Operation]) -> list[Operation]:
    """Returns the operations that the checker needs. Each unknown result that is left out saves the checker time.

    On a key without transactions, a commit with an unknown result is left out if no read returned its value. If a
    history with this commit is linearizable, the same order without the commit is valid too, because no read is between
    the commit and the next write.
    """
    found = list(operations)
    with_transactions = {each.key for each in found if each.txn}
    seen = {(each.key, each.value) for each in found if each.kind in ("read", "stable_read")}
    return [
        each
        for each in found
        if not (
            each.kind == "commit"
            and each.ended is None
            and each.key not in with_transactions
            and (each.key, each.value) not in seen
        )
    ]


def made_stale(operations: Iterable[Operation]) -> list[Operation] | None:
    """Returns the operations with one read replaced by a stale one; None if there is no fitting read.

    The read gets a value that an earlier read of the same key returned. A commit replaced this value and was complete
    before the read began. All values are unique, so no order of the operations explains the read.
    """
    found = sorted(operations, key=lambda each: each.began)
    first_reads: dict[str, Operation] = {}
    replaced: dict[str, int] = {}
    for number, each in enumerate(found):
        first = first_reads.get(each.key)
        if each.kind not in ("read", "stable_read"):
            if first and each.kind == "commit" and each.ended and each.began > (first.ended or 0):
                replaced[each.key] = min(each.ended, replaced.get(each.key, each.ended))
        elif first is None:
            if each.value != NO_OFFSET:
                first_reads[each.key] = each
        elif each.value != first.value and each.began > replaced.get(each.key, each.began):
            found[number] = replace(each, value=first.value)
            return found
    return None
