"""The groups that the copy kept when another broker became the leader of their partition."""

from group_sidecar.coordinator.state.bounded_table import BoundedTable, TableSize

MAX_MOVED_GROUPS = 100_000
"""Maximum number of kept groups whose partition another broker now leads. The oldest are evicted, and the copy reports
no `CoordinatorMoved` fact for an evicted group."""


class MovedGroups:
    """The groups whose partition another broker now leads, each with the number of that partition."""

    def __init__(self, max_groups: int = MAX_MOVED_GROUPS) -> None:
        self._numbers: BoundedTable[int] = BoundedTable(max_groups, self._remove)
        self._by_number: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def table(self) -> TableSize:
        """The size of this object."""
        return TableSize("groups_left_behind", len(self._numbers), self._numbers.bytes)

    def put(self, group_id: str, number: int) -> None:
        """Adds a group of this partition."""
        self.take(group_id)
        self._by_number.setdefault(number, set()).add(group_id)
        self._numbers.put(group_id, number)

    def take(self, group_id: str) -> bool:
        """Removes a group. Returns whether the group was kept."""
        number = self._numbers.pop(group_id)
        if number is None:
            return False
        self._remove(group_id, number)
        return True

    def forget_partition(self, number: int) -> None:
        """Removes the groups of a partition, because this broker leads the partition again."""
        for group_id in self._by_number.pop(number, ()):
            self._numbers.pop(group_id)

    def clear(self) -> None:
        """Removes all groups."""
        self._numbers.clear()
        self._by_number.clear()

    def _remove(self, group_id: str, number: int) -> None:
        groups = self._by_number[number]
        groups.discard(group_id)
        if not groups:
            del self._by_number[number]
