"""SaslAuthenticate (36), v0-2 (KIP-152).

v1 session lifetime (KIP-368); v2 flexible (KIP-482).
"""

from group_sidecar.codecs.primitives import BYTES, INT16, INT64, STRING
from group_sidecar.codecs.schema import Struct, request, response, wire_field


@request(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest(Struct):
    """A token from the client. The token is secret and must never be logged."""

    auth_bytes: bytes = wire_field(BYTES)


@response(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse(Struct):
    """The broker's token, and the lifetime of the session (0: unlimited)."""

    error_code: int = wire_field(INT16)
    error_message: str | None = wire_field(STRING, nullable=0)
    auth_bytes: bytes = wire_field(BYTES)
    session_lifetime_ms: int = wire_field(INT64, since=1, default=0)
