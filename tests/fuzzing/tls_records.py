"""Target: the walk over TLS records, and the detection of TLS on a plain port. mypyc compiles both.

An input is a size of pieces, a maximum number of records per call, and a stream.

- The walk ends at the same record ends as a plain loop over the whole stream, however the stream is cut.
- A stream is TLS exactly if its first record has a version of RFC 8446, section 5.1, and a fitting type. The type is a
  handshake for a client, and a handshake or an alert for a server.
"""

from collections.abc import Iterator

from group_sidecar.proxy.dataplane.tls_detection import TlsDetection, is_client_hello
from group_sidecar.proxy.dataplane.tls_records import RecordWalker
from tests.fuzzing.input_bytes import InputBytes, pieces
from tests.fuzzing.target import require

ALERT, HANDSHAKE, MAJOR_VERSION = 21, 22, 3


def check(data: bytes) -> object:
    """Walks over one stream."""
    given = InputBytes(data)
    size, most, stream = 1 + given.number(), 1 + given.number(), given.rest()
    whole = _ends_of(stream)
    ends, at = [], 0
    walker = RecordWalker()
    for chunk in pieces(stream, size):
        position = 0
        while position < len(chunk):
            stop = walker.walk(chunk, position, most)
            require(position < stop <= len(chunk), "the walk does not move")
            require(walker.ended <= most, "more records than allowed")
            ends.append((walker.ended, at + stop))
            position = stop
        at += len(chunk)
    require(sum(ended for ended, _ in ends) == len(whole), "another number of records")
    require(all(stop in whole for ended, stop in ends if ended == most), "a stop within a record")
    if stream:
        detection = TlsDetection()
        detection.sent(len(stream))
        is_reply = stream[0] in (ALERT, HANDSHAKE) and (len(stream) == 1 or stream[1] == MAJOR_VERSION)
        require(detection.is_confirmed_by(stream) == is_reply, "the detection of a reply and the rule differ")
        require(detection.hello_bytes == 0, "a TLS client waits for ever")
    is_hello = len(stream) > 1 and stream[0] == HANDSHAKE and stream[1] == MAJOR_VERSION
    require(is_client_hello(stream) == is_hello, "the detection of a client and the rule differ")
    return ends, is_hello


def _ends_of(stream: bytes) -> list[int]:
    """Returns the ends of all complete records."""
    ends, at = [], 0
    while len(stream) >= at + 5:
        at += 5 + int.from_bytes(stream[at + 3 : at + 5], "big")
        if at <= len(stream):
            ends.append(at)
    return ends


def seeds() -> Iterator[bytes]:
    """Streams of records, the last one from a server that refuses a handshake."""
    record = b"\x17\3\3\0\4abcd"
    yield b"\0\0" + record * 3
    yield b"\6\1" + b"\x16\3\1\0\0" + record + b"\x15\3\3\0\2\2\x28"
    yield b"\2\0" + b"\x16\2" + record
    yield b"\0\0" + b"\x15\3\3\0\2\2\x28"
