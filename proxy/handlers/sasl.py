"""Handles SASL handshakes and tokens. The broker's replies show which principal a connection has.

`client_principals` reads these replies.
"""

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import decode_request_header
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.client_access import ClientAccess
from group_sidecar.proxy.broker.client_principals import SASL_ROUNDS, SentToken
from group_sidecar.proxy.dataplane.framing import HOLD, FrameAction
from group_sidecar.proxy.dataplane.held_request_budget import UNAUTHENTICATED_FRAME
from group_sidecar.proxy.dataplane.outcomes import (
    OPAQUE,
    UNCHANGED,
    Forward,
    HangUp,
    Origin,
    PendingReply,
    Reply,
    RequestOutcome,
)
from group_sidecar.proxy.handlers.api_handler import DecodingHandler, DecodingParts
from group_sidecar.proxy.handlers.decode_limits import DecodeLimits
from group_sidecar.proxy.handlers.reply_rewriter import decode_reply

SASL_APIS = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})
_HANDSHAKE, _AUTHENTICATE = int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)


class SaslRequests(DecodingHandler):
    """Handles SaslHandshake and SaslAuthenticate.

    Args:
        access: learns which principal is on a connection.
        decode_limits: how much of a request is decoded.
        gateway: whether the sidecar is a gateway.
    """

    def __init__(
        self, parts: DecodingParts, access: ClientAccess, decode_limits: DecodeLimits, *, gateway: bool
    ) -> None:
        super().__init__(HOLD, parts)
        self._access = access
        self._decode_limits = decode_limits
        self._gateway = gateway

    def must_be_decoded(self, api_key: int, version: int) -> bool:
        """See ApiHandler. After an undecoded SaslHandshake v0, requests would bypass the policies."""
        if api_key == _HANDSHAKE:
            return version == 0 and self.has_enforced_policy
        return super().must_be_decoded(api_key, version)

    @property
    def has_enforced_policy(self) -> bool:
        """Whether any policy may refuse requests."""
        return any(policy.enforced for policy in self._policies)

    @property
    def must_stay_readable(self) -> bool:
        """Whether a connection must be closed if it can never be parsed again.

        Otherwise a gateway would forward the brokers' own addresses, and requests would bypass an enforced policy.
        """
        return self._gateway or self.has_enforced_policy

    def refuse_principal(self, origin: Origin) -> Reply:
        """Returns the outcome that closes a connection whose principal has too many connections, and logs it."""
        cause = self._access.principals.limit_cause
        refused = self._disconnector.close_for(CloseReason.PRINCIPAL_LIMIT, _AUTHENTICATE, cause, origin)
        return Reply(hang_up=refused.reason)

    def undecoded(self, api_key: int, version: int, frame: bytes | None) -> PendingReply:
        """See ApiHandler."""
        self._observer.note_undecoded(api_key, frame)
        if api_key == _HANDSHAKE:
            return PendingHandshake(self, self._access, "", version)
        return PendingToken(self, self._access, SentToken(version))

    def decode(self, frame: bytes, version: int, origin: Origin, now: float) -> RequestOutcome:
        """See DecodingHandler."""
        key = int.from_bytes(frame[:2], "big")
        api = APIS[key]
        assert api.request is not None
        _, body = decode_request_header(frame, api.flexible(version))
        judged = bool(self._policies.policies_for(key))
        request, _ = decode_start(api.request, version, body, self._decode_limits.request(key, judged=judged))
        if isinstance(request, SaslHandshakeRequest):
            return Forward(PendingHandshake(self, self._access, request.mechanism, version))
        assert isinstance(request, SaslAuthenticateRequest)
        token = self._access.principals.token(request.auth_bytes, version, now)
        return Forward(PendingToken(self, self._access, token))


class _PendingSasl(PendingReply):
    """A pending reply to a SASL request."""

    __slots__ = ("_access",)

    def __init__(self, access: ClientAccess) -> None:
        self._access = access

    def classify_reply(self, size: int, now: float) -> FrameAction | HangUp:
        """See PendingReply."""
        return HOLD if size <= UNAUTHENTICATED_FRAME else HangUp(CloseReason.UNREADABLE)


class PendingHandshake(_PendingSasl):
    """The pending reply to SaslHandshake. `mechanism` is empty if the request could not be decoded."""

    __slots__ = ("_mechanism", "_requests", "_version")

    def __init__(self, requests: SaslRequests, access: ClientAccess, mechanism: str, version: int) -> None:
        super().__init__(access)
        self._requests = requests
        self._mechanism = mechanism
        self._version = version

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return _HANDSHAKE

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        return self._begin_tokens(self._follow(decode_reply(_HANDSHAKE, self._version, frame).message, origin))

    def unreadable(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        self._access.principals.distrust(origin)
        return self._begin_tokens(OPAQUE if self._version == 0 else 0)

    def _follow(self, reply: Struct, origin: Origin) -> int:
        """Learns which principal is on the connection. Returns how many raw tokens come next."""
        assert isinstance(reply, SaslHandshakeResponse)
        access = self._access
        accepted = reply.error_code == ErrorCode.NONE
        if accepted:
            access.learn_sasl_required()
        if accepted and self._version and self._mechanism:
            if own := access.principals.handshake_accepted(origin, self._mechanism):
                access.rights.forget_principal(own)
        else:
            access.principals.distrust(origin)
        return SASL_ROUNDS.get(self._mechanism, OPAQUE) if accepted and self._version == 0 else 0

    def _begin_tokens(self, count: int) -> Reply:
        """Returns what the client gets for a handshake that `count` raw tokens follow.

        If the connection can never be parsed again, a gateway closes the connection, because addresses would pass
        unchanged. If a policy is enforced, the connection is closed too, because requests would bypass the policy.
        """
        unreadable = count == OPAQUE and self._requests.must_stay_readable
        return Reply(hang_up=CloseReason.UNREADABLE) if unreadable else Reply(raw_tokens=count)


class PendingToken(_PendingSasl):
    """The pending reply to SaslAuthenticate."""

    __slots__ = ("_requests", "_token")

    def __init__(self, requests: SaslRequests, access: ClientAccess, token: SentToken) -> None:
        super().__init__(access)
        self._requests = requests
        self._token = token

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return _AUTHENTICATE

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        answer = decode_reply(_AUTHENTICATE, self._token.version, frame).message
        assert isinstance(answer, SaslAuthenticateResponse)
        principals = self._access.principals
        principals.token_answered(origin, self._token, answer)
        return UNCHANGED if principals.try_count(origin) else self._requests.refuse_principal(origin)

    def unreadable(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        self._access.principals.distrust(origin)
        return UNCHANGED
