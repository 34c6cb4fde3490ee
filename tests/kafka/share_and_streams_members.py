"""Members of share groups (KIP-932) and streams groups (KIP-1071).

Their heartbeats are encoded by hand, because nothing else in the project needs these APIs.
"""

import struct
import uuid
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.kafka.dialect import Client
from tests.kafka.group_members import MINUTES

_SHARE_GROUP_HEARTBEAT = (76, 1)
_STREAMS_GROUP_HEARTBEAT = (88, 0)
_LEAVING = -1
_NULL, _NO_STRUCT, _EMPTY, _NO_TAGS = b"\0", b"\xff", b"\1", b"\0"


class OtherMember:
    """A member that joins, and leaves at the end of a with statement."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self._client, self._group, self._topic = client, group, topic
        self._member_id = str(uuid.uuid4())
        self._in_group = False

    def join(self) -> None:
        self._in_group = True
        self.heartbeat(0)

    def leave(self) -> None:
        self._in_group = False
        self.heartbeat(_LEAVING)

    def heartbeat(self, epoch: int) -> None:
        """Sends a heartbeat. Asserts that the broker accepts it."""
        raise NotImplementedError

    def _ask(self, api: tuple[int, int], body: bytes) -> None:
        head = struct.pack(">hhihB", *api, 1, -1, 0)
        with self._client.wire() as wire:
            wire.send_token(head + _string(self._group) + _string(self._member_id) + body)
            [code] = struct.unpack_from(">h", wire.receive(), 9)
        assert code == 0, f"API {api} failed with {code}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._in_group:
            with suppress(OSError, AssertionError):
                self.leave()


class ShareMember(OtherMember):
    """A member of a share group that subscribes to the topic."""

    def heartbeat(self, epoch: int) -> None:
        topics = _NULL if epoch == _LEAVING else _array(_string(self._topic))
        self._ask(_SHARE_GROUP_HEARTBEAT, struct.pack(">i", epoch) + _NULL + topics + _NO_TAGS)


class StreamsMember(OtherMember):
    """A member of a streams group whose topology has one subtopology, which reads the topic."""

    def heartbeat(self, epoch: int) -> None:
        body = struct.pack(">ii", epoch, 0) + _NULL + _NULL + struct.pack(">i", MINUTES)
        body += self._leaving() if epoch == _LEAVING else self._joining()
        self._ask(_STREAMS_GROUP_HEARTBEAT, body + _NULL + _NULL + b"\0" + _NO_TAGS)

    def _joining(self) -> bytes:
        subtopology = _string("0") + _array(_string(self._topic)) + 5 * _EMPTY + _NO_TAGS
        topology = b"\1" + struct.pack(">i", 0) + _array(subtopology) + _NO_TAGS
        return topology + 3 * _EMPTY + _string("process") + _NO_STRUCT + _EMPTY

    def _leaving(self) -> bytes:
        return _NO_STRUCT + 4 * _NULL + _NO_STRUCT + _NULL


def _string(text: str) -> bytes:
    """Encodes a compact string of less than 127 bytes."""
    return bytes([len(text.encode()) + 1]) + text.encode()


def _array(item: bytes) -> bytes:
    """Encodes a compact array of one item."""
    return b"\2" + item
