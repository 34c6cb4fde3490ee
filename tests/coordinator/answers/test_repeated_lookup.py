"""`Lookup`, which walks a whole mapping, finds the same values as one access per key."""

from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.coordinator.answers.repeated_lookup import MAX_SIZE_FACTOR, VALUES_PER_SLICE, Lookup

KEYS = st.integers(0, 20)
STEPS = st.lists(
    st.tuples(st.just("put"), KEYS, st.integers(0, 3))
    | st.tuples(st.just("drop"), KEYS, st.none())
    | st.tuples(st.just("look"), st.none(), st.none()),
    max_size=30,
)


class Value:
    """A value that equals no other value."""


VALUES = [Value() for _ in range(4)]


@given(st.lists(KEYS, unique=True, max_size=8), STEPS)
def test_lookup_follows_mapping(keys: list[int], steps: list[tuple[str, int, int]]) -> None:
    """A Lookup finds the same values as key-by-key access, and reports exactly the changed positions."""
    mapping = {1: VALUES[0], 3: VALUES[1]}
    lookup = Lookup(keys, mapping)
    for what, key, value in [*steps, ("look", 0, 0), ("look", 0, 0)]:
        if what == "put":
            mapping[key] = VALUES[value]
        elif what == "drop":
            mapping.pop(key, None)
        else:
            before, now = list(lookup.found), [mapping.get(each) for each in keys]
            changed = lookup.changed(mapping)
            assert lookup.found == now
            assert sorted(changed) == [number for number in range(len(keys)) if before[number] is not now[number]]
    assert [lookup.number(each) for each in range(21)] == [
        keys.index(each) if each in keys else None for each in range(21)
    ]


def test_changes_in_all_slices_are_found() -> None:
    """A Lookup finds changes in the first, last and neighbouring slices of a large mapping."""
    mapping: dict[int, Value] = dict.fromkeys(range(3 * VALUES_PER_SLICE), VALUES[0])
    lookup = Lookup([*range(len(mapping) - 1, -1, -1)], mapping)
    for changes in ((), (0, VALUES_PER_SLICE - 1, VALUES_PER_SLICE, len(mapping) - 1)):
        assert lookup.changed(mapping) == []
        mapping |= dict.fromkeys(changes, VALUES[1])
        assert sorted(lookup.changed(mapping)) == sorted(len(mapping) - 1 - each for each in changes)


def test_reordered_mapping_is_not_mistaken() -> None:
    """A Lookup notices a replaced key even if the mapping keeps its size, and ignores a mere reordering."""
    mapping = {0: VALUES[0], 1: VALUES[1], 2: VALUES[2]}
    lookup = Lookup([2, 1, 0], mapping)
    assert lookup.changed(mapping) == []
    mapping[0] = mapping.pop(0)
    assert lookup.changed(mapping) == []
    mapping[3] = mapping.pop(1)
    assert lookup.changed(mapping) == [1]
    assert lookup.found == [VALUES[2], None, VALUES[0]]


def test_lookup_recovers_from_oversized_mapping() -> None:
    """A Lookup still finds changes while the mapping is far larger than its keys and after the mapping has shrunk
    again.
    """
    mapping = {0: VALUES[0], 1: VALUES[0]}
    lookup = Lookup([0, 1], mapping)
    assert lookup.changed(mapping) == []
    more = dict.fromkeys(range(2, 2 * MAX_SIZE_FACTOR + 2), VALUES[0])
    assert lookup.changed({0: VALUES[1], 1: VALUES[0], **more}) == [0]
    assert lookup.changed(mapping) == [0]
    assert lookup.found == [VALUES[0], VALUES[0]]
