"""What the broker offers in ApiVersions, as clients hear it.

Owns: the reply with what is not followed taken out, kept as it was made: each connection asks, and brokers say the
same until they are upgraded. Must not know: which APIs are followed and why (`dispatcher`), how offers are cut
(`address_rewrite`), what is added to them (`added_versions`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.headers import encode_reply_rest, framed_reply, split_reply
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9, ApiVersion, ApiVersionsResponse
from group_sidecar.codecs.schema import decode_start
from group_sidecar.proxy.broker import address_rewrite
from group_sidecar.proxy.broker.added_versions import Versions
from group_sidecar.proxy.broker.broker_state import BrokerState

MAX_CACHED_REPLIES = 8
"""Versions of the request, times what brokers say meanwhile."""
_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class _CachedReply(NamedTuple):
    """`versions`: (lowest, highest) by API key; None where the reply is an error. `rest`: behind the correlation id."""

    versions: Mapping[int, tuple[int, int]] | None
    rest: bytes


class ApiVersionsReplies:
    """The offers of one broker. `decoded`: the API keys that are followed."""

    def __init__(self, copy: BrokerState, decoded: frozenset[int]) -> None:
        self._copy = copy
        self._decoded = decoded
        self._cache: dict[tuple[int, bool, bytes], _CachedReply] = {}

    def reply(self, version: int, frame: bytes) -> bytes:
        """What the client gets for the broker's reply, whole. `frame`: without its length.

        Raises:
            DecodeError: it cannot be read, and is not the error for a version that the broker does not know.
        """
        key = version, self._serves, frame[4:]
        cached = self._cache.get(key)
        if cached is None:
            try:
                cached = self._build(version, frame)
            except DecodeError:
                if frame[4:6] != _UNSUPPORTED:
                    raise
                # librdkafka's mock broker writes this error in the layout of the version that it does not know.
                return self.unsupported(int.from_bytes(frame[:4], "big", signed=True), refused=version)
            if len(self._cache) >= MAX_CACHED_REPLIES:
                self._cache.clear()
            self._cache[key] = cached
        if cached.versions is not None:
            self._copy.learn_versions(cached.versions)
        return framed_reply(int.from_bytes(frame[:4], "big", signed=True), cached.rest)

    def reply_for_kafka_0_9(self, version: int, number: int) -> bytes:
        """What the client gets where the broker has no ApiVersions, which is Kafka 0.9, whole. `number`: the request's
        correlation id.
        """
        described = APIS[ApiKey.API_VERSIONS].versions
        known = version in described
        own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=described[0], max_version=described[-1])
        its = tuple(ApiVersion(api_key=key, min_version=v[0], max_version=v[1]) for key, v in KAFKA_0_9.items())
        reply = ApiVersionsResponse(
            error_code=ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION,
            api_keys=(*its, own) if known else (own,),
        )
        rest = encode_reply_rest(self._cut(reply, KAFKA_0_9, known), version if known else 0)
        return framed_reply(number, rest)

    def unsupported(self, number: int, refused: int) -> bytes:
        """Returns the whole frame that answers a version that is not described, as a broker does that does not know it
        (Kafka class ``ApiVersionsRequest``, its ``getErrorResponse``). The range that it names ends below that version.

        Args:
            number: the request's correlation id.
            refused: the request's version.
        """
        described = APIS[ApiKey.API_VERSIONS].versions
        highest_version = self._copy.highest_version(ApiKey.API_VERSIONS)
        highest = min(described[-1], described[-1] if highest_version is None else highest_version)
        if 0 < refused <= highest:
            highest = refused - 1
        own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=described[0], max_version=highest)
        reply = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(own,))
        return framed_reply(number, encode_reply_rest(reply, 0))

    @property
    def _serves(self) -> bool:
        return self._copy.config.answers.enabled and not self._copy.may_have_authorizer

    def _build(self, version: int, frame: bytes) -> _CachedReply:
        # A broker that does not know the version answers in v0, which begins with this error.
        if frame[4:6] == _UNSUPPORTED:
            version = 0
        reply, beyond = decode_start(ApiVersionsResponse, version, split_reply(frame, flexible=False))
        known = reply.error_code == ErrorCode.NONE
        versions = {v.api_key: (v.min_version, v.max_version) for v in reply.api_keys}
        cut = self._cut(reply, versions, known)
        rest = frame[4:] if cut == reply else encode_reply_rest(cut, version) + beyond
        return _CachedReply(versions if known else None, rest)

    def _cut(self, reply: ApiVersionsResponse, versions: Versions, known: bool) -> ApiVersionsResponse:
        """The reply as clients get it. `known`: it is no error."""
        gateway = self._copy.advertise is not None
        added = self._copy.added_versions_for(versions) if known else {}
        cut = address_rewrite.offered_api_versions(
            reply, self._decoded, added, gateway=gateway, serve=known and self._serves
        )
        return address_rewrite.group_coordinators_only(cut) if self._copy.config.group_metadata_request else cut
