"""Reads vectors.txt: samples that Kafka's own classes encoded.

Each line contains the message, the version, the kind of sample (see `declarations`), and the body in hex.
"""

from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("vectors.txt")


class Vector(NamedTuple):
    """One line of the file."""

    message: str
    version: int
    kind: str
    body: bytes


def read() -> list[Vector]:
    """Returns all lines of the file."""
    words = (line.split(" ") for line in FILE.read_text().splitlines())
    return [Vector(message, int(version), kind, bytes.fromhex(body)) for message, version, kind, body in words]
