"""Encoded samples that Kafka's own classes wrote: vectors.txt, read.

Each line has the message, the version, which sample of `declarations` it is, and the body in hex.
"""

from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("vectors.txt")


class Vector(NamedTuple):
    """One line."""

    message: str
    version: int
    kind: str
    body: bytes


def read() -> list[Vector]:
    """All lines."""
    words = (line.split(" ") for line in FILE.read_text().splitlines())
    return [Vector(message, int(version), kind, bytes.fromhex(body)) for message, version, kind, body in words]
