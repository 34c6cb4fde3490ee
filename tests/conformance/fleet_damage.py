"""Copies real journals and adds every kind of damage to the copies of their segments."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from group_sidecar.metrics.journal_segments import SEALED_SEGMENTS
from group_sidecar.metrics.records import ARRAY_VERSION, GREATEST, VERSION
from group_sidecar.spark.line_parsing import Fault

FALSE_SIDECAR = "liar"
"""A sidecar whose records follow the contract but are false. Their groups occur in no other records."""
BIGGEST = 2**63 - 1
"""The largest BIGINT. The sum of two of them overflows."""
_SNAPSHOT_KINDS = {"heartbeat", "group", "commit", "log_end"}
_GARBAGE = bytes(byte for byte in range(256) if byte not in b"\r\n")

Cells = dict[str, Any]


@dataclass
class Damage:
    """The journals of a moment, with damaged copies of segments in a folder of their own.

    Attributes:
        folder: the folder with all journals.
        faults: how many lines must be in quarantine, by fault.
        lines: some of these lines, as they are in their segments.
        missing: the number of records that are lost, by sidecar.
    """

    folder: Path
    faults: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)

    def segment(self, name: str, *lines: str | bytes) -> None:
        """Writes another segment of lines, which include their line ends."""
        path = self.folder / "copies" / "deep" / f"segment-{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() + b"\n" for line in lines))

    def put_aside(self, fault: Fault, *lines: str) -> None:
        """Notes lines that must be in quarantine with this fault."""
        self.faults[fault] += len(lines)
        self.lines += lines


def damaged(journals: Path, folder: Path) -> Damage:
    """Copies journals and damages the copy.

    Except for the records of two lines, each damaged record also exists undamaged.
    """
    shutil.copytree(journals, folder)
    damage = Damage(folder)
    segments = sorted(folder.rglob(SEALED_SEGMENTS))
    whole = next(path for path in segments if len(lines(path)) > 3)
    for break_it in (_cut, _mix, _garble, _copy, _show_unsealed):
        break_it(damage, lines(whole))
    for name, (fault, change) in _FALSE_FIELDS.items():
        text = json.dumps(json.loads(lines(whole)[1]) | change)
        damage.segment(name, text)
        damage.put_aside(fault, text)
    now = json.loads(lines(whole)[0])["emitted_at"]
    damage.segment(
        FALSE_SIDECAR, *(json.dumps(lie | {"observed_at": now, "emitted_at": now}) for lie in _false_records())
    )
    _lose_lines(damage, [path for path in segments if path != whole])
    return damage


def lines(segment: Path) -> list[str]:
    """Returns the lines of a segment."""
    return segment.read_text("utf-8").splitlines()


def _cut(damage: Damage, segment_lines: list[str]) -> None:
    """The disk was full, so the last line is incomplete."""
    half = segment_lines[-1][: len(segment_lines[-1]) // 2]
    damage.segment("cut", *segment_lines[:-1], half.encode())
    damage.put_aside(Fault.NOT_JSON_OBJECT, half)


def _mix(damage: Damage, segment_lines: list[str]) -> None:
    """Two writers wrote to one file, so one line is in the middle of another line."""
    first, second = segment_lines[0], segment_lines[1]
    mixed = first[:30] + second + first[30:]
    damage.segment("mixed", mixed, *segment_lines[2:])
    damage.put_aside(Fault.NOT_JSON_OBJECT, mixed)


def _garble(damage: Damage, segment_lines: list[str]) -> None:
    """Binary data on one long line, lines of zero bytes, and empty lines."""
    damage.segment("garbage", _GARBAGE * 400 + b"\n", b"\0" * 4096 + b"\n", b"\n", b"\xff\xfe\n", b"[]\nnull\n7\n")
    damage.faults[Fault.NOT_JSON_OBJECT] += 7


def _copy(damage: Damage, segment_lines: list[str]) -> None:
    """A collector copied one segment twice, and joined several segments into one file."""
    damage.segment("copy", *segment_lines)
    damage.segment("copies", *segment_lines, *reversed(segment_lines))


def _show_unsealed(damage: Damage, segment_lines: list[str]) -> None:
    """A segment was renamed while it was written, so its last line ends within a UTF-8 character."""
    torn = json.dumps(json.loads(segment_lines[0]) | {"client_id": "ä"}, ensure_ascii=False).encode()
    damage.segment("unsealed", *segment_lines, torn[: torn.index("ä".encode()) + 1])
    damage.faults[Fault.NOT_JSON_OBJECT] += 1


def _lose_lines(damage: Damage, segments: list[Path]) -> None:
    """A record and an array line are lost. Only gaps in the numbers show this. The next snapshot has their contents."""
    for version in (VERSION, ARRAY_VERSION):
        path, segment_lines, at = next(_between(segments, version))
        cells = json.loads(segment_lines[at])
        path.write_text("".join(f"{line}\n" for number, line in enumerate(segment_lines) if number != at))
        damage.missing[cells["sidecar"]] += cells.get("count", 1)


def _between(segments: list[Path], version: int) -> Iterator[tuple[Path, list[str], int]]:
    """Yields the lines of snapshots of this version that have other snapshots before and after them."""
    for path in segments:
        segment_lines = lines(path)
        for at in range(1, len(segment_lines) - 1):
            cells = json.loads(segment_lines[at])
            if cells["kind"] in _SNAPSHOT_KINDS and cells["version"] == version:
                yield path, segment_lines, at


def _false_record(kind: str, seq: int, **cells: Any) -> Cells:
    return {"version": 1, "kind": kind, "sidecar": FALSE_SIDECAR, "boot": "b" * 32, "seq": seq, **cells}


def _false_records() -> list[Cells]:
    """Returns records with the largest values, whose sums overflow. Their group and topic do not exist."""
    place = {"topic": FALSE_SIDECAR, "leader_epoch": -1}
    standing = {"protocol": "?", "state": "Cheerful", "protocol_type": "", "assignor": "", "max_size": 0}
    happened = {"reason": "boredom", "cause": None, "duration_seconds": GREATEST, "generation": GREATEST}
    refused = {"policy": "none", "error_code": GREATEST, "client_id": "", "client_host": "", "size": 0, "limit": 0}
    member = {"member_id": "", "instance_id": None, "client_id": "", "client_host": "", "change": "flew"}
    return [
        _false_record("heartbeat", 1, sample={"group_sidecar_lies_total": 1e308}),
        _false_record("heartbeat", 2, sample={"group_sidecar_lies_total": -1e308}),
        _false_record("heartbeat", 1, sample={}) | {"boot": "c" * 32},
        _false_record("heartbeat", GREATEST, sample={}) | {"boot": "c" * 32},
        _false_record("group", GREATEST, group=FALSE_SIDECAR, generation=GREATEST, members=GREATEST, **standing),
        *(
            _false_record("commit", 10 + part, group=FALSE_SIDECAR, partition=part, offset=0, **place)
            for part in range(3)
        ),
        *(
            _false_record("log_end", 20 + part, partition=part, offset=GREATEST, topic=FALSE_SIDECAR)
            for part in range(3)
        ),
        _false_record("log_end", 30, partition=0, offset=0, topic=FALSE_SIDECAR),
        *(
            _false_record("rebalance", 40 + number, group=FALSE_SIDECAR, members=GREATEST, **happened)
            for number in range(3)
        ),
        *(_false_record("refusal", 50 + number, group=FALSE_SIDECAR, **refused) for number in range(2)),
        _false_record("member", 60, group=FALSE_SIDECAR, **member),
    ]


_FALSE_FIELDS: dict[str, tuple[Fault, Cells]] = {
    "typed": (Fault.WRONG_TYPE, {"seq": "many"}),
    "nested": (Fault.WRONG_TYPE, {"partition": {"of": [1]}, "seq": []}),
    "dated": (Fault.WRONG_TYPE, {"emitted_at": "yesterday"}),
    "kind": (Fault.UNKNOWN_KIND, {"kind": "gossip"}),
    "version": (Fault.UNKNOWN_VERSION, {"version": 3}),
    "nameless": (Fault.MISSING_COLUMN, {"sidecar": None}),
    "negative": (Fault.OUT_OF_RANGE, {"seq": 0}),
    "future": (Fault.IN_FUTURE, {"emitted_at": "2999-12-31T23:59:59.999Z"}),
    "ancient": (Fault.TOO_OLD, {"emitted_at": "1970-01-01T00:00:00.000Z"}),
    "huge": (Fault.OUT_OF_RANGE, {"seq": BIGGEST}),
    "seen": (Fault.IN_FUTURE, {"observed_at": "2999-12-31T23:59:59.999Z"}),
}
