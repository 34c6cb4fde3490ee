"""Rewrites the ends of replies that carry the addresses of nodes after all their other fields.

A short reply is held until it is complete, so its end may change its size. A long reply is forwarded while it arrives,
so its length is sent before its end is known. Therefore the sidecar adds `RESERVED_BYTES` to a long reply's length.
Unknown tagged fields, which clients ignore (KIP-482), fill the bytes that the new addresses do not need.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.reply_tail import TAIL_PROGRAMS, TailSearch, find_tail
from group_sidecar.codecs.reply_tail_fields import TAIL_VERSION, FetchTail, QuorumTail, ShareTail
from group_sidecar.codecs.schema import Struct, Tag, decode_start, encode
from group_sidecar.proxy.broker.address_rewrite import Advertise, rewrite_endpoint
from group_sidecar.proxy.dataplane.frame_editor import FrameEditError, FrameEditor
from group_sidecar.proxy.dataplane.framing import LENGTH_BYTES

MAX_HELD_BYTES = 65_536
"""A reply of at most this many bytes is held until it is complete, and its end may then change its size."""
RESERVED_BYTES = 512
"""Bytes that are added to a long reply, less than 1 % of it. There is room for 17 new addresses, if each is 30 bytes
longer than the broker's own address. Addresses for which there is no room are left out. A client that knows the
leader's id then takes the address from its last Metadata reply, or asks for Metadata."""
MAX_TAIL_BYTES = 65_536
"""Maximum bytes of the end of a reply that is not held. An address takes 20 to 270 bytes, and a cluster may have
hundreds of brokers."""
MAX_TAIL_ELEMENTS = 10_000
_FILLER_TAG = 99
"""The number of the first tagged field that fills a reply. Kafka's own numbers begin at 0. A number below 128 takes one
byte."""
_LARGEST_FILLER = 8_192
_TAIL_STRUCTS: Mapping[int, type[Struct]] = {
    ApiKey.FETCH: FetchTail,
    ApiKey.SHARE_FETCH: ShareTail,
    ApiKey.SHARE_ACKNOWLEDGE: ShareTail,
    ApiKey.DESCRIBE_QUORUM: QuorumTail,
}
TAIL_APIS = frozenset(_TAIL_STRUCTS)
"""The APIs in whose replies addresses come last."""

OnFailure: TypeAlias = Callable[[Exception], None]
OnHead: TypeAlias = Callable[[bytes], None]


def has_tail(api_key: int, version: int) -> bool:
    """Whether a reply has addresses after all other fields."""
    return (api_key, version) in TAIL_PROGRAMS


def rewrite_tail(api_key: int, tail: bytes, advertise: Advertise) -> Struct:
    """Returns the last fields of a reply with each address replaced, and without the controllers' listeners.

    Unknown tagged fields are left out, as in `address_rewrite`. Addresses without a node or a host are left out too.
    No broker sends such an address.

    Raises:
        DecodeError: the fields cannot be decoded.
        ValueError: the fields have an address for which the gateway has no port.
    """
    fields, _ = decode_start(_TAIL_STRUCTS[api_key], TAIL_VERSION, tail, MAX_TAIL_ELEMENTS)
    if isinstance(fields, QuorumTail):
        # Clients of a gateway cannot reach controllers, but still learn the ids of controllers.
        nodes = tuple(replace(node, listeners=(), unknown_tags=()) for node in fields.nodes)
        return replace(fields, nodes=nodes, unknown_tags=())
    assert isinstance(fields, FetchTail | ShareTail)
    real = (each for each in fields.node_endpoints if each.node_id >= 0 and each.host)
    endpoints = tuple(rewrite_endpoint(each, advertise) for each in real)
    return replace(fields, node_endpoints=endpoints, unknown_tags=())


def rewrite_held(api_key: int, version: int, frame: bytes, advertise: Advertise) -> bytes | None:
    """Returns the whole frame of a reply with each address in its end replaced, or None if nothing changes.

    `frame`: without its length.

    Raises:
        DecodeError: the reply has another layout, or its end cannot be decoded.
        ValueError: the reply has an address for which the gateway has no port.
    """
    at = find_tail(TAIL_PROGRAMS[api_key, version], frame)
    tail = frame[at:]
    if tail == _empty_tail(api_key):
        return None
    changed = encode(rewrite_tail(api_key, tail, advertise), TAIL_VERSION)
    if changed == tail:
        return None
    return (at + len(changed)).to_bytes(LENGTH_BYTES, "big") + frame[:at] + changed


def _empty_tail(api_key: int) -> bytes:
    """Returns the end of a reply without addresses and tagged fields."""
    return b"\0" if api_key == ApiKey.FETCH else b"\1\0"


def fitted(fields: Struct, size: int) -> bytes:
    """Returns the encoded last fields of a reply in exactly `size` bytes, with as many addresses as there is room for.

    Raises:
        ValueError: there is no room even without addresses.
    """
    for candidate in _shortened(fields):
        body = encode(candidate, TAIL_VERSION)
        gap = size - len(body)
        if gap == 0:
            return body
        if gap >= 2:
            return encode(replace(candidate, unknown_tags=tuple(_fillers(gap))), TAIL_VERSION)
    raise ValueError(f"the end of a reply does not fit into {size} bytes")


def _shortened(fields: Struct) -> Iterator[Struct]:
    """Yields the fields with all addresses, then with half of them, and so on, and then without any."""
    yield fields
    if isinstance(fields, FetchTail | ShareTail):
        kept = fields.node_endpoints
        while kept:
            kept = kept[: len(kept) // 2]
            yield replace(fields, node_endpoints=kept)


def _fillers(gap: int) -> Iterator[Tag]:
    """Yields tagged fields of `gap` bytes in total. `gap` is at least 2.

    There must be fewer than 128 fields, so that the count of the fields takes one byte, as the count 0 does.
    """
    number = _FILLER_TAG
    while gap:
        part = min(gap, _LARGEST_FILLER)
        if gap - part == 1:
            part -= 2
        if part == 130:  # No field has this size: a content of 128 bytes needs a second byte for its size.
            part = 65
        content = part - 2 if part - 2 < 128 else part - 3
        yield number, bytes(content)
        number, gap = number + 1, gap - part


class TailEditor(FrameEditor):
    """Replaces the addresses at the end of a long reply. The reply gets longer by `RESERVED_BYTES`.

    Args:
        api_key: the API of the reply.
        version: the version of the reply.
        size: the size of the reply, without its length.
        advertise: returns the address that replaces a broker's.
        on_failure: gets the reason if the reply cannot be changed.

    Attributes:
        on_head: called once with the bytes of the reply that arrived together with its length; or None.
    """

    def __init__(self, api_key: int, version: int, size: int, advertise: Advertise, on_failure: OnFailure) -> None:
        self._api_key = api_key
        self._search = TailSearch(TAIL_PROGRAMS[api_key, version], size)
        self._advertise = advertise
        self._on_failure = on_failure
        self.on_head: OnHead | None = None

    def length(self, length: bytes) -> bytes:
        """See FrameEditor."""
        return (int.from_bytes(length, "big") + RESERVED_BYTES).to_bytes(LENGTH_BYTES, "big")

    def skip(self, buffer: bytes, start: int, end: int) -> int:
        """See FrameEditor."""
        search = self._search
        if self.on_head is not None:
            self.on_head(buffer[start:end])
            self.on_head = None
        try:
            size = search.skip(buffer, start, end)
            if search.found and search.left > MAX_TAIL_BYTES:
                raise DecodeError("reply", "", f"{search.left} bytes of addresses")
        except DecodeError as error:
            self._on_failure(error)
            raise FrameEditError from error
        if search.found:
            self.tail_bytes = search.left
        return size

    def edit(self, tail: bytes) -> bytes:
        """See FrameEditor."""
        try:
            return fitted(rewrite_tail(self._api_key, tail, self._advertise), len(tail) + RESERVED_BYTES)
        except Exception as error:
            self._on_failure(error)
            raise FrameEditError from error
