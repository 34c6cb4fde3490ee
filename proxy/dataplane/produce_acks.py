"""Finds the acks field of a Produce request, which decides whether the broker replies."""

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.headers import body_start
from group_sidecar.codecs.messages.produce import ProduceResponse, acks_of

SHORT_ACKS_SEARCH_BYTES, ACKS_SEARCH_BYTES = 256, 131_072
"""How many bytes of a request the first and the second search for acks read. The second number has room for the
longest client id and the longest transactional id. Only tagged fields that Kafka does not know can move acks further
back. A request whose acks were not found counts as one that gets a reply."""


def acks(version: int, buffer: bytes, start: int, stop: int) -> int | None:
    """Returns acks of a Produce request, or None if the bytes from `start` to `stop` do not contain acks."""
    try:
        for reach in (SHORT_ACKS_SEARCH_BYTES, ACKS_SEARCH_BYTES):
            head = buffer[start : min(stop, start + reach)]
            body = body_start(head, flexible=version >= ProduceResponse.FLEXIBLE)
            if body is not None and (acks := acks_of(version, head[body:])) is not None:
                return acks
    except DecodeError:
        return 1  # The broker rejects the request or closes. If the broker replies, the client must get the reply.
    return None
