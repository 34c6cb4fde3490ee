"""The encoding of KIP-40's draft, byte by byte."""

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from group_sidecar.codecs.messages.group_metadata import (
    GroupMetadataRequest,
    GroupMetadataResponse,
    Kip40Coordinator,
    Kip40Group,
    Kip40GroupMetadata,
    Kip40Member,
    Kip40MemberMetadata,
    Kip40State,
)
from group_sidecar.codecs.schema import Struct, decode, encode
from tests.codecs.strategies import per_message, structs

MESSAGES: tuple[type[Struct], ...] = (GroupMetadataRequest, GroupMetadataResponse)
MEMBER = Kip40Member(
    member_id="m", member_host="/10.0.0.1", client_id="c", member_metadata=b"\1\2", member_assignment=b"\3"
)
DESCRIBED = Kip40Group(
    error_code=0,
    group_id="g",
    coordinator=Kip40Coordinator(id=7, host="host", port=9092),
    group_metadata=Kip40GroupMetadata(state=3, protocol_type="consumer", generation=5, protocol="range"),
    member_metadata=Kip40MemberMetadata(leader="m", members=(MEMBER,)),
)
REQUEST_BYTES = (b"\1", b"\0", b"\0\0\0\2", b"\0\1g", b"\0\3\xc3\xa9h")
DESCRIBED_BYTES = (
    b"\0\0",  # the error
    b"\0\1g",
    b"\0\0\0\7\0\4host\0\0\x23\x84",
    b"\3\0\x08consumer\0\0\0\5\0\5range",
    b"\0\1m",  # the leader
    b"\0\0\0\1",
    b"\0\1m\0\x09/10.0.0.1\0\1c\0\0\0\2\1\2\0\0\0\1\3",
)
ELSEWHERE_BYTES = (
    b"\0\x10\0\1h",
    b"\0\0\0\x08\0\1x\0\0\0\1",
    b"\0\0\0\xff\xff\xff\xff\0\0",  # Dead, and all other fields are empty
    b"\0\0\0\0\0\0",
)
VECTORS: list[tuple[Struct, bytes]] = [
    (
        GroupMetadataRequest(include_all_groups=1, include_member_metadata=0, groups=("g", "éh")),
        b"".join(REQUEST_BYTES),
    ),
    (GroupMetadataRequest(include_all_groups=0, include_member_metadata=1, groups=()), b"\0\1\0\0\0\0"),
    (GroupMetadataResponse(groups=()), b"\0\0\0\0"),
    (
        GroupMetadataResponse(
            groups=(
                DESCRIBED,
                Kip40Group(error_code=16, group_id="h", coordinator=Kip40Coordinator(id=8, host="x", port=1)),
            )
        ),
        b"".join((b"\0\0\0\2", *DESCRIBED_BYTES, *ELSEWHERE_BYTES)),
    ),
]


@pytest.mark.parametrize(("message", "body"), VECTORS)
def test_encode_and_decode_vectors(message: Struct, body: bytes) -> None:
    """Each KIP-40 test vector encodes to its bytes and decodes to its message."""
    assert encode(message, 1) == body
    assert decode(type(message), 1, body) == message


@pytest.mark.parametrize(("message", "body"), VECTORS)
def test_truncated_or_extended_vectors_fail(message: Struct, body: bytes) -> None:
    """A KIP-40 vector that is truncated or has a trailing byte raises DecodeError."""
    for wrong in [body[:end] for end in range(len(body))] + [body + b"\0"]:
        with pytest.raises(DecodeError):
            decode(type(message), 1, wrong)


def test_state_numbers() -> None:
    """The KIP-40 group states have the numbers of the draft."""
    assert {state.name: state.value for state in Kip40State} == {
        "DEAD": 0,
        "INITIALIZING": 1,
        "REBALANCING": 2,
        "STABLE": 3,
    }


def test_registry_keeps_find_coordinator() -> None:
    """The API registry keeps Kafka's FindCoordinator for the key that the KIP-40 draft also uses."""
    assert APIS[ApiKey.FIND_COORDINATOR].request is FindCoordinatorRequest
    assert GroupMetadataRequest.KEY == GroupMetadataResponse.KEY == ApiKey.FIND_COORDINATOR


@per_message
@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    """A KIP-40 message round-trips through its bytes."""
    cls = data.draw(st.sampled_from(MESSAGES))
    message: Any = data.draw(structs(cls, tagged=False))
    assert decode(cls, 1, encode(message, 1)) == message


@per_message
@given(st.sampled_from(MESSAGES), st.data())
def test_any_bytes_decode_or_fail(cls: type[Struct], data: st.DataObject) -> None:
    """Decoding any bytes as a KIP-40 message yields a message that round-trips, or raises DecodeError."""
    body = data.draw(st.binary(max_size=48))
    if data.draw(st.booleans()):
        _, known = data.draw(st.sampled_from([vector for vector in VECTORS if type(vector[0]) is cls]))
        at = data.draw(st.integers(0, len(known)))
        body = known[:at] + body + known[at + data.draw(st.integers(0, 4)) :]
    with suppress(DecodeError):
        message = decode(cls, 1, body)
        assert decode(cls, 1, encode(message, 1)) == message


@pytest.mark.parametrize("count", [-1, 4, 0x7FFFFFFF])
def test_list_count_beyond_bytes_is_refused(count: int) -> None:
    """A negative list count or a count beyond the bytes left raises DecodeError."""
    with pytest.raises(DecodeError):
        decode(GroupMetadataRequest, 1, b"\0\0" + struct.pack(">i", count) + b"\0\1g")


@per_message
@given(st.text(min_size=1, max_size=100), st.integers(0, 2))
def test_find_coordinator_v1_is_no_draft(key: str, key_type: int) -> None:
    """A FindCoordinator v1 request of a released client does not decode as a KIP-40 request."""
    body = encode(FindCoordinatorRequest(key=key, key_type=key_type), 1)
    if "\0" not in key:
        with pytest.raises(DecodeError):
            decode(GroupMetadataRequest, 1, body)
