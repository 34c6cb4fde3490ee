"""The compiled readers and writers do the same as the layouts, for all declarations and versions, valid or not."""

import copy
import dataclasses
import pickle
import subprocess
import sys
import tracemalloc
from io import BytesIO
from typing import Any, ClassVar
from uuid import UUID

import pytest
from construct import ConstructError
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.generated_code import (
    READ_FAILURES,
    WRITE_FAILURES,
    Reader,
    Writer,
    compile_reader,
    compile_writer,
    generated_source,
)
from group_sidecar.codecs.layouts import Layout
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.offsets_topic import KEYS, VALUES, GroupKey
from group_sidecar.codecs.offsets_topic_values import ClassicMemberMetadata
from group_sidecar.codecs.primitives import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID_,
    decoded,
)
from group_sidecar.codecs.schema import (
    Array,
    Struct,
    decode_start,
    encode,
    field_specs,
    layout,
    request,
    struct,
    wire_field,
)
from tests.codecs.declarations import MESSAGES, case_id, full_sample, limited_to, null_sample
from tests.codecs.strategies import per_message, structs


@struct
class Inner(Struct):
    """An inner struct with lengths and tagged fields."""

    word: str = wire_field(STRING)
    words: tuple[str, ...] | None = wire_field(Array(STRING), nullable=1)
    flag: bool = wire_field(BOOLEAN)
    topic: UUID = wire_field(UUID_)


@request(key=500, versions=(0, 3), flexible=2)
class Everything(Struct):
    """A message with each kind of field: plain, nullable, in arrays, tagged, and in some versions only."""

    flag: bool = wire_field(BOOLEAN)
    port: int = wire_field(UINT16)
    tiny: int = wire_field(INT8)
    first: Inner = wire_field(Inner)
    second: Inner = wire_field(Inner)
    share: float = wire_field(FLOAT64)
    records: bytes | None = wire_field(RECORDS, nullable=0)
    maybe: Inner | None = wire_field(Inner, nullable=1)
    raw: bytes = wire_field(BYTES, until=2, default=b"nothing")
    topics: tuple[UUID, ...] = wire_field(Array(UUID_))
    blobs: tuple[bytes, ...] = wire_field(Array(BYTES), since=1, default=())
    flags: tuple[bool, ...] = wire_field(Array(BOOLEAN))
    longs: tuple[int, ...] | None = wire_field(Array(INT64), nullable=0)
    shares: tuple[float, ...] = wire_field(Array(FLOAT64))
    inners: tuple[Inner, ...] | None = wire_field(Array(Inner), nullable=2)
    late: int = wire_field(INT16, since=2, tag=1, default=-1)
    later: Inner | None = wire_field(Inner, since=3, tag=4, nullable=3, default=None)


@struct
class Nothing(Struct):
    """A message whose first version has no bytes."""

    VERSIONS: ClassVar[range] = range(2)

    late: int = wire_field(INT16, since=1, default=7)


@struct
class Crowd(Struct):
    """A message with elements of no bytes."""

    VERSIONS: ClassVar[range] = range(1)

    members: tuple[Nothing, ...] = wire_field(Array(Nothing))


@struct
class Lacking(Struct):
    """A message with a field that the first version lacks, and that has no default."""

    VERSIONS: ClassVar[range] = range(2)

    late: int = wire_field(INT16, since=1)


RECORDED = [GroupKey, *KEYS.values(), *VALUES.values(), ClassicMemberMetadata]
ALL: list[type[Struct]] = [
    *dict.fromkeys(
        [*MESSAGES, *RECORDED, ConsumerProtocolAssignment, ConsumerProtocolSubscription, Everything, Nothing]
    )
]
CASES = [(cls, version) for cls in ALL for version in cls.VERSIONS]
LAYOUTS: dict[tuple[type[Struct], int], Layout] = {
    (cls, version): layout(cls, version, version >= cls.FLEXIBLE) for cls, version in CASES
}
READERS: dict[tuple[type[Struct], int], Reader] = {case: compile_reader(LAYOUTS[case]) for case in CASES}
WRITERS: dict[tuple[type[Struct], int], Writer] = {case: compile_writer(LAYOUTS[case]) for case in CASES}

each = pytest.mark.parametrize("cls", ALL, ids=case_id)
each_version = pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)


def samples(cls: type[Struct], version: int) -> list[bytes]:
    return [encode(limited_to(sample(cls), version), version) for sample in (full_sample, null_sample)]


def parsed(cls: type[Struct], version: int, data: bytes) -> tuple[Any, Any]:
    """Parses data with the construct. Returns the message and its end, or where and why parsing failed."""
    stream = BytesIO(data)
    try:
        return LAYOUTS[cls, version]._parse(stream, None, ""), stream.tell()
    except ConstructError as error:
        return error.where, error.reason


def built(cls: type[Struct], version: int, message: Struct) -> Any:
    """Builds a message with the construct. Returns the bytes, or the type and the text of the error."""
    stream = BytesIO()
    try:
        LAYOUTS[cls, version]._build(message, stream, None, "")
    except ConstructError as error:
        return ValueError, f"{cls.NAME} v{version}: {error.where}: {error}"
    except Exception as error:  # noqa: BLE001  Any error has to be the same.
        return type(error), str(error)
    return stream.getvalue()


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, including their types. Texts are compared, because NaN does not equal itself."""
    return repr(one) == repr(other) and (one == other or "nan" in repr(one))


def reads_the_same(cls: type[Struct], version: int, data: bytes) -> None:
    expected = parsed(cls, version, data)
    found: tuple[Any, Any]
    try:
        message, rest = decode_start(cls, version, data)
        found = message, len(data) - len(rest)
    except DecodeError as error:
        found = error.path, error.reason
    assert same(found, expected)
    try:
        alone = READERS[cls, version](data, 0)
    except READ_FAILURES:
        return
    assert same(alone, expected)


@each
@per_message
@given(st.data())
def test_compiled_codec_matches_construct(cls: type[Struct], data: st.DataObject) -> None:
    """A compiled writer and reader produce the same bytes and message as the construct."""
    drawn = data.draw(structs(cls))
    before, behind = data.draw(st.binary(max_size=3)), data.draw(st.binary(max_size=3))
    for version in cls.VERSIONS:
        message = limited_to(drawn, version)
        body = built(cls, version, message)
        assert WRITERS[cls, version](message) == body
        assert same(READERS[cls, version](before + body + behind, len(before)), (message, len(before) + len(body)))


@each
@per_message
@given(st.data(), st.binary(max_size=64))
def test_any_bytes_read_like_construct(cls: type[Struct], data: st.DataObject, body: bytes) -> None:
    """Decoding any bytes has the same result or error as the construct."""
    reads_the_same(cls, data.draw(st.sampled_from(cls.VERSIONS)), body)


@each
@per_message
@given(st.data())
def test_mutated_messages_read_like_construct(cls: type[Struct], data: st.DataObject) -> None:
    """Decoding mutated messages has the same result or error as the construct."""
    version = data.draw(st.sampled_from(cls.VERSIONS))
    body = data.draw(st.sampled_from(samples(cls, version)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        new = data.draw(
            st.sampled_from((b"", b"\0", b"\1", b"\x7f", b"\x80", b"\x81\x01", b"\xff\xfe", b"\xff" * 4, body))
        )
        body = body[:at] + new + body[at + data.draw(st.integers(0, 4)) :]
    reads_the_same(cls, version, body)


@each_version
def test_truncated_messages_are_refused(cls: type[Struct], version: int) -> None:
    """A message truncated at any byte raises the same error as the construct."""
    for body in samples(cls, version):
        for end in range(len(body)):
            reads_the_same(cls, version, body[:end])
            with pytest.raises(READ_FAILURES):
                READERS[cls, version](body[:end], 0)


@each
@per_message
@given(st.data())
def test_invalid_values_fail_like_construct(cls: type[Struct], data: st.DataObject) -> None:
    """Encoding an invalid field value has the same result or error as the construct."""
    version = data.draw(st.sampled_from(cls.VERSIONS))
    message = limited_to(data.draw(structs(cls)), version)
    wrong: list[Any] = [
        None,
        -1,
        1 << 15,
        1 << 63,
        1.5,
        "ab",
        "x" * 0x8000,
        "\ud800",
        b"ab",
        (),
        (None,),
        ("x", 1),
        {},
        object(),
    ]
    name = data.draw(st.sampled_from([*field_specs(cls)]))
    message = dataclasses.replace(message, **{name: data.draw(st.sampled_from(wrong))})
    found: Any
    try:
        found = encode(message, version)
    except Exception as error:  # noqa: BLE001  As in built.
        found = type(error), str(error)
    assert found == built(cls, version, message)


@pytest.mark.parametrize("version", HeartbeatRequest.VERSIONS)
@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 0x3FFE, 0x3FFF, 0x4000, 0x7FFF])
def test_strings_of_all_lengths(version: int, length: int) -> None:
    """Strings of all length encodings are written and read as by the construct."""
    message = HeartbeatRequest(group_id="g" * length, generation_id=1, member_id="m" * length)
    body = WRITERS[HeartbeatRequest, version](message)
    assert body == built(HeartbeatRequest, version, message)
    assert READERS[HeartbeatRequest, version](body, 0) == (message, len(body))


@pytest.mark.parametrize("version", HeartbeatRequest.VERSIONS)
def test_oversized_string_is_not_written(version: int) -> None:
    """Writing a string longer than 32767 bytes raises an error that names the field."""
    message = HeartbeatRequest(group_id="", generation_id=1, member_id="m" * 0x8000)
    with pytest.raises(WRITE_FAILURES):
        WRITERS[HeartbeatRequest, version](message)
    with pytest.raises(ValueError, match="member_id: string of 32768 bytes"):
        encode(message, version)


@pytest.mark.parametrize("announced", [b"\x81\x80\x02", b"\xff\xff\xff\xff\x07", b"\x82\x80\x82\x80\x10", b"\x80" * 6])
def test_oversized_strings_are_refused(announced: bytes) -> None:
    """A compact string with an excessive length raises the same DecodeError as the construct."""
    reads_the_same(HeartbeatRequest, 4, announced + b"g" * 0x8000 + b"\0\0\0\1" + b"\2m\0\0")
    with pytest.raises(DecodeError, match=r"group_id: (string of \d+ bytes|varint longer than 5 bytes)"):
        decode_start(HeartbeatRequest, 4, announced + b"g" * 0x8000 + b"\0\0\0\1" + b"\2m\0\0")


def test_invalid_utf8_is_read_like_kafka() -> None:
    """A string that is not valid UTF-8 is decoded with Kafka's replacement characters."""
    raw = b"a\xed\xa0\xffb"
    body = b"\0\5" + raw + b"\0\0\0\1" + b"\0\1m"
    message, rest = decode_start(HeartbeatRequest, 0, body)
    assert (message, rest) == (HeartbeatRequest(group_id=decoded(raw), generation_id=1, member_id="m"), b"")


@pytest.mark.parametrize("version", Everything.VERSIONS)
def test_false_lengths_use_little_memory(version: int) -> None:
    """A length field that exceeds the remaining bytes does not allocate memory for that length."""
    body = samples(Everything, version)[0]
    reads_the_same(Everything, version, body)  # The compilation of a reader needs some memory.
    for at in range(len(body)):
        for length in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
            tracemalloc.start()
            reads_the_same(Everything, version, body[:at] + length + body[at + len(length) :])
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 100_000


def test_count_beyond_bytes_is_refused() -> None:
    """An array with more elements than bytes left is refused, even if an element takes no byte."""
    assert decode_start(Crowd, 0, b"\0\0\0\3abc") == (Crowd(members=(Nothing(),) * 3), b"abc")
    with pytest.raises(DecodeError, match="members: 1000000 elements announced, 3 bytes left"):
        decode_start(Crowd, 0, (1_000_000).to_bytes(4, "big") + b"abc")


@each_version
def test_decoded_message_is_normal_instance(cls: type[Struct], version: int) -> None:
    """A decoded message equals a constructed instance in hash, repr, copies and immutability."""
    body = samples(cls, version)[0]
    made, _ = parsed(cls, version, body)
    message, _ = decode_start(cls, version, body)
    assert type(message) is cls
    assert (message, hash(message), repr(message)) == (made, hash(made), repr(made))
    assert dataclasses.replace(message, unknown_tags=((1, b""),)) == dataclasses.replace(made, unknown_tags=((1, b""),))
    assert copy.copy(message) == pickle.loads(pickle.dumps(message)) == made
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.unknown_tags = ()  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del message.unknown_tags
    with pytest.raises(AttributeError):
        object.__setattr__(message, "not_declared", 1)


def test_field_without_default_is_required() -> None:
    """Decoding a version that lacks a field without a default raises TypeError."""
    with pytest.raises(TypeError, match="Lacking_v0: late has no default"):
        decode_start(Lacking, 0, b"")
    assert decode_start(Lacking, 1, b"\0\1") == (Lacking(late=1), b"")


def test_generated_source_is_readable() -> None:
    """generated_source returns the source of the compiled reader and writer."""
    lines = generated_source(LAYOUTS[HeartbeatRequest, 4]).splitlines()
    assert lines[0] == "def read_HeartbeatRequest_v4(data, at, left=4611686018427387904):"
    assert "def write_HeartbeatRequest_v4(o0):" in lines
    assert any("o0.generation_id, n]" in line and line.endswith("# >iB") for line in lines)


def test_import_compiles_nothing() -> None:
    """Importing the proxy's command line compiles no reader and no writer."""
    code = "import group_sidecar.proxy.cli, group_sidecar.codecs.schema as s; print(len(s._readers), len(s._writers))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 0\n"
