"""Requests that the sidecar puts into a client's connection.

Owns: their bytes: the client's name, and a correlation id that no client has. Must not know: what is asked, and why.
"""

from group_sidecar.codecs.headers import RequestHeader, encode_request
from group_sidecar.codecs.primitives import MAX_STRING_BYTES
from group_sidecar.codecs.schema import Struct

LONGEST_CLIENT_ID = MAX_STRING_BYTES // 4
"""Characters that fit whatever they are. A client id read from bytes that are not UTF-8 may take thrice as many."""


def encode_injected(request: Struct, version: int, correlation: int, header: RequestHeader) -> bytes:
    """A whole frame. `header`: of the client's own request, in whose name it is sent."""
    client_id = None if header.client_id is None else header.client_id[:LONGEST_CLIENT_ID]
    return encode_request(request, RequestHeader(request.KEY, version, correlation, client_id))
