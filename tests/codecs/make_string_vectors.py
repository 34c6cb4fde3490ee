"""Writes string_vectors.txt: byte strings, most of them not UTF-8, and the code points that Java decodes from them.

Run the script when the choice of byte strings changes. The script needs a JDK. The tests that read the file do not:

    python -m tests.codecs.make_string_vectors
"""

import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

FILE = Path(__file__).with_name("string_vectors.txt")
EDGES = bytes.fromhex("00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 f7 f8 ff")
"""The first and the last byte of each range in Unicode's table of well-formed UTF-8 byte sequences."""
FIRST, NEXT = bytes.fromhex("41 c1 c2 e0 e1 ed ef f0 f1 f4 f5"), bytes.fromhex("41 80 90 a0 bf c2 ed f0")
RANDOM = 1_000


def chosen() -> Iterator[bytes]:
    """Yields every single byte, pairs of `EDGES`, sequences of three and four bytes, and random strings of `EDGES`."""
    yield from (bytes((byte,)) for byte in range(256))
    yield from map(bytes, product(EDGES, EDGES))
    yield from map(bytes, product(FIRST, NEXT, NEXT))
    yield from map(bytes, product(FIRST[2:], NEXT[:4], NEXT[:4], (*NEXT[:4], 0xED)))
    chance = random.Random(389)
    for _ in range(RANDOM):
        yield bytes(chance.choices(EDGES, k=chance.randint(5, 12)))


def read_by_java(strings: Iterable[bytes]) -> list[str]:
    """The code points that Java decodes from each byte string, in hex, separated by full stops."""
    java = ["java", str(Path(__file__).with_name("StringVectors.java"))]
    lines = "".join(f"{string.hex()}\n" for string in strings)
    return subprocess.run(java, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def main() -> int:
    """Writes the file."""
    strings = list(dict.fromkeys(chosen()))
    points = read_by_java(strings)
    FILE.write_text("".join(f"{s.hex()} {p}\n" for s, p in zip(strings, points, strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
