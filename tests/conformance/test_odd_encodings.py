"""Joins in encodings that no client writes but the broker accepts. None of them passes a group's limit."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import split_reply
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest
from group_sidecar.codecs.primitives import encode_string
from group_sidecar.codecs.schema import decode
from tests.kafka.broker import KafkaBroker
from tests.kafka.group_members import MINUTES, succeeded
from tests.kafka.processes import Address, free_addresses
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

CODES = (int(ErrorCode.GROUP_MAX_SIZE_REACHED), int(ErrorCode.GROUP_MAX_SIZE_REACHED_KIP_389))
"""The error codes with which the two sidecars refuse."""
REJECTIONS, FAILURES = "group_sidecar_policy_rejections_total", "group_sidecar_decode_failures_total"
FLEXIBLE_SINCE = JoinGroupRequest.FLEXIBLE


class Odd(NamedTuple):
    """The encoding of a join.

    Attributes:
        version: the version of JoinGroup.
        null: the negative length that stands for a null instance id. Clients write -1.
        bits: the bits above the 32nd bit in the fifth byte of each varint; None for the shortest varints.
        tags: the tagged fields of the request.
        behind: the bytes that follow the request's fields.
    """

    version: int
    null: int = -1
    bits: int | None = None
    tags: bytes = b"\0"
    behind: bytes = b""


ENCODINGS = {
    "instance id of length -2": Odd(5, null=-2),
    "instance id of the lowest length": Odd(5, null=-0x8000),
    "compact instance id of length -2": Odd(9, null=-2),
    "varints of five bytes": Odd(9, bits=0),
    "varints with bits above the 32nd": Odd(9, bits=0x70),
    "tags out of order": Odd(9, tags=bytes.fromhex("02 05 00 01 01 61")),
    "tag twice": Odd(9, tags=bytes.fromhex("02 05 00 05 01 61")),
    "bytes behind the request": Odd(9, behind=b"behind"),
    "bytes behind an older request": Odd(5, behind=b"behind"),
}


def varint(value: int, odd: Odd) -> bytes:
    value &= 0xFFFFFFFF
    groups = [value >> shift & 0x7F for shift in range(0, 35, 7)]
    if odd.bits is None:
        while len(groups) > 1 and not groups[-1]:
            groups.pop()
    else:
        groups[-1] |= odd.bits
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def string(value: str, odd: Odd) -> bytes:
    flexible = odd.version >= FLEXIBLE_SINCE
    return varint(len(value) + 1, odd) + value.encode() if flexible else encode_string(value)


def join_frame(group: str, odd: Odd) -> bytes:
    """Returns a dynamic member's first join."""
    header = (
        JoinGroupRequest.KEY.to_bytes(2, "big") + odd.version.to_bytes(2, "big") + b"\0\0\0\7" + encode_string("odd")
    )
    timeouts = MINUTES.to_bytes(4, "big") * 2
    start = string(group, odd) + timeouts + string("", odd)
    if odd.version < FLEXIBLE_SINCE:
        instance = odd.null.to_bytes(2, "big", signed=True)
        protocols = b"\0\0\0\1" + string("range", odd) + b"\0\0\0\0"
        return header + start + instance + string("consumer", odd) + protocols + odd.behind
    no_tags = varint(0, odd)
    protocols = varint(2, odd) + string("range", odd) + varint(1, odd) + no_tags
    end = string("consumer", odd) + protocols + varint(0, odd) + odd.tags + odd.behind
    return header + no_tags + start + varint(odd.null + 1, odd) + end


def join(address: Address, group: str, odd: Odd) -> JoinGroupResponse:
    with Wire(address) as wire:
        wire.send_token(join_frame(group, odd))
        body = split_reply(wire.receive(), odd.version >= JoinGroupResponse.HEADER_FLEXIBLE)
        return decode(JoinGroupResponse, odd.version, body)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("odd-encodings")) as broker:
        broker.wait_for_coordinator()
        yield broker


@pytest.fixture(scope="module", params=CODES)
def sidecar(
    broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SidecarProcess]:
    """A sidecar with a limit of one member per group. It already has a full group."""
    folder: Path = tmp_path_factory.mktemp("sidecar")
    settings = {"policies": {"group_max_size": {"limit": 1, "error_code": request.param}}}
    (listen,) = free_addresses(1)
    with SidecarProcess(folder, listen=listen, upstream=broker.direct, settings=settings) as sidecar:
        sidecar.wait_for_log()
        with Wire(listen) as wire:
            fill(wire, full_group(request.param))
            yield sidecar


def full_group(code: int) -> str:
    return f"full-{code}"


def fill(wire: Wire, group: str) -> None:
    """Creates the group's only member."""
    first = JoinGroupRequest(
        group_id=group,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupProtocol(name="range", metadata=b""),),
        session_timeout_ms=MINUTES,
        rebalance_timeout_ms=MINUTES,
    )
    joined = succeeded(wire.ask(first, 3))
    sync = SyncGroupRequest(
        group_id=group, member_id=joined.member_id, generation_id=joined.generation_id, assignments=()
    )
    succeeded(wire.ask(sync, 2))


@pytest.mark.parametrize("odd", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_broker_accepts_encoding(broker: KafkaBroker, odd: Odd) -> None:
    """The broker accepts a join in each odd encoding, so the test of the limit is meaningful."""
    assert join(broker.direct, "read-by-the-broker", odd).error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("odd", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_limit_holds_for_encoding(sidecar: SidecarProcess, request: pytest.FixtureRequest, odd: Odd) -> None:
    """The group size limit refuses a join in each odd encoding, without a decode failure."""
    code = request.node.callspec.params["sidecar"]
    refused = sidecar.metric(REJECTIONS)
    assert join(sidecar.listen, full_group(code), odd).error_code == code
    assert sidecar.metric(REJECTIONS) == refused + 1
    assert sidecar.metric(FAILURES) == 0
