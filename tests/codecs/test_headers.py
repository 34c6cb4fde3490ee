"""Headers of both versions, encoded and decoded, and compared with Kafka's schemas."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeader2
from kio.serial import entity_reader

from group_sidecar.codecs.api_registry import APIS
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
def test_request_splits_into_header_and_body(header: RequestHeader, extra: tuple[tuple[int, bytes], ...]) -> None:
    """An encoded request splits into its original header and body."""
    flexible = header.api_version >= HeartbeatRequest.FLEXIBLE
    if flexible:
        header = RequestHeader(header.api_key, header.api_version, header.correlation_id, header.client_id, extra)
    frame = encode_request(HEARTBEAT, header)
    length, key, version, correlation = REQUEST_HEAD.unpack_from(frame)
    assert (length, key, version) == (len(frame) - 4, HeartbeatRequest.KEY, header.api_version)
    assert correlation == header.correlation_id
    assert decode_request_header(frame[4:], flexible) == (header, encode(HEARTBEAT, header.api_version))


@given(requests, st.binary(max_size=8), st.data())
def test_body_start(header: RequestHeader, more: bytes, data: st.DataObject) -> None:
    """body_start returns the offset of the body, or None if the header is incomplete."""
    flexible = header.api_version >= HeartbeatRequest.FLEXIBLE
    frame = encode_request(HEARTBEAT, header)[4:]
    start = len(frame) - len(encode(HEARTBEAT, header.api_version))
    assert body_start(frame + more, flexible) == body_start(frame[:start], flexible) == start
    assert body_start(frame[: data.draw(st.integers(0, start - 1))], flexible) is None


def test_body_start_after_tags() -> None:
    """body_start skips tagged fields and a client id that is not valid UTF-8."""
    assert body_start(bytes.fromhex("000c 0004 00000007 0001 ff 01 05 02 6162"), flexible=True) == 16
    assert body_start(bytes.fromhex("000c 0004 00000007 0001 ff 01 05 02 61"), flexible=True) is None


@given(requests)
def test_kio_reads_same_request_header(header: RequestHeader) -> None:
    """kio reads the same request header from an encoded request."""
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
    """Requests encode to the expected bytes in header versions 1 and 2."""
    body = "0001 67 00000001 0001 6d ffff"
    assert encode_request(HEARTBEAT, RequestHeader(12, 3, 7, "é")) == bytes.fromhex(
        "00000018 000c 0003 00000007 0002 c3a9" + body
    )
    # v2: the client id keeps its int16 length, unlike the strings of the body.
    body = "02 67 00000001 02 6d 00 00"
    assert encode_request(HEARTBEAT, RequestHeader(12, 4, 7, None)) == bytes.fromhex(
        "00000015 000c 0004 00000007 ffff 00" + body
    )
    assert encode_request(HEARTBEAT, RequestHeader(12, 4, 7, "", ((5, b"ab"),))) == bytes.fromhex(
        "00000019 000c 0004 00000007 0000 01 05 02 6162" + body
    )


@pytest.mark.parametrize("flexible", [False, True])
def test_truncated_request_header_is_refused(flexible: bool) -> None:
    """A truncated request header raises DecodeError."""
    header = RequestHeader(12, 4 if flexible else 3, 7, "client", ((5, b"ab"),) if flexible else ())
    frame = encode_request(HEARTBEAT, header)[4:]
    body = encode(HEARTBEAT, header.api_version)
    for end in range(len(frame) - len(body)):
        with pytest.raises(DecodeError, match="RequestHeader"):
            decode_request_header(frame[:end], flexible)


@pytest.mark.parametrize("flexible", [False, True])
def test_invalid_utf8_client_id(flexible: bool) -> None:
    """A client id that is not valid UTF-8 is decoded with replacement characters."""
    frame = bytes.fromhex("000c 0003 00000007 0003 61eda0" + "00" * flexible) + b"body"
    header, body = decode_request_header(frame, flexible)
    assert (header.client_id, body) == ("a\ufffd", b"body")


def test_reply_header_bytes() -> None:
    """Replies encode to the expected bytes in header versions 0 and 1."""
    assert encode_reply(BEATEN, 3, 7) == bytes.fromhex("0000000a 00000007 00000000 001b")
    assert encode_reply(BEATEN, 4, 7) == bytes.fromhex("0000000c 00000007 00 00000000 001b 00")


@pytest.mark.parametrize("version", HeartbeatResponse.VERSIONS)
def test_reply_splits_into_header_and_body(version: int) -> None:
    """An encoded reply splits into its header and its body."""
    frame = encode_reply(BEATEN, version, 7)
    assert REPLY_HEAD.unpack_from(frame) == (len(frame) - 4, 7)
    assert split_reply(frame[4:], version >= HeartbeatResponse.HEADER_FLEXIBLE) == encode(BEATEN, version)


def test_reply_header_with_tagged_fields() -> None:
    """split_reply skips tagged fields in the reply's header."""
    assert split_reply(bytes.fromhex("00000007 01 05 02 6162") + b"body", flexible=True) == b"body"


@pytest.mark.parametrize(("frame", "flexible"), [("000000", False), ("00000007", True), ("00000007 01 05 02 61", True)])
def test_truncated_reply_header_is_refused(frame: str, flexible: bool) -> None:
    """A truncated reply header raises DecodeError."""
    with pytest.raises(DecodeError, match="ResponseHeader"):
        split_reply(bytes.fromhex(frame), flexible)


@pytest.mark.parametrize("version", ApiVersionsResponse.VERSIONS)
def test_api_versions_reply_uses_header_v0(version: int) -> None:
    """ApiVersions replies of every version have header version 0."""
    reply = ApiVersionsResponse(error_code=0, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),))
    frame = encode_reply(reply, version, 7)
    assert frame[4:8] == bytes.fromhex("00000007")
    assert decode(ApiVersionsResponse, version, frame[8:]) == reply
    assert not version >= ApiVersionsResponse.HEADER_FLEXIBLE


def test_reply_header_flexible_with_body() -> None:
    """In every API except ApiVersions, flexible versions apply to reply header and body alike."""
    others = [api.response for api in APIS.values() if api.response is not ApiVersionsResponse]
    assert all(response.HEADER_FLEXIBLE == response.FLEXIBLE for response in others)
