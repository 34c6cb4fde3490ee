"""Headers of both versions, both ways, and against Kafka's schemas of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeader2
from kio.serial import entity_reader

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.headers import (
    REPLY_HEAD,
    REQUEST_HEAD,
    RequestHeader,
    body_start,
    decode_request_header,
    encode_reply,
    encode_request,
    split_reply,
)
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsResponse
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.registry import APIS
from group_sidecar.codecs.schema import decode, encode
from tests.codecs.strategies import tags

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
BEATEN = HeartbeatResponse(error_code=27)

requests = st.builds(
    RequestHeader,
    api_key=st.just(HeartbeatRequest.KEY),
    api_version=st.sampled_from(HeartbeatRequest.VERSIONS),
    correlation_id=st.integers(-(1 << 31), (1 << 31) - 1),
    client_id=st.none() | st.text(max_size=8),
    tags=st.just(()),
)


@given(requests, tags(frozenset()))
def test_a_request_splits_into_what_it_was_made_of(header: RequestHeader, extra: tuple[tuple[int, bytes], ...]) -> None:
    flexible = header.api_version >= HeartbeatRequest.FLEXIBLE
    if flexible:
        header = RequestHeader(header.api_key, header.api_version, header.correlation_id, header.client_id, extra)
    frame = encode_request(HEARTBEAT, header)
    length, key, version, correlation = REQUEST_HEAD.unpack_from(frame)
    assert (length, key, version) == (len(frame) - 4, HeartbeatRequest.KEY, header.api_version)
    assert correlation == header.correlation_id
    assert decode_request_header(frame[4:], flexible) == (header, encode(HEARTBEAT, header.api_version))


@given(requests, st.binary(max_size=8), st.data())
def test_where_the_body_starts(header: RequestHeader, more: bytes, data: st.DataObject) -> None:
    flexible = header.api_version >= HeartbeatRequest.FLEXIBLE
    frame = encode_request(HEARTBEAT, header)[4:]
    start = len(frame) - len(encode(HEARTBEAT, header.api_version))
    assert body_start(frame + more, flexible) == body_start(frame[:start], flexible) == start
    assert body_start(frame[: data.draw(st.integers(0, start - 1))], flexible) is None


def test_the_body_starts_behind_tagged_fields_and_behind_a_client_id_that_is_not_utf_8() -> None:
    assert body_start(bytes.fromhex("000c 0004 00000007 0001 ff 01 05 02 6162"), flexible=True) == 16
    assert body_start(bytes.fromhex("000c 0004 00000007 0001 ff 01 05 02 61"), flexible=True) is None


@given(requests)
def test_kio_reads_the_same_request_header(header: RequestHeader) -> None:
    frame = encode_request(HEARTBEAT, header)
    kio_header: Any = KioRequestHeader2 if header.api_version >= HeartbeatRequest.FLEXIBLE else KioRequestHeader1
    theirs: Any
    theirs, size = entity_reader(kio_header)(frame, 4)
    assert frame[4 + size :] == encode(HEARTBEAT, header.api_version)
    assert (theirs.request_api_key, theirs.request_api_version, theirs.correlation_id, theirs.client_id) == (
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
    )


def test_request_header_bytes() -> None:
    body = "0001 67 00000001 0001 6d ffff"
    assert encode_request(HEARTBEAT, RequestHeader(12, 3, 7, "é")) == bytes.fromhex(
        "00000018 000c 0003 00000007 0002 c3a9" + body
    )
    # v2: the client id keeps its int16 length, the body's strings do not.
    body = "02 67 00000001 02 6d 00 00"
    assert encode_request(HEARTBEAT, RequestHeader(12, 4, 7, None)) == bytes.fromhex(
        "00000015 000c 0004 00000007 ffff 00" + body
    )
    assert encode_request(HEARTBEAT, RequestHeader(12, 4, 7, "", ((5, b"ab"),))) == bytes.fromhex(
        "00000019 000c 0004 00000007 0000 01 05 02 6162" + body
    )


@pytest.mark.parametrize("flexible", [False, True])
def test_a_request_header_cut_at_every_byte(flexible: bool) -> None:
    header = RequestHeader(12, 4 if flexible else 3, 7, "client", ((5, b"ab"),) if flexible else ())
    frame = encode_request(HEARTBEAT, header)[4:]
    body = encode(HEARTBEAT, header.api_version)
    for end in range(len(frame) - len(body)):
        with pytest.raises(DecodeError, match="RequestHeader"):
            decode_request_header(frame[:end], flexible)


@pytest.mark.parametrize("flexible", [False, True])
def test_a_client_id_that_is_not_utf_8(flexible: bool) -> None:
    frame = bytes.fromhex("000c 0003 00000007 0003 61eda0" + "00" * flexible) + b"body"
    header, body = decode_request_header(frame, flexible)
    assert (header.client_id, body) == ("a\ufffd", b"body")


def test_reply_header_bytes() -> None:
    assert encode_reply(BEATEN, 3, 7) == bytes.fromhex("0000000a 00000007 00000000 001b")
    assert encode_reply(BEATEN, 4, 7) == bytes.fromhex("0000000c 00000007 00 00000000 001b 00")


@pytest.mark.parametrize("version", HeartbeatResponse.VERSIONS)
def test_a_reply_splits_into_what_it_was_made_of(version: int) -> None:
    frame = encode_reply(BEATEN, version, 7)
    assert REPLY_HEAD.unpack_from(frame) == (len(frame) - 4, 7)
    assert split_reply(frame[4:], version >= HeartbeatResponse.HEADER_FLEXIBLE) == encode(BEATEN, version)


def test_a_reply_with_tagged_fields_in_its_header() -> None:
    assert split_reply(bytes.fromhex("00000007 01 05 02 6162") + b"body", flexible=True) == b"body"


@pytest.mark.parametrize(("frame", "flexible"), [("000000", False), ("00000007", True), ("00000007 01 05 02 61", True)])
def test_a_reply_header_cut_off(frame: str, flexible: bool) -> None:
    with pytest.raises(DecodeError, match="ResponseHeader"):
        split_reply(bytes.fromhex(frame), flexible)


@pytest.mark.parametrize("version", ApiVersionsResponse.VERSIONS)
def test_an_api_versions_reply_has_header_v0_always(version: int) -> None:
    reply = ApiVersionsResponse(error_code=0, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),))
    frame = encode_reply(reply, version, 7)
    assert frame[4:8] == bytes.fromhex("00000007")
    assert decode(ApiVersionsResponse, version, frame[8:]) == reply
    assert not version >= ApiVersionsResponse.HEADER_FLEXIBLE


def test_every_other_reply_has_its_header_flexible_with_its_body() -> None:
    others = [api.response for api in APIS.values() if api.response is not ApiVersionsResponse]
    assert all(response.HEADER_FLEXIBLE == response.FLEXIBLE for response in others)
