"""What the broker offers in ApiVersions, as clients hear it.

Owns: the reply with what is not followed taken out, kept as it was made: each connection asks, and brokers say the
same until they are upgraded. Must not know: which APIs are followed and why (`desk`), how offers are cut (`rewrite`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import encode_reply_rest, framed_reply, split_reply
from group_sidecar.codecs.messages.api_versions import ApiVersionsResponse
from group_sidecar.codecs.schema import decode_start
from group_sidecar.proxy import rewrite
from group_sidecar.proxy.broker_copy import BrokerCopy

MOST_KEPT = 8
"""Versions of the request, times what brokers say meanwhile."""
_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class _Offer(NamedTuple):
    """`versions`: (lowest, highest) by API key; None where the reply is an error. `rest`: behind the correlation id."""

    versions: Mapping[int, tuple[int, int]] | None
    rest: bytes


class Offers:
    """The offers of one broker. `decoded`: the API keys that are followed."""

    def __init__(self, copy: BrokerCopy, decoded: frozenset[int]) -> None:
        self._copy = copy
        self._decoded = decoded
        self._kept: dict[tuple[int, bool, bytes], _Offer] = {}

    def reply(self, version: int, frame: bytes) -> bytes:
        """What the client gets for the broker's reply, whole. `frame`: without its length.

        Raises:
            DecodeError: it cannot be read.
        """
        serve = self._copy.config.answers.enabled and not self._copy.hides
        key = version, serve, frame[4:]
        offer = self._kept.get(key)
        if offer is None:
            offer = self._offer(version, serve, frame)
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key] = offer
        if offer.versions is not None:
            self._copy.learn_versions(offer.versions)
        return framed_reply(int.from_bytes(frame[:4], "big", signed=True), offer.rest)

    def _offer(self, version: int, serve: bool, frame: bytes) -> _Offer:
        # A broker that does not know the version answers in v0, which begins with this error.
        if frame[4:6] == _UNSUPPORTED:
            version = 0
        reply, beyond = decode_start(ApiVersionsResponse, version, split_reply(frame, flexible=False))
        known = reply.error_code == ErrorCode.NONE
        gateway = self._copy.advertise is not None
        cut = rewrite.api_versions(reply, self._decoded, gateway=gateway, serve=known and serve)
        rest = frame[4:] if cut == reply else encode_reply_rest(cut, version) + beyond
        versions = {v.api_key: (v.min_version, v.max_version) for v in reply.api_keys}
        return _Offer(versions if known else None, rest)
