"""Target: readers that look for something in a frame without decoding all of it. mypyc compiles them.

An input is the kind of scan, a size of pieces, and a frame.

- Headers of requests and replies: only documented errors are raised. `body_start` and `decode_request_header` agree.
- Addresses in FindCoordinator and Produce replies: only NotScannable is raised. Unchanged addresses leave the body
  unchanged. All addresses are within the body. A rewritten reply is a frame of the length that it announces.
- Ends of replies: only DecodeError is raised. The end is at the same position however the reply is cut.
- acks of a Produce request: any bytes give a number or None.
"""

from collections.abc import Callable, Iterator

from group_sidecar.codecs.address_scan import NotScannable, find_body_tags, rewrite_coordinators
from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.errors import DecodeError, TooManyElements
from group_sidecar.codecs.headers import (
    RequestHeader,
    body_start,
    decode_request_header,
    encode_reply_rest,
    encode_request,
    reply_start,
)
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorResponse
from group_sidecar.codecs.messages.produce import ProduceRequest, ProduceResponse
from group_sidecar.codecs.reply_tail import TAIL_PROGRAMS, TailProgram, TailSearch, find_tail
from group_sidecar.codecs.schema import encode
from group_sidecar.proxy.broker.address_rewrite import scan_and_rewrite
from group_sidecar.proxy.dataplane.produce_acks import acks
from tests.codecs.declarations import full_sample, limited_to
from tests.fuzzing.input_bytes import InputBytes
from tests.fuzzing.target import require

MAX_ENTRIES = 100
PROGRAMS = list(TAIL_PROGRAMS.values())


def check(data: bytes) -> object:
    """Runs one scan."""
    given = InputBytes(data)
    scan = SCANS[given.number() % len(SCANS)]
    return scan(given)


def _headers(given: InputBytes) -> object:
    flexible, frame = bool(given.number() % 2), given.rest()
    try:
        header, body = decode_request_header(frame, flexible)
    except TooManyElements as error:
        return str(error)
    except DecodeError as error:
        require(body_start(frame, flexible) is None, "body_start accepts what decode_request_header refuses")
        return str(error)
    require(body_start(frame, flexible) == len(frame) - len(body), "body_start finds another body")
    return header, body


def _reply_header(given: InputBytes) -> object:
    flexible, frame = bool(given.number() % 2), given.rest()
    try:
        start = reply_start(frame, flexible)
    except DecodeError as error:
        return str(error)
    require(4 <= start <= len(frame), "a body that begins outside of the frame")
    return start


def _coordinators(given: InputBytes) -> object:
    body = given.rest()
    addresses: list[bytes] = []

    def unchanged(address: bytes) -> bytes:
        addresses.append(address)
        return address

    try:
        require(rewrite_coordinators(body, MAX_ENTRIES, unchanged) == body, "an unchanged address changes the reply")
    except NotScannable as error:
        return str(error)
    require(len(addresses) <= MAX_ENTRIES, "more addresses than allowed")
    return addresses


def _produce_tags(given: InputBytes) -> object:
    topic_ids, body = bool(given.number() % 2), given.rest()
    try:
        at = find_body_tags(body, MAX_ENTRIES, topic_ids=topic_ids)
    except NotScannable as error:
        return str(error)
    require(at <= len(body), "the tagged fields begin after the end of the reply")
    return at


def _tail(given: InputBytes) -> object:
    program = PROGRAMS[given.number() % len(PROGRAMS)]
    size, reply = 1 + given.number(), given.rest()
    if not reply:
        return None
    at = _position(lambda: find_tail(program, reply))
    pieces = _position(lambda: _find_in_pieces(program, reply, size))
    require(at == pieces, f"the end is at {at}, or at {pieces} if the reply is cut")
    return at


def _position(find: Callable[[], int]) -> int | None:
    try:
        return find()
    except DecodeError:
        return None


def _find_in_pieces(program: TailProgram, reply: bytes, size: int) -> int:
    """Finds the tail as `FrameWalker` does: with the bytes that have arrived, and without those that it skips."""
    search, at, arrived = TailSearch(program, len(reply)), 0, 0
    while not search.found and arrived < len(reply):
        arrived = min(len(reply), arrived + size)
        skipped = 1
        while at < arrived and skipped and not search.found:
            skipped = search.skip(reply[:arrived], at, arrived)
            at += skipped
    if not search.found:
        raise DecodeError("reply", "", "cut off")
    return at


def _acks(given: InputBytes) -> object:
    version, start = given.number(), given.number() % 8
    frame = given.rest()
    found = acks(version, frame, min(start, len(frame)), len(frame))
    require(found is None or -0x8000 <= found <= 0x7FFF, "acks is no int16")
    return found


def _rewritten(given: InputBytes) -> object:
    produce, version, frame = given.number() % 2, given.number(), given.rest()
    key, version = (ApiKey.PRODUCE, 9 + version % 5) if produce else (ApiKey.FIND_COORDINATOR, 4 + version % 3)
    try:
        found = scan_and_rewrite(key, version, frame, lambda node_id, host, port: ("gateway", 9_092), MAX_ENTRIES)
    except (NotScannable, DecodeError, ValueError) as error:
        return str(error)
    require(found is None or int.from_bytes(found[:4], "big") == len(found) - 4, "a frame of another length")
    return found


SCANS: list[Callable[[InputBytes], object]] = [
    *(_headers, _reply_header, _coordinators, _produce_tags, _tail, _acks, _rewritten)
]


def seeds() -> Iterator[bytes]:
    """Frames of each kind."""
    produce = full_sample(ProduceRequest)
    for version in ProduceRequest.VERSIONS:
        header = RequestHeader(0, version, 7, "client", ((5, b"tag"),) if version >= 9 else ())
        frame = encode_request(limited_to(produce, version), header)[4:]
        yield bytes((0, version >= 9)) + frame
        yield bytes((5, version, 0)) + frame
    for version in (4, 5, 6):
        sample = limited_to(full_sample(FindCoordinatorResponse), version)
        yield b"\2" + encode(sample, version)
        yield bytes((6, 0, version - 4)) + bytes(4) + encode_reply_rest(sample, version)
        yield b"\1\1" + bytes(4) + encode_reply_rest(sample, version)
    for version in range(9, ProduceResponse.VERSIONS[-1] + 1):
        sample = limited_to(full_sample(ProduceResponse), version)
        yield bytes((3, version >= 13)) + encode(sample, version)
        yield bytes((6, 1, version - 9)) + bytes(4) + encode_reply_rest(sample, version)
    for at in range(len(PROGRAMS)):
        yield bytes((4, at, 3)) + bytes(4) + b"\0" + bytes(6) + b"\1\2\3" + bytes(60)
        yield bytes((4, at, 0)) + bytes(4) + b"\1\5\2ab" + bytes(6) + b"\2" + bytes(16) + b"\2" + bytes(99)
