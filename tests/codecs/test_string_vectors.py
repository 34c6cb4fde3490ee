"""Strings are read as Kafka reads them, whatever their bytes."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.headers import decode_request_header
from group_sidecar.codecs.offsets_topic import read_offset, read_suffix
from group_sidecar.codecs.primitives import STRING, decoded, uvarint
from tests.codecs.make_string_vectors import FILE
from tests.codecs.whole import parse_whole

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
    topic, partition = read_suffix(len(raw).to_bytes(2, "big") + raw + struct.pack(">i", 7))
    assert partition == 7
    return topic


def as_metadata(raw: bytes) -> Any:
    offset, _, metadata, stamp, _ = read_offset(struct.pack(">hqih", 3, 5, -1, len(raw)) + raw + struct.pack(">q", 7))
    assert (offset, stamp) == (5, 7)
    return metadata


def test_java_reads_the_same() -> None:
    assert {raw: ".".join(f"{ord(c):x}" for c in decoded(raw)) for raw in VECTORS} == VECTORS


def test_there_is_something_to_be_read_differently() -> None:
    python = {raw: ".".join(f"{ord(c):x}" for c in raw.decode(errors="replace")) for raw in VECTORS}
    assert sum(python[raw] != VECTORS[raw] for raw in VECTORS) > 50
    assert sum("fffd" not in points for points in VECTORS.values()) > 100


@pytest.mark.parametrize("read", [as_plain, as_compact, as_client_id, as_topic, as_metadata])
def test_every_place_of_a_string(read: Callable[[bytes], Any]) -> None:
    for raw in VECTORS:
        assert read(raw) == decoded(raw), raw.hex()


@given(st.binary(max_size=40) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_what_was_read_can_be_written_and_is_read_again(raw: bytes) -> None:
    text = decoded(raw)
    assert decoded(text.encode()) == text
    assert ("\N{REPLACEMENT CHARACTER}" in text) or text.encode() == raw


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_read_as_it_was_written(text: str) -> None:
    assert decoded(text.encode()) == text
