"""Compares the declarations field by field with the JSON schemas of Kafka 4.4.0, in every version of each API."""

import dataclasses
import re

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey, api_name
from group_sidecar.codecs.primitives import WireType
from group_sidecar.codecs.schema import FOREVER, Array, FieldType, Struct
from tests.codecs.declarations import MESSAGES, case_id, defaults, inner_struct, may_be_null, present, zero
from tests.codecs.kafka_schemas import Default, Field, KafkaSchemas

OUR_NAMES = {
    "JoinGroupRequestProtocol": "JoinGroupProtocol",
    "JoinGroupResponseMember": "JoinGroupMember",
    # Kafka declares these structs twice with the same layout, and this project once.
    "OffsetFetchRequestTopics": "OffsetFetchRequestTopic",
    "OffsetFetchResponseTopics": "OffsetFetchResponseTopic",
    "OffsetFetchResponsePartitions": "OffsetFetchResponsePartition",
}
"""The names of structs that this project names differently, by Kafka's name."""

OLDER = {
    "Produce": [0, 1, 2],
    "Fetch": [0, 1, 2, 3],
    "ListOffsets": [0],
    "OffsetCommit": [0, 1],
    "OffsetFetch": [0],
    "DescribeAcls": [0],
}
"""Versions that Kafka 4 has removed (KIP-896), and that older brokers and clients still use."""

every_message = pytest.mark.parametrize("cls", MESSAGES, ids=case_id)


def snake_case(name: str) -> str:
    """Returns Kafka's name in this project's form: `throttle_time_ms` for `ThrottleTimeMs`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def type_name(kind: FieldType) -> str:
    if isinstance(kind, Array):
        return f"[]{type_name(kind.of)}"
    return kind.name if isinstance(kind, WireType) else kind.NAME


def declared(cls: type[Struct], version: int) -> list[Field]:
    """Returns the declared fields of a struct in a version, in the form of `KafkaSchemas.fields`."""
    fields = []
    for name, spec in present(cls, version).items():
        inner = inner_struct(spec.kind)
        below = tuple(declared(inner, version)) if inner else ()
        fields.append(Field(name, type_name(spec.kind), may_be_null(spec, version), spec.tag, below))
    return fields


def named_as_ours(field: Field) -> Field:
    name = field.type.removeprefix("[]")
    return dataclasses.replace(
        field,
        name=snake_case(field.name),
        type=field.type.replace(name, OUR_NAMES.get(name, name)),
        fields=tuple(map(named_as_ours, field.fields)),
    )


@every_message
def test_fields_match_kafka(cls: type[Struct], kafka_schemas: KafkaSchemas) -> None:
    """The fields of each message match Kafka's schemas in every version."""
    for version in kafka_schemas.versions(cls.NAME):
        assert declared(cls, version) == [named_as_ours(field) for field in kafka_schemas.fields(cls.NAME, version)]


@every_message
def test_keys_and_flexible_versions(cls: type[Struct], kafka_schemas: KafkaSchemas) -> None:
    """The key, the flexible versions and the header version of each message match Kafka's schemas."""
    flexible = kafka_schemas.flexible(cls.NAME)
    assert kafka_schemas.key(cls.NAME) == cls.KEY
    assert (flexible.start if flexible else FOREVER) == cls.FLEXIBLE
    # KIP-511: a client must be able to read the reply to an ApiVersions request of a version unknown to the broker.
    assert (FOREVER if cls.NAME == "ApiVersionsResponse" else cls.FLEXIBLE) == cls.HEADER_FLEXIBLE


def test_versions_match_kafka(kafka_schemas: KafkaSchemas) -> None:
    """The versions of each API match Kafka's schemas, except older versions that only this project describes."""
    older = {}
    for api in APIS.values():
        spoken = kafka_schemas.versions(api.response.NAME)
        assert api.versions[-1] == spoken[-1]
        if only_ours := [version for version in api.versions if version not in spoken]:
            older[api.name] = only_ours
        assert api.versions == api.request.VERSIONS
    assert older == OLDER


def our_default(cls: type[Struct], path: str) -> tuple[object, FieldType]:
    """Returns the declared default and the type of the field at a path of Kafka's names."""
    *outer, last = map(snake_case, path.split("."))
    for name in outer:
        inner = inner_struct(present_ever(cls)[name])
        assert inner is not None
        cls = inner
    return defaults(cls)[last], present_ever(cls)[last]


def present_ever(cls: type[Struct]) -> dict[str, FieldType]:
    return {name: spec.kind for version in range(19) for name, spec in present(cls, version).items()}


def written_value(default: Default) -> object:
    """Returns the value of a default in a schema."""
    match default.type, default.text:
        case _, None | "null":
            return None
        case "string", text:
            return text
        case "bool", text:
            return str(text) == "true"
        case _, text:
            return int(text, 0) if isinstance(text, str) else text


@every_message
def test_defaults_match_kafka(cls: type[Struct], kafka_schemas: KafkaSchemas) -> None:
    """The default of each field matches Kafka's schemas."""
    for default in kafka_schemas.defaults(cls.NAME):
        ours, kind = our_default(cls, default.path)
        if default.written:
            assert ours == written_value(default), default.path
        elif ours is dataclasses.MISSING:
            assert default.everywhere, f"{default.path} is not in every version, so it needs a default"
        elif not isinstance(ours, Struct):
            assert ours == zero(kind), default.path


def test_api_names_match_kafka(kafka_schemas: KafkaSchemas) -> None:
    """Each API key has Kafka's name."""
    assert {key.value: api_name(key) for key in ApiKey} == kafka_schemas.api_keys()
