"""Finds the addresses of brokers in replies of many entries, without decoding the entries.

Owns: `with_coordinators` and `tags_at`. Must not know: what replaces an address, nor the frame around a reply.

A client chooses how many entries such a reply has. To decode and encode an entry takes 4 us and more, to step over it a
tenth of that. A reply with something in it that Kafka's own brokers do not send is `Odd`, and has to be decoded.
"""

from collections.abc import Callable

PARTITION = 30
"""Bytes of fixed size in a partition of a Produce reply: its number, error, two offsets and a time."""


class Odd(Exception):
    """The reply cannot be stepped over, and has to be decoded."""


def with_coordinators(body: bytes, most: int, change: Callable[[bytes], bytes]) -> bytes:
    """A body of FindCoordinator v4-6 with each coordinator's address changed.

    Args:
        body: the reply after its header.
        most: entries that are stepped over.
        change: returns what replaces an address: node id, host and port as they are encoded. Called once for each
            different address.

    Raises:
        Odd: there are more entries, or one has tagged fields, or the body is cut off.
    """
    known: dict[bytes, bytes] = {}
    parts: list[bytes] = []
    since = 0
    try:
        count, at = _length(body, 4)
        if count > most:
            raise Odd(f"{count} entries")
        for _ in range(count):
            size, at = _length(body, at)  # Of the key.
            at += size
            size, stop = _length(body, at + 4)
            stop += size + 4
            address = body[at:stop]
            changed = known.get(address)
            if changed is None:
                if stop > len(body):
                    raise Odd("cut off")
                changed = known[address] = change(address)
            parts.append(body[since:at])
            parts.append(changed)
            since = stop
            at = _string_end(body, stop + 2)
            if body[at]:
                raise Odd("tagged fields")
            at += 1
        if body[at]:
            raise Odd("tagged fields")
    except IndexError as error:
        raise Odd("cut off") from error
    parts.append(body[since:])
    return b"".join(parts)


def tags_at(body: bytes, most: int, *, topic_ids: bool) -> int:
    """Returns where the tagged fields of a body of Produce v9-13 begin, which hold its addresses. The throttle time is
    right before them.

    Args:
        body: the reply after its header.
        most: topics, partitions and errors of records that are stepped over.
        topic_ids: whether topics have ids in place of names.

    Raises:
        Odd: there are more, or the body is cut off.
    """
    try:
        topics, at = _length(body, 0)
        most -= topics
        for _ in range(topics):
            size, at = (16, at) if topic_ids else _length(body, at)
            partitions, at = _length(body, at + size)
            most -= partitions
            if most < 0:
                raise Odd("very many entries")
            for _ in range(partitions):
                errors, at = _length(body, at + PARTITION)
                most -= errors
                if most < 0:
                    raise Odd("very many entries")
                for _ in range(errors):
                    at = _tags_end(body, _string_end(body, at + 4))
                at = _tags_end(body, _string_end(body, at))
            at = _tags_end(body, at)
        return at + 4
    except IndexError as error:
        raise Odd("cut off") from error


def _length(body: bytes, at: int) -> tuple[int, int]:
    """Returns a compact length, and where what has this length begins."""
    first = body[at]
    if 0 < first < 128:
        return first - 1, at + 1
    size, at = _uvarint(body, at)
    if not size:
        raise Odd("null")
    return size - 1, at


def _string_end(body: bytes, at: int) -> int:
    """Returns where a compact string ends that may be null."""
    size, at = _uvarint(body, at)
    return at + size - 1 if size else at


def _tags_end(body: bytes, at: int) -> int:
    """Returns where tagged fields end."""
    count, at = _uvarint(body, at)
    for _ in range(count):
        _, at = _uvarint(body, at)
        size, at = _uvarint(body, at)
        at += size
    return at


def _uvarint(body: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint of up to three bytes, which is more than any string or count here needs."""
    value = body[at]
    if value < 128:
        return value, at + 1
    low, middle = value & 127, body[at + 1]
    if middle < 128:
        return low | middle << 7, at + 2
    high = body[at + 2]
    if high < 128:
        return low | (middle & 127) << 7 | high << 14, at + 3
    raise Odd("a long varint")
