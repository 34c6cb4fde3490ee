"""Encodes requests that the sidecar sends on a client's connection.

Such a request has the client's id, and a correlation id that no client uses:

- `enforcement` asks for a description of a group before it judges a join, and removes a refused member.
- `group_read_access` asks whether the broker lets the client join a group.
- `relay` sends requests in place of a client's request that the broker does not support.
"""

from group_sidecar.codecs.headers import RequestHeader, encode_request
from group_sidecar.codecs.primitives import MAX_STRING_BYTES
from group_sidecar.codecs.schema import Struct

REMOVAL_CORRELATION, RELAY_CORRELATION, DESCRIPTION_CORRELATION, ACCESS_CORRELATION = -389, -88, -15, -12
"""Correlation ids. Clients count up from 0. One id for each purpose is enough, because the broker replies in order."""
LONGEST_CLIENT_ID = MAX_STRING_BYTES // 4
"""Maximum characters of a client id. This number of characters always fits, because a character takes at most four
bytes in UTF-8. A client id that was not UTF-8 may take up to three times its original bytes."""


def encode_injected(request: Struct, version: int, correlation: int, header: RequestHeader) -> bytes:
    """Returns a whole frame. `header`: the header of the client's own request, whose client id the frame gets."""
    client_id = None if header.client_id is None else header.client_id[:LONGEST_CLIENT_ID]
    return encode_request(request, RequestHeader(request.KEY, version, correlation, client_id))
