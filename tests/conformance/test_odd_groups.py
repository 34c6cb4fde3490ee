"""Odd group ids and odd joins: the sidecar's limit treats them as the broker's own limit does.

Both limits are one member. So a join would pass if the sidecar counted it for another group than the broker does.
"""

import secrets
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, free_addresses
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
MINUTE = 60_000
FULL = struct.pack(">h", 81)
LARGE = 20 * 1024 * 1024
NUMBERS = count()


def classic(text: bytes) -> bytes:
    """Encodes a string of a version that is not flexible."""
    return struct.pack(">h", len(text)) + text


def compact(text: bytes) -> bytes:
    """Encodes a string of a flexible version."""
    length, encoded = len(text) + 1, b""
    while length > 0x7F:
        encoded, length = encoded + bytes([length & 0x7F | 0x80]), length >> 7
    return encoded + bytes([length]) + text


def framed(key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    """Returns a request of any API."""
    payload = struct.pack(">hhih", key, version, 7, -1) + b"\0" * flexible + body
    return struct.pack(">i", len(payload)) + payload


def join(group: bytes, *, metadata: bytes = b"", behind: bytes = b"") -> bytes:
    """Returns a JoinGroup v2, which creates a member at once."""
    timeouts = struct.pack(">ii", MINUTE, MINUTE)
    protocols = struct.pack(">i", 1) + classic(b"range") + struct.pack(">i", len(metadata)) + metadata
    return framed(JOIN, 2, classic(group) + timeouts + classic(b"") + classic(b"consumer") + protocols + behind)


def flexible_join(group: bytes, instance: bytes) -> bytes:
    """Returns a JoinGroup v6 that creates a static member at once."""
    timeouts = struct.pack(">ii", MINUTE, MINUTE)
    protocols = b"\2" + compact(b"range") + b"\1" + b"\0"
    body = compact(group) + timeouts + compact(b"") + compact(instance) + compact(b"consumer") + protocols + b"\0"
    return framed(JOIN, 6, body, flexible=True)


def results(at: Address, *frames: bytes) -> list[str]:
    """Sends each frame over its own connection. Returns ``in``, the error reply in hex, or ``closed`` for each."""
    return [_outcome(at, frame) for frame in frames]


def _outcome(at: Address, frame: bytes) -> str:
    with Wire(at) as wire:
        try:
            wire.send(frame)
            reply = wire.receive()
        except ConnectionError:
            return "closed"
    # The error code follows the correlation id, the tags of a flexible reply, and the throttle time.
    flexible = frame[4:8] == struct.pack(">hh", JOIN, 6)
    error = reply[8 + flexible : 10 + flexible] if frame[4:6] != struct.pack(">h", HEARTBEAT) else reply[4:]
    return "in" if error == b"\0\0" else reply.hex()


@pytest.fixture(scope="module", params=["exclusive", "not exclusive"])
def limited(
    broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Address]:
    """A sidecar with a limit of one member, in front of a broker without a limit."""
    broker.wait_for_coordinator()
    [listen] = free_addresses(1)
    settings = {
        "policies": {"group_max_size": {"limit": 1, "error_code": 81}},
        "answers": {"exclusive": request.param == "exclusive"},
    }
    with SidecarProcess(tmp_path_factory.mktemp("odd"), listen=listen, upstream=broker.client, settings=settings):
        yield listen


@pytest.fixture
def suffix() -> bytes:
    """Returns a suffix for group ids that no other test has used."""
    return secrets.token_hex(5).encode()


LONGEST = 0x7FFF
IDS: dict[str, Callable[[bytes], bytes]] = {
    "the longest that there is": lambda suffix: suffix.ljust(LONGEST, b"x"),
    "not UTF-8": lambda suffix: b"\xff\xfe\x80" + suffix,
    "cut off within a character": lambda suffix: suffix + b"\xf0\x9f\x90",
    "a lone surrogate": lambda suffix: b"\xed\xa0\x80" + suffix,
    "NUL": lambda suffix: b"\0" + suffix + b"\0",
    "only NUL": lambda suffix: b"\0" * (1 + next(NUMBERS)),
    "emoji": lambda suffix: "🐳🇩🇪".encode() + suffix,
    "slashes": lambda suffix: b"/../" + suffix + b"/%2f?a=b&c#d",
    "blanks and line ends": lambda suffix: b" \t\r\n" + suffix + b"\n",
    "quotes": lambda suffix: b'"' + suffix + b"'\\{}",
    "decomposed": lambda suffix: "e\u0301".encode() + suffix,
}


@pytest.mark.parametrize("name", IDS)
def test_limit_holds_for_any_group_id(strict_broker: KafkaBroker, limited: Address, suffix: bytes, name: str) -> None:
    """The group size limit holds for any group id, as at a broker with the same limit."""
    group = IDS[name](suffix)
    frames = [join(group), join(group), flexible_join(group, b"instance"), join(suffix + b" another")]
    seen = results(limited, *frames)
    assert [each == "in" for each in seen] == [True, False, False, True]
    assert seen == results(strict_broker.direct, *frames)


@pytest.mark.parametrize("pair", [(b"\xff", b"\xfe"), (b"\xff", "\ufffd".encode()), (b"\xc3(", "\ufffd(".encode())])
def test_equally_decoded_ids_share_limit(
    strict_broker: KafkaBroker, limited: Address, suffix: bytes, pair: tuple[bytes, bytes]
) -> None:
    """Group ids that the broker decodes to the same string share one limit."""
    frames = [join(suffix + each) for each in pair]
    seen = results(limited, *frames)
    assert seen[0] == "in" != seen[1]
    assert seen == results(strict_broker.direct, *frames)


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(("GROUP", "group"), id="case"),
        pytest.param(("é", "e\u0301"), id="normalization"),
        pytest.param(("ﬁ", "fi"), id="ligature"),
        pytest.param(("group", "group "), id="a blank"),
        pytest.param(("group", "group\0"), id="NUL"),
        pytest.param(("\ufeffgroup", "group"), id="byte order mark"),
    ],
)
def test_similar_ids_are_separate_groups(
    strict_broker: KafkaBroker, limited: Address, suffix: bytes, pair: tuple[str, str]
) -> None:
    """Similar group ids that the broker keeps apart have separate limits."""
    frames = [join(suffix + each.encode()) for each in (*pair, *pair)]
    seen = results(limited, *frames)
    assert [each == "in" for each in seen] == [True, True, False, False]
    assert seen == results(strict_broker.direct, *frames)


def test_flexible_id_may_exceed_32767_bytes(strict_broker: KafkaBroker, limited: Address, suffix: bytes) -> None:
    """Joins with a compact group id longer than 32767 bytes get the replies of a broker with the same limit."""
    group = suffix.ljust(LONGEST + 100, b"x")
    frames = [flexible_join(group, b"one"), flexible_join(group, b"two")]
    assert results(limited, *frames) == results(strict_broker.direct, *frames)


def test_broker_refuses_empty_group_id(strict_broker: KafkaBroker, limited: Address) -> None:
    """The broker refuses requests with an empty group id, directly and through the sidecar."""
    member = struct.pack(">i", 1) + classic(b"member")
    frames = [
        join(b""),
        join(b""),
        flexible_join(b"", b"instance"),
        framed(HEARTBEAT, 0, classic(b"") + member),
        framed(LEAVE, 1, classic(b"") + classic(b"member")),
        framed(SYNC, 1, classic(b"") + member + struct.pack(">i", 0)),
    ]
    seen = results(limited, *frames)
    assert "in" not in seen
    assert seen == results(strict_broker.direct, *frames)


def test_join_cannot_be_disguised(strict_broker: KafkaBroker, limited: Address, suffix: bytes) -> None:
    """Trailing bytes or another version do not let a join pass the limit."""
    body = join(suffix)[14:]
    frames = [
        join(suffix),
        join(suffix, behind=b"garbage"),
        join(suffix, behind=join(suffix)),
        framed(JOIN, 10, body),
        framed(JOIN, 99, body),
        framed(JOIN, -1, body),
        framed(JOIN, 6, body),
        framed(JOIN, 2, body[:-4]),
        join(suffix),
    ]
    seen = results(limited, *frames)
    assert seen[0] == "in" not in seen[1:]
    assert seen == results(strict_broker.direct, *frames)


def test_too_long_join_closes_connection(limited: Address, suffix: bytes) -> None:
    """A join longer than the inspected size closes the connection and adds no member, although a broker accepts it."""
    frames = [join(suffix, metadata=bytes(LARGE)), join(suffix), join(suffix, metadata=bytes(LARGE)), join(suffix)]
    assert [each if each in ("in", "closed") else "refused" for each in results(limited, *frames)] == [
        "closed",
        "in",
        "closed",
        "refused",
    ]


def test_pipelined_joins_are_refused_in_order(strict_broker: KafkaBroker, limited: Address, suffix: bytes) -> None:
    """Pipelined joins are accepted and refused in their order, as at a broker with the same limit."""

    def seen(at: Address) -> list[str]:
        with ExitStack() as stack:
            wire = stack.enter_context(Wire(at))
            wire.send(join(suffix + b"a") + join(suffix + b"a") + join(suffix + b"b") + join(suffix + b"b"))
            return [wire.receive()[8:10].hex() for _ in range(4)]

    assert seen(limited) == seen(strict_broker.direct) == ["0000", FULL.hex(), "0000", FULL.hex()]
