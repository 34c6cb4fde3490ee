"""Finds the addresses of brokers in replies of many entries, without decoding the entries.

A client can ask for a reply of any number of entries. Decoding and encoding one entry takes at least 4 us. Skipping an
entry takes a tenth of that time. If a reply has too many entries, or contains something that Kafka's own brokers do not
send, the functions raise `NotScannable`, and the caller decodes the reply.
"""

from collections.abc import Callable

PARTITION_FIXED_BYTES = 30
"""Size of the fixed part of a partition in a Produce reply: index, error code, two offsets and a timestamp."""


class NotScannable(Exception):
    """The reply cannot be scanned. The caller has to decode it."""


def rewrite_coordinators(body: bytes, max_entries: int, change: Callable[[bytes], bytes]) -> bytes:
    """Returns a body of FindCoordinator v4-6 with each coordinator's address replaced.

    Args:
        body: the reply after its header.
        max_entries: the maximum number of entries.
        change: maps an encoded address (node id, host and port) to its replacement. Called once per distinct address.

    Raises:
        NotScannable: the reply has more than `max_entries` entries, a null array, key or host, a very long string, or
            tagged fields, or the body is truncated.
    """
    known: dict[bytes, bytes] = {}
    parts: list[bytes] = []
    since = 0
    try:
        count, at = _length(body, 4)
        if count > max_entries:
            raise NotScannable(f"{count} entries")
        for _ in range(count):
            size, at = _length(body, at)  # The length of the key.
            at += size
            size, stop = _length(body, at + 4)
            stop += size + 4
            address = body[at:stop]
            changed = known.get(address)
            if changed is None:
                if stop > len(body):
                    raise NotScannable("cut off")
                changed = known[address] = change(address)
            parts.append(body[since:at])
            parts.append(changed)
            since = stop
            at = _string_end(body, stop + 2)
            if body[at]:
                raise NotScannable("tagged fields")
            at += 1
        if body[at]:
            raise NotScannable("tagged fields")
    except IndexError as error:
        raise NotScannable("cut off") from error
    parts.append(body[since:])
    return b"".join(parts)


def find_body_tags(body: bytes, max_entries: int, *, topic_ids: bool) -> int:
    """Returns the position of the tagged fields in a body of Produce v9-13.

    The tagged fields contain the addresses of new leaders, and directly follow the throttle time.

    Args:
        body: the reply after its header.
        max_entries: the maximum number of topics, partitions and record errors in total.
        topic_ids: whether the reply identifies topics by id instead of by name.

    Raises:
        NotScannable: the reply has more than `max_entries` entries, a null array or a very long string, or the body is
            truncated.
    """
    try:
        topics, at = _length(body, 0)
        left = max_entries - topics
        for _ in range(topics):
            size, at = (16, at) if topic_ids else _length(body, at)
            partitions, at = _length(body, at + size)
            left -= partitions
            if left < 0:
                raise NotScannable("very many entries")
            for _ in range(partitions):
                errors, at = _length(body, at + PARTITION_FIXED_BYTES)
                left -= errors
                if left < 0:
                    raise NotScannable("very many entries")
                for _ in range(errors):
                    at = _tags_end(body, _string_end(body, at + 4))
                at = _tags_end(body, _string_end(body, at))
            at = _tags_end(body, at)
    except IndexError as error:
        raise NotScannable("cut off") from error
    if at + 4 >= len(body):
        raise NotScannable("cut off")
    return at + 4


def _length(body: bytes, at: int) -> tuple[int, int]:
    """Returns a compact length, and the position after it. Raises NotScannable for null."""
    first = body[at]
    if 0 < first < 128:
        return first - 1, at + 1
    size, at = _uvarint(body, at)
    if not size:
        raise NotScannable("null")
    return size - 1, at


def _string_end(body: bytes, at: int) -> int:
    """Returns where a compact nullable string ends."""
    size, at = _uvarint(body, at)
    return at + size - 1 if size else at


def _tags_end(body: bytes, at: int) -> int:
    """Returns where a section of tagged fields ends."""
    count, at = _uvarint(body, at)
    for _ in range(count):
        _, at = _uvarint(body, at)
        size, at = _uvarint(body, at)
        at += size
    return at


def _uvarint(body: bytes, at: int) -> tuple[int, int]:
    """Returns an unsigned varint and the position after it.

    Raises NotScannable if the varint has more than three bytes. Three bytes are enough for each string's length, and
    for a count of up to two million.
    """
    value = body[at]
    if value < 128:
        return value, at + 1
    low, middle = value & 127, body[at + 1]
    if middle < 128:
        return low | middle << 7, at + 2
    high = body[at + 2]
    if high < 128:
        return low | (middle & 127) << 7 | high << 14, at + 3
    raise NotScannable("a long varint")
