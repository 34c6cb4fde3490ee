"""Strings are decoded as in Kafka, whatever their bytes are."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.headers import decode_request_header
from group_sidecar.codecs.offsets_topic import decode_key_suffix, decode_offset_value
from group_sidecar.codecs.primitives import STRING, decoded, uvarint
from tests.codecs.make_string_vectors import FILE
from tests.codecs.whole_parse import parse_whole

VECTORS = {bytes.fromhex(raw): text for raw, text in (line.split(" ") for line in FILE.read_text().splitlines())}


def as_plain(raw: bytes) -> Any:
    return parse_whole(STRING.make(False, False), len(raw).to_bytes(2, "big") + raw)


def as_compact(raw: bytes) -> Any:
    return parse_whole(STRING.make(True, False), uvarint(len(raw) + 1) + raw)


def as_client_id(raw: bytes) -> Any:
    header, body = decode_request_header(struct.pack(">hhih", 12, 3, 7, len(raw)) + raw + b"body", flexible=False)
    assert body == b"body"
    return header.client_id


def as_topic(raw: bytes) -> Any:
    topic, partition = decode_key_suffix(len(raw).to_bytes(2, "big") + raw + struct.pack(">i", 7))
    assert partition == 7
    return topic


def as_metadata(raw: bytes) -> Any:
    offset, _, metadata, stamp, _ = decode_offset_value(
        struct.pack(">hqih", 3, 5, -1, len(raw)) + raw + struct.pack(">q", 7)
    )
    assert (offset, stamp) == (5, 7)
    return metadata


def test_strings_match_java() -> None:
    """Each byte string vector decodes to the same characters as in Java."""
    assert {raw: ".".join(f"{ord(c):x}" for c in decoded(raw)) for raw in VECTORS} == VECTORS


def test_vectors_differ_from_python() -> None:
    """The vectors include over 50 strings that Python decodes otherwise and over 100 without replacement characters."""
    python = {raw: ".".join(f"{ord(c):x}" for c in raw.decode(errors="replace")) for raw in VECTORS}
    assert sum(python[raw] != VECTORS[raw] for raw in VECTORS) > 50
    assert sum("fffd" not in points for points in VECTORS.values()) > 100


@pytest.mark.parametrize("read", [as_plain, as_compact, as_client_id, as_topic, as_metadata])
def test_all_string_readers_match(read: Callable[[bytes], Any]) -> None:
    """All readers of strings decode each vector alike."""
    for raw in VECTORS:
        assert read(raw) == decoded(raw), raw.hex()


@given(st.binary(max_size=40) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_decoded_string_is_stable(raw: bytes) -> None:
    """A decoded string encodes to bytes that decode to the same string."""
    text = decoded(raw)
    assert decoded(text.encode()) == text
    assert ("\N{REPLACEMENT CHARACTER}" in text) or text.encode() == raw
