"""Finds the tail of a reply: the addresses of nodes that follow all other fields of the reply.

The replies of Fetch, ShareFetch, ShareAcknowledge and DescribeQuorum have a tail. A Fetch reply may have 100 MB of
records before its tail. `TailSearch` skips the fields before the tail as they arrive, and keeps no bytes.

A `SizedLayout` lists only how many bytes each field takes, in contrast to `layouts.Layout`.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.errors import DecodeError

SizedLayout: TypeAlias = "tuple[int | str | SizedLayout, ...]"
"""The fields of a struct. A number is the size in bytes of adjacent fields. A tuple is an array of structs."""
BYTES: Final = "bytes"
"""A compact string or compact bytes, which may be null."""
TAGS: Final = "tags"
"""The tagged fields of a struct."""

_REPLY_HEADER: Final[SizedLayout] = (4, TAGS)
_LEADER: Final[SizedLayout] = (4 + 4, TAGS)
_OFFSETS, _TOPIC_ID = 24, 16
_FETCH: Final[SizedLayout] = (
    *_REPLY_HEADER,
    4 + 2 + 4,
    (_TOPIC_ID, (4 + 2 + _OFFSETS, (16, TAGS), 4, BYTES, TAGS), TAGS),
)
_SHARE_PARTITION: Final[SizedLayout] = (4 + 2, BYTES, 2, BYTES, *_LEADER, BYTES, (8 + 8 + 2, TAGS), TAGS)
_SHARE_TOPICS: Final[SizedLayout] = (_TOPIC_ID, _SHARE_PARTITION, TAGS)
_ACKNOWLEDGED: Final[SizedLayout] = (_TOPIC_ID, (4 + 2, BYTES, *_LEADER, TAGS), TAGS)
_VOTER: Final[SizedLayout] = (4 + 16 + 8 + 8 + 8, TAGS)
_QUORUM: Final[SizedLayout] = (
    *_REPLY_HEADER,
    2,
    BYTES,
    (BYTES, (4 + 2, BYTES, 4 + 4 + 8, _VOTER, _VOTER, TAGS), TAGS),
)

TAIL_LAYOUTS: Final[Mapping[tuple[int, int], SizedLayout]] = {
    **dict.fromkeys([(int(ApiKey.FETCH), version) for version in (16, 17, 18)], _FETCH),
    (int(ApiKey.SHARE_FETCH), 0): (*_REPLY_HEADER, 4 + 2, BYTES, _SHARE_TOPICS),
    **dict.fromkeys(
        [(int(ApiKey.SHARE_FETCH), version) for version in (1, 2)], (*_REPLY_HEADER, 4 + 2, BYTES, 4, _SHARE_TOPICS)
    ),
    **dict.fromkeys(
        [(int(ApiKey.SHARE_ACKNOWLEDGE), version) for version in (0, 1)], (*_REPLY_HEADER, 4 + 2, BYTES, _ACKNOWLEDGED)
    ),
    (int(ApiKey.SHARE_ACKNOWLEDGE), 2): (*_REPLY_HEADER, 4 + 2, BYTES, 4, _ACKNOWLEDGED),
    (int(ApiKey.DESCRIBE_QUORUM), 2): _QUORUM,
}
"""By API key and version: the part of the reply before the addresses, from the correlation id on."""

_SKIP, _BYTES, _ARRAY, _TAGS, _TAG, _TAG_BYTES, _NEXT, _FOUND = range(8)
MAX_VARINT_BYTES: Final = 5


class TailProgram:
    """A `SizedLayout` as a list of steps, which `TailSearch` follows.

    Attributes:
        steps: the kind of each step.
        arguments: for each step, a number of bytes or the number of a step that may follow.
    """

    def __init__(self, layout: SizedLayout) -> None:
        self.steps: list[int] = []
        self.arguments: list[int] = []
        self._add_struct(layout)
        self._add(_FOUND)

    def _add(self, step: int, argument: int = 0) -> int:
        self.steps.append(step)
        self.arguments.append(argument)
        return len(self.steps) - 1

    def _add_struct(self, layout: SizedLayout) -> None:
        for field in layout:
            if isinstance(field, int):
                self._add(_SKIP, field)
            elif isinstance(field, tuple):
                self._add_loop(_ARRAY, field)
            elif field == BYTES:
                self._add(_BYTES)
            else:
                self._add_loop(_TAGS, ())

    def _add_loop(self, kind: int, element: SizedLayout) -> None:
        loop = self._add(kind)
        if kind == _TAGS:
            self._add(_TAG)
            self._add(_TAG_BYTES)
        else:
            self._add_struct(element)
        self._add(_NEXT, loop + 1)
        self.arguments[loop] = len(self.steps)


class TailSearch:
    """Searches one reply for its tail.

    Args:
        program: the layout of the reply.
        size: the size of the reply in bytes, without its length.

    Attributes:
        left: how many bytes of the reply were not skipped.
        found: whether exactly the tail is left: the addresses and the fields that follow the addresses.
    """

    def __init__(self, program: TailProgram, size: int) -> None:
        self._steps = program.steps
        self._arguments = program.arguments
        self._step = 0
        self._loops: list[int] = []
        """The number of remaining iterations of each loop around the current step."""
        self.left = size
        self.found = False

    def skip(self, buffer: bytes, start: int, end: int) -> int:
        """Returns how many bytes from `start` on can be skipped. Some of these bytes may not have arrived yet.

        Call this method again for the bytes that follow them. If it returns 0 and the tail is not found, the bytes in
        the buffer are not enough.

        Args:
            buffer: bytes of the reply, and perhaps bytes after the reply.
            start: the first byte that was not skipped.
            end: the end of the buffer.

        Raises:
            DecodeError: the reply has another layout.
        """
        steps, arguments, loops = self._steps, self._arguments, self._loops
        step, at, stop = self._step, start, start + self.left
        while at < end and at < stop:
            kind = steps[step]
            if kind == _SKIP:
                at += arguments[step]
                step += 1
                continue
            if kind == _NEXT:
                loops[-1] -= 1
                if loops[-1]:
                    step = arguments[step]
                else:
                    loops.pop()
                    step += 1
                continue
            if kind == _FOUND:
                self.found = True
                break
            value, after = buffer[at], at + 1
            if value > 127:
                value, after = _long_varint(buffer, at, min(end, stop))
                if not after:
                    break
            at = after + (value if kind == _TAG_BYTES else value - 1 if value and kind == _BYTES else 0)
            step = self._after_number(kind, step, value)
        if not self.found and (at >= stop or end >= stop):
            raise _bad("the reply ends before its last field")
        self._step = step
        self.left = stop - at
        return at - start

    def _after_number(self, kind: int, step: int, value: int) -> int:
        """Returns the step that follows a number. Enters the loop of an array or of tagged fields that has entries."""
        count = value - 1 if kind == _ARRAY else value if kind == _TAGS else 0
        if count > 0:
            self._loops.append(count)
        elif kind == _ARRAY or kind == _TAGS:  # noqa: SIM109  A tuple would cost more, and mypyc compiles this.
            return self._arguments[step]
        return step + 1


def _bad(reason: str) -> DecodeError:
    return DecodeError("reply", "", reason)


def _long_varint(buffer: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns an unsigned varint and the position after it, or (0, 0) if it is not complete. Raises DecodeError."""
    value, shift = 0, 0
    for position in range(at, min(end, at + MAX_VARINT_BYTES)):
        byte = buffer[position]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position + 1
        shift += 7
    if end - at >= MAX_VARINT_BYTES:
        raise _bad("a number of more than five bytes")
    return 0, 0


TAIL_PROGRAMS: Final[Mapping[tuple[int, int], TailProgram]] = {
    key: TailProgram(layout) for key, layout in TAIL_LAYOUTS.items()
}
"""The programs of `TAIL_LAYOUTS`."""


def find_tail(program: TailProgram, reply: bytes) -> int:
    """Returns the position of the tail in a whole reply, without its length. Raises DecodeError."""
    search = TailSearch(program, len(reply))
    at = search.skip(reply, 0, len(reply))
    if not search.found:
        raise _bad("the reply is cut off")
    return at
