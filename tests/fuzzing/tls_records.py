"""Target: the walk over TLS records, and how TLS is noticed on a plain port. mypyc compiles both.

An input is a size of pieces, a maximum number of records per call, and a stream.

- The walk ends at the same record ends as a plain loop over the whole stream, however the stream is cut.
- The detection of TLS gives the same for each byte as the rules in RFC 8446.
"""

from collections.abc import Iterator

from group_sidecar.proxy.dataplane.tls_detection import TlsDetection, is_client_hello, is_tls_reply
from group_sidecar.proxy.dataplane.tls_records import RecordWalker
from tests.fuzzing.input_bytes import InputBytes, pieces
from tests.fuzzing.target import require


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
        require(detection.is_confirmed_by(stream) == is_tls_reply(stream), "the detection and the rule differ")
        require(detection.hello_bytes == 0, "a TLS client waits for ever")
    return ends, is_client_hello(stream)


def _ends_of(stream: bytes) -> list[int]:
    """Returns the ends of all complete records."""
    ends, at = [], 0
    while len(stream) >= at + 5:
        at += 5 + int.from_bytes(stream[at + 3 : at + 5], "big")
        if at <= len(stream):
            ends.append(at)
    return ends


def seeds() -> Iterator[bytes]:
    """Streams of records."""
    record = b"\x17\3\3\0\4abcd"
    yield b"\0\0" + record * 3
    yield b"\6\1" + b"\x16\3\1\0\0" + record + b"\x15\3\3\0\2\2\x28"
    yield b"\2\0" + b"\x16\2" + record
