"""Random messages are equal after encoding and decoding, in every version."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.primitives import BYTES, STRING
from group_sidecar.codecs.schema import Array, Struct, decode, encode, field_specs, layout
from tests.codecs.declarations import (
    CASES,
    MESSAGES,
    at_version,
    case_id,
    defaults,
    limited_to,
    may_be_null,
    present,
    structs_in,
    zero,
)
from tests.codecs.strategies import per_message, structs
from tests.codecs.whole_parse import parse_whole


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
@per_message
@given(st.data())
def test_messages_round_trip(cls: type[Struct], data: st.DataObject) -> None:
    """A random message of each version round-trips through its bytes."""
    message = data.draw(structs(cls))
    for version in cls.VERSIONS:
        limited = limited_to(message, version)
        body = encode(limited, version)
        assert decode(cls, version, body) == limited
        assert encode(decode(cls, version, body), version) == body


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
@per_message
@given(st.data())
def test_absent_fields_are_not_written(cls: type[Struct], data: st.DataObject) -> None:
    """Fields that a version lacks do not change the encoded bytes."""
    message = data.draw(structs(cls, tagged=False))
    for version in cls.VERSIONS:
        limited = limited_to(message, version)
        absent = {name: getattr(message, name) for name in field_specs(cls).keys() - present(cls, version).keys()}
        assert encode(dataclasses.replace(limited, **absent), version) == encode(limited, version)


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)
def test_null_differs_from_empty(cls: type[Struct], version: int) -> None:
    """Null and the empty value of each nullable field have different bytes, and both round-trip."""
    for inner in structs_in(cls):
        codec = layout(inner, version, version >= cls.FLEXIBLE)
        plain = at_version(zero(inner), version, version >= cls.FLEXIBLE)
        for name, spec in present(inner, version).items():
            if not may_be_null(spec, version):
                continue
            bodies = {}
            for value in (None, zero(spec.kind)):
                message = dataclasses.replace(plain, **{name: value})
                bodies[value] = codec.build(message)
                assert parse_whole(codec, bodies[value]) == message
            assert len(set(bodies.values())) == 2


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)
def test_null_is_refused_if_not_nullable(cls: type[Struct], version: int) -> None:
    """Encoding null in a field that is not nullable in the version raises ValueError."""
    plain = limited_to(zero(cls), version)
    for name, spec in present(cls, version).items():
        sized = isinstance(spec.kind, Array) or spec.kind in (STRING, BYTES)
        if sized and spec.tag is None and not may_be_null(spec, version):
            with pytest.raises(ValueError, match=f"{name}: null where the schema allows none"):
                encode(dataclasses.replace(plain, **{name: None}), version)


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
def test_absent_field_has_default(cls: type[Struct]) -> None:
    """Each field that some version lacks has a default."""
    for inner in structs_in(cls):
        given_defaults = defaults(inner)
        for version in cls.VERSIONS:
            for name in field_specs(inner).keys() - present(inner, version).keys():
                assert given_defaults[name] is not dataclasses.MISSING, f"{inner.NAME}.{name} has no default"
