"""SaslAuthenticate (36), v0-2 (KIP-152).

v1 session lifetime (KIP-368); v2 flexible (KIP-482).
"""

from group_sidecar.codecs.primitives import BYTES, INT16, INT64, STRING
from group_sidecar.codecs.schema import Struct, f, request, response


@request(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest(Struct):
    """A token from the client. Secret: never to be logged."""

    auth_bytes: bytes = f(BYTES)


@response(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse(Struct):
    """The broker's token, and how long the session lasts (0: for ever)."""

    error_code: int = f(INT16)
    error_message: str | None = f(STRING, nullable=0)
    auth_bytes: bytes = f(BYTES)
    session_lifetime_ms: int = f(INT64, since=1, default=0)
