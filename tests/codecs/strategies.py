"""Hypothesis strategies for random messages, derived from the declarations."""

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from group_sidecar.codecs.primitives import ZERO_UUID, WireType
from group_sidecar.codecs.schema import Array, FieldType, Struct, Tag, field_specs
from tests.codecs.declarations import ever_null

per_message = settings(
    max_examples=max(1, settings().max_examples // 5),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
"""The settings of a test that runs once per message: a fifth of the profile's examples, without a deadline."""

Narrowed = Mapping[str, st.SearchStrategy[Any]]
"""Strategies by field name, for an oracle that cannot represent every value of a type."""


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high)


# The compact forms write length + 1 as a varint, which grows by a byte at 127.
_LONG = st.sampled_from((126, 127, 128))
_STRINGS = st.text(max_size=6) | st.text(max_size=6) | _LONG.map(lambda length: "x" * length)
_BYTES = st.binary(max_size=6) | st.binary(max_size=6) | _LONG.map(bytes)

WIRE_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "uint16": _integers(16, signed=False),
    "int32": _integers(32),
    "int64": _integers(64),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids() | st.just(ZERO_UUID),
    "string": _STRINGS,
    "bytes": _BYTES,
    "records": _BYTES,
}


def tags(taken: frozenset[int]) -> st.SearchStrategy[tuple[Tag, ...]]:
    """Tagged fields that are not in `taken`, in ascending order, as the protocol requires."""
    tag = st.integers(0, 9) | _integers(32, signed=False)
    some = st.dictionaries(tag.filter(lambda number: number not in taken), st.binary(max_size=4), max_size=2)
    return st.just(()) | some.map(lambda items: tuple(sorted(items.items())))


def values(kind: FieldType, narrowed: Narrowed, *, tagged: bool) -> st.SearchStrategy[Any]:
    """Values of a field's type, never null."""
    if isinstance(kind, WireType):
        return WIRE_VALUES[kind.name]
    if isinstance(kind, Array):
        return st.lists(values(kind.of, narrowed, tagged=tagged), max_size=2).map(tuple)
    return structs(kind, narrowed, tagged=tagged)


def structs(cls: type[Struct], narrowed: Narrowed | None = None, *, tagged: bool = True) -> st.SearchStrategy[Any]:
    """Structs with the fields of all versions. A field that is nullable in some version may be null.

    Args:
        cls: the declared struct or message.
        narrowed: the strategies for fields with these names, instead of the default ones.
        tagged: whether structs may contain unknown tagged fields.
    """
    narrowed = narrowed or {}
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, spec in field_specs(cls).items():
        drawn = narrowed[name] if name in narrowed else values(spec.kind, narrowed, tagged=tagged)
        fields[name] = st.none() | drawn if ever_null(spec) else drawn
    declared = frozenset(spec.tag for spec in field_specs(cls).values() if spec.tag is not None)
    fields["unknown_tags"] = tags(declared) if tagged else st.just(())
    return st.builds(cls, **fields)
