"""Whether a Produce request gets a reply.

Owns: how far into a request is looked for its acks. Must not know: the order of requests, where bytes come from.
"""

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.headers import body_start
from group_sidecar.codecs.messages.produce import ProduceResponse, acks_of

SHORT_REACH, REACH = 256, 131_072
"""Bytes in which acks is looked for, and looked for again. The second has room for the longest client id and
transactional id; a client that puts acks further back, behind tags that Kafka has not, gets a reply."""


def acks(version: int, buffer: bytes, start: int, stop: int) -> int | None:
    """acks of a Produce request of which the bytes from `start` to `stop` are there; None where they do not say."""
    try:
        for reach in (SHORT_REACH, REACH):
            head = buffer[start : min(stop, start + reach)]
            body = body_start(head, flexible=version >= ProduceResponse.FLEXIBLE)
            if body is not None and (acks := acks_of(version, head[body:])) is not None:
                return acks
    except DecodeError:
        return 1  # The broker will refuse it or close; either way it is not ours to drop the reply.
    return None
