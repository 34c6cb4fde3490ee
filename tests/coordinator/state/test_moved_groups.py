"""The groups that were kept when another broker became the leader of their partition."""

from group_sidecar.coordinator.state.moved_groups import MovedGroups


def test_groups_are_found_by_partition() -> None:
    """The groups of one partition are removed without a look at other groups."""
    moved = MovedGroups()
    for group_id, number in (("a", 1), ("b", 2), ("c", 1), ("d", 1), ("b", 3)):
        moved.put(group_id, number)
    assert len(moved) == 4
    assert moved.take("c")
    assert not moved.take("c")
    moved.forget_partition(2)
    moved.forget_partition(1)
    assert [group_id for group_id in "abcd" if moved.take(group_id)] == ["b"]
    assert (moved.table[1:], moved._by_number) == ((0, 0), {})


def test_oldest_group_is_evicted() -> None:
    """Beyond the bound, the oldest group is evicted, also from its partition."""
    moved = MovedGroups(2)
    for number, group_id in enumerate("abc"):
        moved.put(group_id, number)
    assert moved._by_number == {1: {"b"}, 2: {"c"}}
    moved.clear()
    assert (len(moved), moved._by_number) == (0, {})
