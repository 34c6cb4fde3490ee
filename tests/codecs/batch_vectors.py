"""Record batches that Kafka's own classes wrote, with what they read out of them: batch_vectors.txt, read.

BatchVectors.java says what the lines are.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from group_sidecar.codecs.record_batches import Record

FILE = Path(__file__).with_name("batch_vectors.txt")


class Head(NamedTuple):
    """A batch as Kafka sees it. `records`, their number, is None in formats 0 and 1, `marker` where there is none."""

    base_offset: int
    next_offset: int
    magic: int
    producer_id: int
    transactional: bool
    control: bool
    max_timestamp: int
    records: int | None
    size: int
    marker: str | None


@dataclass
class Case:
    """One case: its bytes, its batches, and all their records."""

    name: str
    data: bytes
    heads: list[Head] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


def read() -> list[Case]:
    """All cases."""
    cases: list[Case] = []
    for line in FILE.read_text().splitlines():
        match line.split(" "):
            case ["case", name, data]:
                cases.append(Case(name, bytes.fromhex(data)))
            case ["batch", base, following, magic, producer, transactional, control, latest, count, size, marker]:
                head = Head(
                    int(base),
                    int(following),
                    int(magic),
                    int(producer),
                    transactional == "true",
                    control == "true",
                    int(latest),
                    None if count == "-" else int(count),
                    int(size),
                    None if marker == "-" else marker,
                )
                cases[-1].heads.append(head)
            case ["record", offset, timestamp, key, value]:
                cases[-1].records.append((int(offset), int(timestamp), _bytes(key), _bytes(value)))
            case _:
                raise ValueError(line)
    return cases


def _bytes(text: str) -> bytes | None:
    if text == "-":
        return None
    unit, times, number = text.partition("*")
    return bytes.fromhex(unit) * (int(number) if times else 1)
