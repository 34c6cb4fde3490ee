"""Where addresses of brokers stand in replies of many entries, found without decoding these.

Owns: `with_coordinators` and `tags_at`. Must not know: what replaces an address, nor the frame around a reply.

A client says how many entries such a reply has. To decode and encode one takes 4 us and more, to step over it a tenth
of that. What Kafka's own brokers do not send is `Odd`: such a reply has to be decoded.
"""

from collections.abc import Callable

PORT_AND_ID = 8
"""Bytes of an address beside its host: a node's id before it, a port behind it."""
PARTITION = 30
"""Bytes of fixed size in what Produce tells of a partition: its number, error, two offsets and a time."""


class Odd(Exception):
    """The reply has something in it, or lacks something, that only who decodes it can judge."""


def with_coordinators(body: bytes, most: int, change: Callable[[bytes], bytes]) -> bytes:
    """A body of FindCoordinator v4-6 with each coordinator's address changed.

    Args:
        body: the reply behind its header.
        most: entries that are looked at.
        change: gives what stands in the place of an address: of node id, host and port in the bytes of the wire. It is
            asked once for each address that differs.

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
                changed = known[address] = change(address)
            parts.append(body[since:at])
            parts.append(changed)
            since = stop
            at = _behind_message(body, stop + 2)
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
    """Where the tagged fields of a body of Produce v9-13 stand: behind the throttle time, addresses in them.

    Args:
        body: the reply behind its header.
        most: topics, partitions and errors of records that are stepped over.
        topic_ids: whether topics are told by id.

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
                    at = _behind_tags(body, _behind_message(body, at + 4))
                at = _behind_tags(body, _behind_message(body, at))
            at = _behind_tags(body, at)
        return at + 4
    except IndexError as error:
        raise Odd("cut off") from error


def _length(body: bytes, at: int) -> tuple[int, int]:
    """A compact length, and where that of which it is the length begins."""
    first = body[at]
    if 0 < first < 128:
        return first - 1, at + 1
    size, at = _uvarint(body, at)
    if not size:
        raise Odd("null")
    return size - 1, at


def _behind_message(body: bytes, at: int) -> int:
    """Where a compact string ends that may be null."""
    size, at = _uvarint(body, at)
    return at + size - 1 if size else at


def _behind_tags(body: bytes, at: int) -> int:
    """Where tagged fields end."""
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
