"""ApiVersions and Metadata, compared with the PyPI package kafka-protocol 0.1, which knows only these two.

The tests avoid its limits. The package writes a compact null as -1 instead of 0. It takes the empty string for bytes.
It reads only the first byte of a UUID, and cannot write one. It knows no tagged field by name.
"""

import dataclasses
from typing import Any

import kafkaprotocol
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.headers import RequestHeader, encode_reply, encode_request
from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse
from group_sidecar.codecs.primitives import STRING, UUID_
from group_sidecar.codecs.schema import Struct, decode, encode, field_specs
from tests.codecs.declarations import case_id, limited_to, present, structs_in, zero
from tests.codecs.strategies import per_message, structs

KNOWN: dict[type[Struct], list[Any]] = {
    ApiVersionsRequest: kafkaprotocol.ApiVersionsRequest,
    ApiVersionsResponse: kafkaprotocol.ApiVersionsResponse,
    MetadataRequest: kafkaprotocol.MetadataRequest,
    MetadataResponse: kafkaprotocol.MetadataResponse,
}
"""The classes of kafka-protocol for a message, by version."""

each_message = pytest.mark.parametrize("cls", KNOWN, ids=case_id)
client_ids = st.text(min_size=1, max_size=8)


def sayable(value: Any) -> Any:
    """Returns a value without nulls, empty strings and tagged fields."""
    if isinstance(value, tuple):
        return tuple(sayable(item) for item in value)
    if not isinstance(value, Struct):
        return value
    changes: dict[str, Any] = {"unknown_tags": ()}
    for name, spec in field_specs(type(value)).items():
        if spec.kind is STRING:
            changes[name] = getattr(value, name) or "x"
        elif spec.tag is None:
            changes[name] = zero(spec.kind) if getattr(value, name) is None else sayable(getattr(value, name))
        else:
            changes[name] = next(field.default for field in dataclasses.fields(value) if field.name == name)
    return dataclasses.replace(value, **changes)


def as_dicts(value: Any, version: int) -> Any:
    """Returns a value as kafka-protocol's classes take it."""
    if isinstance(value, Struct):
        fields = present(type(value), version)
        return {name: as_dicts(getattr(value, name), version) for name in fields} | {"_tagged_fields": {}}
    return [as_dicts(item, version) for item in value] if isinstance(value, tuple) else value


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    if isinstance(ours, Struct):
        for name, spec in present(type(ours), version).items():
            if spec.kind is not UUID_ and spec.tag is None:
                assert_same(getattr(ours, name), getattr(theirs, name), version)
    elif isinstance(ours, tuple):
        for mine, its in zip(ours, theirs, strict=True):
            assert_same(mine, its, version)
    else:
        assert ours == theirs


@each_message
@per_message
@given(st.data(), client_ids, st.integers(0, 0x7FFFFFFF))
def test_package_reads_our_messages(cls: type[Struct], data: st.DataObject, client_id: str, correlation: int) -> None:
    """The kafka-protocol package reads the same values from our requests and replies."""
    message = sayable(data.draw(structs(cls)))
    for version in range(len(KNOWN[cls])):
        limited = limited_to(message, version)
        if cls.NAME.endswith("Request"):
            frame = encode_request(limited, RequestHeader(cls.KEY, version, correlation, client_id))
            header, theirs = kafkaprotocol.read_network_request(frame)
            assert (header.request_api_version, header.client_id) == (version, client_id)
        else:
            frame = encode_reply(limited, version, correlation)
            header, theirs = kafkaprotocol.read_network_response(cls.KEY, version, frame)
        assert header.correlation_id == correlation
        assert_same(limited, theirs, version)


@each_message
@per_message
@given(st.data())
def test_package_messages_are_read(cls: type[Struct], data: st.DataObject) -> None:
    """A message packed by the kafka-protocol package has our bytes and decodes to the same message."""
    message = sayable(data.draw(structs(cls)))
    for version, known in enumerate(KNOWN[cls]):
        if any(spec.kind is UUID_ for inner in structs_in(cls) for spec in present(inner, version).values()):
            continue
        limited = limited_to(message, version)
        body = known.pack(known(**as_dicts(limited, version)))
        assert body == encode(limited, version)
        assert decode(cls, version, body) == limited


def test_kafka_protocol_version_coverage() -> None:
    """The kafka-protocol package lacks only the newest versions of ApiVersions and Metadata."""
    unknown = {cls.NAME: cls.VERSIONS[-1] - (len(known) - 1) for cls, known in KNOWN.items()}
    assert unknown == {"ApiVersionsRequest": 2, "ApiVersionsResponse": 2, "MetadataRequest": 1, "MetadataResponse": 1}
