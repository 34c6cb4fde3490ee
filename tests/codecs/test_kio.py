"""Every message and version that kio knows: each side decodes the other's encoding, and the bytes are equal.

kio is generated from Kafka's JSON schemas and tested against Kafka's Java classes by its authors.
"""

import dataclasses
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.codecs.schema import Struct, decode, encode
from tests.codecs.declarations import CASES, case_id, limited_to, present
from tests.codecs.strategies import per_message, structs

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SPAN = st.integers(-(1 << 40), 1 << 40)

NARROWED = {
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    # kio represents these fields as timedelta and datetime, which hold less than 64 bits of milliseconds.
    "retention_time_ms": _SPAN,
    "session_lifetime_ms": _SPAN,
    "log_append_time_ms": st.integers(-1, 1 << 40),
}


KIO_NAMES = {"generation_id_or_member_epoch": "generation_id"}
"""Fields that Kafka 4.4 has renamed. kio has the older names."""


def kio_entity(cls: type[Struct], version: int) -> Any:
    """Returns kio's class for a message in a version; None if kio has none."""
    load = load_request_schema if cls.NAME.endswith("Request") else load_response_schema
    try:
        return load(cls.KEY, version)
    except UnknownEntity:
        return None


KNOWN = [(cls, version, entity) for cls, version in CASES if (entity := kio_entity(cls, version))]


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    """Asserts that a value equals kio's value, which has only the fields of its version, and richer types."""
    if isinstance(ours, Struct):
        names = list(present(type(ours), version))
        fields = [field.name for field in dataclasses.fields(theirs)]
        assert fields == [kio_name(name, fields) for name in names]
        for name, field in zip(names, fields, strict=True):
            assert_same(getattr(ours, name), getattr(theirs, field), version)
    elif isinstance(ours, tuple):
        for mine, its in zip(ours, theirs, strict=True):
            assert_same(mine, its, version)
    elif isinstance(ours, UUID):
        assert ours == (theirs or ZERO_UUID)
    elif isinstance(theirs, timedelta):
        assert ours == theirs / _MILLISECOND
    elif isinstance(theirs, datetime):
        assert ours == (theirs - _EPOCH) / _MILLISECOND
    else:
        # A null datetime is -1 in the encoding. Kafka's schema has a number.
        assert ours == theirs or (ours == -1 and theirs is None)


def kio_name(name: str, among: list[str]) -> str:
    """Returns kio's name of a field."""
    theirs = (name.removesuffix("_ms"), KIO_NAMES.get(name, name))
    return next((each for each in theirs if each in among), name)


def test_kio_version_coverage() -> None:
    """kio lacks only the listed messages and versions."""
    unknown = [(cls.NAME, version) for cls, version in CASES if kio_entity(cls, version) is None]
    assert unknown == [
        *(("ProduceRequest", version) for version in range(3)),
        *(("ProduceResponse", version) for version in range(3)),
        *(("FetchRequest", version) for version in range(4)),
        *(("FetchResponse", version) for version in range(4)),
        ("ListOffsetsRequest", 0),
        ("ListOffsetsResponse", 0),
        *(("OffsetCommitRequest", version) for version in range(2)),
        *(("OffsetCommitResponse", version) for version in range(2)),
        ("OffsetFetchRequest", 0),
        ("OffsetFetchResponse", 0),
        ("ApiVersionsRequest", 5),
        ("ApiVersionsResponse", 5),
        ("TxnOffsetCommitRequest", 6),
        ("TxnOffsetCommitResponse", 6),
        ("DescribeAclsRequest", 0),
        ("DescribeAclsResponse", 0),
        ("DeleteGroupsRequest", 3),
        ("DeleteGroupsResponse", 3),
    ]


@pytest.mark.parametrize("cls", dict.fromkeys(cls for cls, _, _ in KNOWN), ids=case_id)
@per_message
@given(st.data())
def test_bytes_and_values_match_kio(cls: type[Struct], data: st.DataObject) -> None:
    """kio reads the same values and writes the same bytes in every version that kio describes."""
    message = data.draw(structs(cls, NARROWED, tagged=False))
    for version, entity in ((version, entity) for known, version, entity in KNOWN if known is cls):
        limited = limited_to(message, version)
        body = encode(limited, version)
        theirs, size = entity_reader(entity)(body, 0)
        assert size == len(body)
        assert_same(limited, theirs, version)
        written = BytesIO()
        entity_writer(entity)(written, theirs)
        assert written.getvalue() == body
        assert decode(cls, version, written.getvalue()) == limited
