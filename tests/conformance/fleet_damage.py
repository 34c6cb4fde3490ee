"""Real journals with every kind of damage done to copies of their segments.

Owns: the damage, and what must be said of it. Must not know: Spark.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from group_sidecar.metrics.journal import SEALED_SEGMENTS
from group_sidecar.metrics.records import GREATEST
from group_sidecar.spark.intake import Fault

LIAR = "liar"
"""A sidecar whose records are by the contract, and not true; its lies are about groups of its own."""
BIGGEST = 2**63 - 1
"""Of a BIGINT: two of them have no sum."""
_RESTATED = {"heartbeat", "group", "commit", "log_end"}
_GARBAGE = bytes(byte for byte in range(256) if byte not in b"\r\n")

Cells = dict[str, Any]


@dataclass
class Damage:
    """The journals of a moment, and beside them damaged copies of segments, in a folder of their own.

    Attributes:
        folder: all of it.
        faults: how many lines must stand in quarantine, by fault.
        lines: some of these lines, as they stand in their segments.
        missing: records that are lost for good, by sidecar.
    """

    folder: Path
    faults: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)

    def segment(self, name: str, *lines: str | bytes) -> None:
        """Writes one more segment, of lines with their ends."""
        path = self.folder / "copies" / "deep" / f"segment-{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() + b"\n" for line in lines))

    def put_aside(self, fault: Fault, *lines: str) -> None:
        """These lines must be found in quarantine for this reason."""
        self.faults[fault] += len(lines)
        self.lines += lines


def damaged(journals: Path, folder: Path) -> Damage:
    """Copies journals and damages the copy. What is damaged stands elsewhere undamaged, but for one record."""
    shutil.copytree(journals, folder)
    damage = Damage(folder)
    segments = sorted(folder.rglob(SEALED_SEGMENTS))
    whole = next(path for path in segments if len(lines(path)) > 3)
    for break_it in (_cut, _mix, _garble, _copy, _show_unsealed):
        break_it(damage, lines(whole))
    for name, (fault, change) in _LIES.items():
        text = json.dumps(json.loads(lines(whole)[1]) | change)
        damage.segment(name, text)
        damage.put_aside(fault, text)
    now = json.loads(lines(whole)[0])["emitted_at"]
    damage.segment(LIAR, *(json.dumps(lie | {"observed_at": now, "emitted_at": now}) for lie in _lies()))
    _lose_one(damage, [path for path in segments if path != whole])
    return damage


def lines(segment: Path) -> list[str]:
    """Its lines."""
    return segment.read_text("utf-8").splitlines()


def _cut(damage: Damage, told: list[str]) -> None:
    """The disk was full: the last line is half there."""
    half = told[-1][: len(told[-1]) // 2]
    damage.segment("cut", *told[:-1], half.encode())
    damage.put_aside(Fault.NOT_JSON_OBJECT, half)


def _mix(damage: Damage, told: list[str]) -> None:
    """Two writers wrote into one file: a line stands in the middle of another one."""
    first, second = told[0], told[1]
    mixed = first[:30] + second + first[30:]
    damage.segment("mixed", mixed, *told[2:])
    damage.put_aside(Fault.NOT_JSON_OBJECT, mixed)


def _garble(damage: Damage, told: list[str]) -> None:
    """Something that is no text, and much of it on one line; and lines of zeros and of nothing."""
    damage.segment("garbage", _GARBAGE * 400 + b"\n", b"\0" * 4096 + b"\n", b"\n", b"\xff\xfe\n", b"[]\nnull\n7\n")
    damage.faults[Fault.NOT_JSON_OBJECT] += 7


def _copy(damage: Damage, told: list[str]) -> None:
    """Whoever collects segments has taken one twice, and put several into one file."""
    damage.segment("copy", *told)
    damage.segment("copies", *told, *reversed(told))


def _show_unsealed(damage: Damage, told: list[str]) -> None:
    """Somebody has renamed a segment while it was written: its last line is torn in the middle of a letter."""
    torn = json.dumps(json.loads(told[0]) | {"client_id": "ä"}, ensure_ascii=False).encode()
    damage.segment("unsealed", *told, torn[: torn.index("ä".encode()) + 1])
    damage.faults[Fault.NOT_JSON_OBJECT] += 1


def _lose_one(damage: Damage, segments: list[Path]) -> None:
    """One record is gone of which nothing is left but its number: one that is told again at the next restatement."""
    for path, told, at in _between(segments):
        cells = json.loads(told[at])
        path.write_text("".join(f"{line}\n" for number, line in enumerate(told) if number != at))
        damage.missing[cells["sidecar"]] += 1
        return
    raise AssertionError("no record can be spared")


def _between(segments: list[Path]) -> Iterator[tuple[Path, list[str], int]]:
    """Records that have others before and behind them, and were not copied."""
    for path in segments:
        told = lines(path)
        for at in range(1, len(told) - 1):
            if json.loads(told[at])["kind"] in _RESTATED:
                yield path, told, at


def _lie(kind: str, seq: int, **cells: Any) -> Cells:
    return {"version": 1, "kind": kind, "sidecar": LIAR, "boot": "b" * 32, "seq": seq, **cells}


def _lies() -> list[Cells]:
    """The largest of everything, so that sums of it have no room; of a group and a topic that nobody has."""
    place = {"topic": LIAR, "leader_epoch": -1}
    standing = {"protocol": "?", "state": "Cheerful", "protocol_type": "", "assignor": "", "max_size": 0}
    happened = {"reason": "boredom", "cause": None, "duration_seconds": GREATEST, "generation": GREATEST}
    refused = {"policy": "none", "error_code": GREATEST, "client_id": "", "client_host": "", "size": 0, "limit": 0}
    member = {"member_id": "", "instance_id": None, "client_id": "", "client_host": "", "change": "flew"}
    return [
        _lie("heartbeat", 1, sample={"group_sidecar_lies_total": 1e308}),
        _lie("heartbeat", 2, sample={"group_sidecar_lies_total": -1e308}),
        _lie("heartbeat", 1, sample={}) | {"boot": "c" * 32},
        _lie("heartbeat", GREATEST, sample={}) | {"boot": "c" * 32},
        _lie("group", GREATEST, group=LIAR, generation=GREATEST, members=GREATEST, **standing),
        *(_lie("commit", 10 + part, group=LIAR, partition=part, offset=0, **place) for part in range(3)),
        *(_lie("log_end", 20 + part, partition=part, offset=GREATEST, topic=LIAR) for part in range(3)),
        _lie("log_end", 30, partition=0, offset=0, topic=LIAR),
        *(_lie("rebalance", 40 + number, group=LIAR, members=GREATEST, **happened) for number in range(3)),
        *(_lie("refusal", 50 + number, group=LIAR, **refused) for number in range(2)),
        _lie("member", 60, group=LIAR, **member),
    ]


_LIES: dict[str, tuple[Fault, Cells]] = {
    "typed": (Fault.WRONG_TYPE, {"seq": "many"}),
    "nested": (Fault.WRONG_TYPE, {"partition": {"of": [1]}, "seq": []}),
    "dated": (Fault.WRONG_TYPE, {"emitted_at": "yesterday"}),
    "kind": (Fault.UNKNOWN_KIND, {"kind": "gossip"}),
    "version": (Fault.UNKNOWN_VERSION, {"version": 2}),
    "nameless": (Fault.MISSING_COLUMN, {"sidecar": None}),
    "negative": (Fault.OUT_OF_RANGE, {"seq": 0}),
    "future": (Fault.IN_FUTURE, {"emitted_at": "2999-12-31T23:59:59.999Z"}),
    "ancient": (Fault.TOO_OLD, {"emitted_at": "1970-01-01T00:00:00.000Z"}),
    "huge": (Fault.OUT_OF_RANGE, {"seq": BIGGEST}),
    "seen": (Fault.IN_FUTURE, {"observed_at": "2999-12-31T23:59:59.999Z"}),
}
