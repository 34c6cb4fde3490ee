"""Reads batch_vectors.txt: record batches that Kafka's own classes wrote, and the values that these classes decode.

BatchVectors.java describes the format of the lines.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from group_sidecar.codecs.record_batches import Record

FILE = Path(__file__).with_name("batch_vectors.txt")


class Head(NamedTuple):
    """A batch as Kafka decodes it. `records` is the number of records; None in formats 0 and 1.

    `marker` is None if the batch has no marker.
    """

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
    """A case: its bytes, its batches, and the records of all batches."""

    name: str
    data: bytes
    heads: list[Head] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


def read() -> list[Case]:
    """Returns all cases of the file."""
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
