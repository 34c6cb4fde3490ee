"""Generates encodings that no Kafka client writes, but that a broker may accept.

Examples are lengths of -2, varints that are longer than necessary or have more than 32 bits, booleans of 2, and text
that is not UTF-8. Tagged fields may occur twice, be out of order, or differ from their declared size. Bytes are also
changed, cut off or added. The module does not know which of these encodings a broker accepts.
"""

import random
import struct
from collections.abc import Iterator
from io import BytesIO

from construct import Construct

from group_sidecar.codecs import primitives as wire
from group_sidecar.codecs.layouts import Layout
from group_sidecar.codecs.schema import Struct, layout

_API = 4
"""Size of the API key and the version in bytes. `frames` leaves them intact, because they select the decoder."""
INT_MAX, UINT_MAX = 0x7FFFFFFF, 0xFFFFFFFF
_NULLS = (-1, -1, -2, -3, -(1 << 15))
_HUGE = (0x7FFE, 0x7FFF)
_HUGE_INTS = (*_HUGE, 0x8000, 0xFFFF, INT_MAX - 1, INT_MAX)
_TEXTS = (b"", b"g", b"group", b"\xc3\xa9", b"a\xff", b"\xed\xa0\x80", b"x" * 126, b"x" * 127, b"x" * 128)
_NUMBERS = (0, 1, 2, -1, 3, 5, 77, 1 << 7, 1 << 15, 1 << 31, (1 << 63) - 1)


class OddWriter:
    """Writes one message of a layout.

    Args:
        chance: the source of random choices.
        oddness: the probability, from 0 to 1, that any one encoded element is odd.
    """

    def __init__(self, chance: random.Random, oddness: float) -> None:
        self._chance = chance
        self._oddness = oddness

    def message(self, cls: type[Struct], version: int) -> bytes:
        """A message body. A broker accepts most of its elements."""
        return self._value(layout(cls, version, version >= cls.FLEXIBLE))

    def request_header(self, cls: type[Struct], version: int) -> bytes:
        """A request's header. The length of the client id is an int16 in every header version."""
        client = self._sized(wire.SizedString(wire.SHORT, nullable=True))
        head = struct.pack(">hhi", cls.KEY, version, self._chance.choice((0, 1, 7, -1))) + client
        return head + self._tags(None) if version >= cls.HEADER_FLEXIBLE else head

    def damaged(self, data: bytes) -> bytes:
        """The data, sometimes cut off, with bytes appended, or with some bytes replaced."""
        if not self._is_odd():
            return data
        at = self._chance.randint(0, len(data))
        match self._chance.randrange(4):
            case 0:
                return data[:at]
            case 1:
                return data + self._chance.randbytes(self._chance.randint(1, 5))
            case 2:
                new = self._chance.choice((b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff\xfe", b"\xff" * 4))
                return data[:at] + new + data[at + len(new) :]
            case _:
                return data[:at] + self._chance.randbytes(1) + data[at + 1 :]

    def _is_odd(self) -> bool:
        return self._chance.random() < self._oddness

    def _value(self, construct: Construct) -> bytes:
        match construct:
            case wire.FixedSize():
                return self._fixed(construct)
            case wire.Uuid():
                return self._chance.choice((bytes(16), bytes(15) + b"\1", b"\xff" * 16))
            case Layout():
                plain = b"".join(map(self._value, construct.plain.values()))
                return plain + self._tags(construct) if construct.flexible else plain
            case wire.NullableStruct():
                head = self._chance.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF) if self._is_odd() else (1, 0xFF))
                return bytes((head,)) + (self._value(construct.inner) if head < 0x80 else b"")
            case _:
                return self._sized(construct)

    def _fixed(self, construct: wire.FixedSize) -> bytes:
        size: int = construct.format.size
        if construct.format.format == ">?":
            return self._chance.choice((b"\2", b"\xff", b"\x80") if self._is_odd() else (b"\0", b"\1"))
        return (self._chance.choice(_NUMBERS) & (1 << 8 * size) - 1).to_bytes(size, "big")

    def _sized(self, construct: wire._LengthPrefixed) -> bytes:
        compact = construct.length is wire.COMPACT
        is_null = self._chance.random() < 0.2 if construct.nullable else self._chance.random() < self._oddness / 4
        if is_null:
            return self._length(construct.length, self._chance.choice(_NULLS) if self._is_odd() else -1)
        if isinstance(construct, wire.SizedArray):
            count = self._chance.choice((0, 1, 1, 2))
            contents = b"".join(self._value(construct.element) for _ in range(count))
        else:
            contents = self._chance.choice(_TEXTS)
            count = len(contents)
        if self._chance.random() < self._oddness / 8:
            huge = _HUGE if construct.length is wire.SHORT else _HUGE_INTS
            count = self._chance.choice((*huge, count + 1, max(0, count - 1)))
            if count == 0x8000 and compact and isinstance(construct, wire.SizedString):
                contents = b"x" * count
        return self._length(construct.length, count) + contents

    def _length(self, length: wire.Length, count: int) -> bytes:
        if length is wire.COMPACT:
            return self._varint(count + 1)
        stream = BytesIO()
        length.write(stream, count)
        return stream.getvalue()

    def _varint(self, value: int) -> bytes:
        """An unsigned varint. A negative value is encoded as its 32-bit two's complement, as Java does."""
        value &= UINT_MAX
        plain = wire.uvarint(value)
        if not self._is_odd():
            return plain
        size = self._chance.choice((2, 3, 4, 5, 5, 5, 6))
        groups = [value >> shift & 0x7F for shift in range(0, 7 * max(size, len(plain)), 7)]
        if len(groups) == wire.MAX_UVARINT_BYTES and self._chance.random() < 0.5:
            groups[-1] |= self._chance.choice((0x10, 0x20, 0x40, 0x70))  # Beyond the 32nd bit.
        return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])

    def _tags(self, of: Layout | None) -> bytes:
        """Encodes tagged fields: those of a layout (None: none) and unknown ones."""
        known = dict(of.tagged) if of else {}
        tags = [tag for tag in known if self._chance.random() < 0.5]
        if self._is_odd():
            tags += self._chance.choices((0, 1, 5, 127, 128, INT_MAX, UINT_MAX), k=self._chance.choice((1, 1, 2)))
        if self._is_odd() and tags:
            tags.append(self._chance.choice(tags))
        if self._is_odd():
            self._chance.shuffle(tags)
        else:
            tags.sort()
        count = len(tags)
        if self._chance.random() < self._oddness / 8:
            tags = []
            count = self._chance.choice((-1, -(1 << 31), INT_MAX, 1))
        return self._varint(count) + b"".join(self._tag(tag, known) for tag in tags)

    def _tag(self, tag: int, known: dict[int, tuple[str, Construct]]) -> bytes:
        raw = self._value(known[tag][1]) if tag in known else self._chance.randbytes(self._chance.choice((0, 1, 3)))
        size = len(raw)
        if self._is_odd():
            wrong = (size + 1, max(0, size - 1), 0, -1, -(1 << 31), INT_MAX)
            size = self._chance.choice(wrong if tag in known else (*wrong[3:], size))
        return self._varint(tag) + self._varint(size) + raw


def bodies(cls: type[Struct], version: int, count: int, seed: int) -> Iterator[bytes]:
    """Yields `count` odd bodies of a message."""
    chance = random.Random(f"{cls.NAME} {version} {seed}")
    for _ in range(count):
        writer = OddWriter(chance, chance.choice(ODDNESS))
        yield writer.damaged(writer.message(cls, version))


def frames(cls: type[Struct], version: int, count: int, seed: int) -> Iterator[bytes]:
    """Yields `count` odd frames of a request, without their lengths."""
    chance = random.Random(f"frame {cls.NAME} {version} {seed}")
    for _ in range(count):
        writer = OddWriter(chance, chance.choice(ODDNESS))
        frame = writer.request_header(cls, version) + writer.message(cls, version)
        yield frame[:_API] + writer.damaged(frame[_API:])


ODDNESS = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Probabilities that an element is odd. High ones let one refusal hide the rest; low ones leave many messages plain."""
