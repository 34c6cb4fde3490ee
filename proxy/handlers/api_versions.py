"""Builds the ApiVersions replies that clients get from the broker's ApiVersions replies.

Versions that the sidecar cannot decode are removed, and versions that it translates are added (`added_versions`). The
built replies are cached, because every connection asks and a broker's reply is the same until the broker is upgraded.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.headers import encode_reply_rest, framed_reply, split_reply
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9, ApiVersion, ApiVersionsResponse
from group_sidecar.codecs.schema import decode_start
from group_sidecar.proxy.broker.added_versions import Versions
from group_sidecar.proxy.broker.answer_settings import AnswerSettings
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.client_access import ClientAccess
from group_sidecar.proxy.broker.gateway_apis import GATEWAY_VERSIONS

SERVED_APIS: Mapping[int, ApiVersion] = {
    key: ApiVersion(api_key=key, min_version=APIS[key].versions[0], max_version=APIS[key].versions[-1])
    for key in (ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS)
}
"""The APIs that the sidecar offers if the broker does not have them at all."""

MAX_CACHED_REPLIES = 8
"""Maximum number of cached replies: one for each request version and each distinct reply of the broker. A full cache is
cleared."""
_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class _CachedReply(NamedTuple):
    """A reply as clients get it.

    `versions`: the broker's own (lowest, highest) by API key, or None if the reply is an error. `rest`: the bytes after
    the correlation id.
    """

    versions: Mapping[int, tuple[int, int]] | None
    rest: bytes


class ApiVersionsReplies:
    """Builds the replies for the clients of one broker.

    Args:
        decoded: the API keys that the sidecar decodes.
        versions: learns what the broker offers.
        access: knows whether the broker may have an authorizer.
        settings: say which questions the sidecar may answer itself.
        gateway: whether the sidecar is a gateway.
        kip40: whether GroupMetadata requests of KIP-40's draft are answered.
    """

    def __init__(
        self,
        decoded: frozenset[int],
        versions: BrokerVersions,
        access: ClientAccess,
        settings: AnswerSettings,
        *,
        gateway: bool,
        kip40: bool,
    ) -> None:
        self._decoded = decoded
        self._versions = versions
        self._access = access
        self._settings = settings
        self._gateway = gateway
        self._kip40 = kip40
        self._cache: dict[tuple[int, bool, bytes], _CachedReply] = {}

    def reply(self, version: int, frame: bytes) -> bytes:
        """Returns the whole frame that the client gets, and stores the broker's versions.

        `frame`: the broker's reply, without its length.

        Raises:
            DecodeError: the reply cannot be decoded, and its error is not UNSUPPORTED_VERSION.
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
            self._versions.learn(cached.versions)
        return framed_reply(int.from_bytes(frame[:4], "big", signed=True), cached.rest)

    def reply_for_kafka_0_9(self, version: int, number: int) -> bytes:
        """Returns the whole frame that the client gets if the broker is Kafka 0.9, which has no ApiVersions.

        `number`: the request's correlation id.
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
        """Returns the whole frame that answers an unsupported version of ApiVersions.

        A broker gives the same answer (``ApiVersionsRequest.getErrorResponse`` of Kafka). The answer lists the
        supported versions of ApiVersions, which are all lower than the refused version.

        Args:
            number: the request's correlation id.
            refused: the request's version.
        """
        described = APIS[ApiKey.API_VERSIONS].versions
        highest_version = self._versions.highest_version(ApiKey.API_VERSIONS)
        highest = min(described[-1], described[-1] if highest_version is None else highest_version)
        if 0 < refused <= highest:
            highest = refused - 1
        own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=described[0], max_version=highest)
        reply = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(own,))
        return framed_reply(number, encode_reply_rest(reply, 0))

    @property
    def _serves(self) -> bool:
        return self._settings.enabled and not self._access.may_have_authorizer

    def _build(self, version: int, frame: bytes) -> _CachedReply:
        # A broker that does not know the version answers in v0, and the reply begins with UNSUPPORTED_VERSION.
        if frame[4:6] == _UNSUPPORTED:
            version = 0
        reply, beyond = decode_start(ApiVersionsResponse, version, split_reply(frame, flexible=False))
        succeeded = reply.error_code == ErrorCode.NONE
        versions = {v.api_key: (v.min_version, v.max_version) for v in reply.api_keys}
        cut = self._cut(reply, versions, succeeded)
        rest = frame[4:] if cut == reply else encode_reply_rest(cut, version) + beyond
        return _CachedReply(versions if succeeded else None, rest)

    def _cut(self, reply: ApiVersionsResponse, versions: Versions, succeeded: bool) -> ApiVersionsResponse:
        """Returns the reply that clients get. `succeeded`: whether the broker's reply has no error."""
        added = self._versions.added_versions_for(versions) if succeeded else {}
        offered = offered_api_versions(
            reply, self._decoded, added, gateway=self._gateway, serve=succeeded and self._serves
        )
        return _group_coordinators_only(offered) if self._kip40 else offered


def offered_api_versions(
    reply: ApiVersionsResponse, decoded: Collection[int], added: Versions, *, gateway: bool, serve: bool
) -> ApiVersionsResponse:
    """Returns an ApiVersions reply with the versions that the client may use.

    Outside gateway mode, the APIs that the sidecar decodes are capped at the newest version that it can decode. In
    gateway mode, only the APIs and versions of `GATEWAY_VERSIONS` are offered.

    Args:
        reply: the broker's reply.
        decoded: the APIs that the sidecar decodes.
        added: the versions that the sidecar adds to the broker's APIs (`added_versions`).
        gateway: whether the sidecar is a gateway.
        serve: whether to add the `SERVED_APIS` that the broker lacks.
    """
    if gateway:
        passing = (v for v in reply.api_keys if v.min_version <= GATEWAY_VERSIONS.get(v.api_key, -1))
        capped = (_capped(v, GATEWAY_VERSIONS[v.api_key]) for v in passing)
    else:
        newest = {key: APIS[key].versions[-1] for key in decoded if key in APIS}
        capped = (_capped(v, newest.get(v.api_key, v.max_version)) for v in reply.api_keys)
    offered = tuple(_raised(version, added) for version in capped)
    if serve:
        keys = {version.api_key for version in offered}
        offered += tuple(version for key, version in SERVED_APIS.items() if key not in keys)
    return replace(reply, api_keys=offered)


def _capped(version: ApiVersion, cap: int) -> ApiVersion:
    return version if cap >= version.max_version else replace(version, max_version=max(version.min_version, cap))


def _raised(version: ApiVersion, added: Versions) -> ApiVersion:
    if version.api_key not in added:
        return version
    return replace(version, max_version=added[version.api_key][1])


def _group_coordinators_only(reply: ApiVersionsResponse) -> ApiVersionsResponse:
    """Returns the reply with only the lowest version of FindCoordinator.

    The sidecar answers v1 of this API key as the GroupMetadata request of KIP-40's draft.
    """
    offered = tuple(
        replace(v, max_version=v.min_version) if v.api_key == ApiKey.FIND_COORDINATOR else v for v in reply.api_keys
    )
    return replace(reply, api_keys=offered)
