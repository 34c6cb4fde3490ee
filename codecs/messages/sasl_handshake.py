"""SaslHandshake (17), v0-1 (KIP-43); never flexible.

After v0, client and broker exchange raw tokens, each after its length and without a header. After v1, the client sends
SaslAuthenticate requests (KIP-152).
"""

from group_sidecar.codecs.primitives import INT16, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, wire_field


@request(key=17, versions=(0, 1))
class SaslHandshakeRequest(Struct):
    """A client chooses its mechanism."""

    mechanism: str = wire_field(STRING)


@response(key=17, versions=(0, 1))
class SaslHandshakeResponse(Struct):
    """The mechanisms that the broker has enabled."""

    error_code: int = wire_field(INT16)
    mechanisms: tuple[str, ...] = wire_field(Array(STRING))
