"""The walk over all groups: in order, in slices, and with each group at one moment."""

from collections.abc import Iterator

import pytest

from group_sidecar.codecs.offsets_topic import key_suffix
from group_sidecar.coordinator.model.views import CommittedOffset, GroupView
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets
from group_sidecar.metrics.group_snapshot import (
    GROUP_COST,
    GROUP_IDS_PER_STEP,
    PARTITIONS_PER_STEP,
    GroupWithOffsets,
    Position,
    newest_log_bounds,
    newest_log_end_lookup,
    walk,
)
from tests.metrics.metrics_world import CoordinatorCopy, commits, group, survey_of, visits_of


class Groups(CoordinatorCopy):
    """A copy that finds a group by id, and that a test may change."""

    def __init__(self, *groups: GroupView) -> None:
        super().__init__()
        self.by_id = {each.group_id: each for each in groups}

    @property
    def group_metadata_cache(self) -> dict[str, GroupView]:
        return self.by_id

    def existing(self, group_id: str, now: float) -> GroupView | None:
        return self.by_id.get(group_id)


def visited(*copies: CoordinatorCopy) -> Iterator[GroupWithOffsets | None]:
    return walk(copies, 1.0, lambda _: None)


def ids(*copies: CoordinatorCopy) -> list[str]:
    return [visit.figures.view.group_id for visit in visited(*copies) if visit is not None]


# Order.


def test_groups_are_visited_in_id_order() -> None:
    """The walk visits each group of all copies once, in the order of group ids."""
    names = ["é", "Z", *(f"g{number * 7919 % 10007}" for number in range(3 * GROUP_IDS_PER_STEP))]
    first, second = Groups(*map(group, names[: GROUP_IDS_PER_STEP + 5])), Groups(*map(group, names))
    assert ids(first, second) == sorted(set(names))


def test_group_deleted_during_walk_is_skipped() -> None:
    """A group that is deleted during the walk is skipped."""
    copy = Groups(group("a"), group("b"), group("c"))
    groups = (visit.figures for visit in visited(copy) if visit is not None)
    assert next(groups).view.group_id == "a"
    del copy.by_id["b"]
    assert [figures.view.group_id for figures in groups] == ["c"]


def test_survey_lists_groups_in_order() -> None:
    """A survey lists all groups with their members in id order."""
    found = survey_of(CoordinatorCopy(groups=(group("b", members=2), group("a"), group("d"))))
    assert [(figures.view.group_id, len(figures.view.members)) for figures in found.groups] == [
        ("a", 0),
        ("b", 2),
        ("d", 0),
    ]


# Slices.


def costs(*copies: CoordinatorCopy) -> list[int]:
    """Returns the cost of each slice, in partitions."""
    walked, spent = list(visited(*copies)), [0]
    for visit in walked:
        if visit is None:
            spent.append(0)
        else:
            spent[-1] += GROUP_COST + visit.figures.committed
    return spent


@pytest.mark.parametrize(("groups", "partitions"), [(2_000, 0), (500, 10), (40, 400)])
def test_work_between_yields_is_bounded(groups: int, partitions: int) -> None:
    """The walk yields often enough that the work between two yields stays within PARTITIONS_PER_STEP and one group."""
    offsets = commits("t", *range(partitions))
    spent = costs(Groups(*(group(f"g{number}", offsets=offsets) for number in range(groups))))
    assert max(spent) <= PARTITIONS_PER_STEP + GROUP_COST + partitions
    assert len(spent) >= groups * (GROUP_COST + partitions) / (PARTITIONS_PER_STEP + GROUP_COST + partitions)


def test_large_group_yields_within_group() -> None:
    """The walk yields several times within a group with many partitions."""
    walked = list(visited(Groups(group("g", offsets=commits("t", *range(10 * PARTITIONS_PER_STEP))))))
    assert walked.count(None) >= 10
    assert walked[-1] is not None
    assert walked[-1].figures.committed == 10 * PARTITIONS_PER_STEP


def test_members_count_as_work() -> None:
    """Groups with many members make the walk yield more often."""
    few, many = (costs(Groups(*(group(str(n), members=size) for n in range(50)))) for size in (1, 500))
    assert len(many) > 2 * len(few)


# One moment.


def value(offset: int) -> bytes:
    """Returns a raw OffsetCommitValue v3."""
    return b"\0\3" + offset.to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\0\2hi" + (5_000).to_bytes(8, "big")


def test_group_snapshot_is_consistent() -> None:
    """All positions of a group come from one moment, even if its offsets change during the walk."""
    offsets = CommittedOffsets()
    offsets.log_values = {key_suffix("t", number): value(3) for number in range(3 * PARTITIONS_PER_STEP)}
    walked, breaths = visited(Groups(group("g", offsets=offsets))), 0
    while (visit := next(walked)) is None:
        breaths += 1
        offsets.log_values |= dict.fromkeys(offsets.log_values, value(breaths))
    assert breaths > 2
    positions = list(visit.each_position())
    assert len({position.offset for position in positions}) == 1
    assert visit.figures.committed == len(positions) == 3 * PARTITIONS_PER_STEP


def test_positions_of_group() -> None:
    """A group's positions contain the committed offsets, lags and timestamps. Unreadable values and negative offsets
    are left out.
    """
    offsets = CommittedOffsets()
    offsets.log_values = {
        key_suffix("u", 1): value(3),
        key_suffix("t", 10): value(4),
        key_suffix("t", 9): b"\0\x63 garbage",
    }
    offsets.wire_offsets = {("t", 2): CommittedOffset(7, at=1.0), ("u", 1): CommittedOffset(-1)}
    copy = CoordinatorCopy(groups=(group("g", offsets=offsets),), log_ends={("t", 10): (10, 2.0), ("t", 2): (5, 1.0)})
    (visit,) = visits_of(copy)
    assert sorted(visit.each_position()) == [
        Position("t", 2, 7, -1, 1.0, 0, 1.0),
        Position("t", 10, 4, -1, 5.0, 6, 2.0),
    ]
    figures = visit.figures
    assert (figures.lag, figures.unknown_lags, figures.committed, figures.lag_seen_at) == (6, 0, 2, 1.0)


# Log ends.


def test_latest_log_end_wins() -> None:
    """If a partition has several log ends, the one with the latest timestamp is returned."""
    early, late = {("t", 0): (9, 1.0), ("t", 1): (1, 1.0)}, {("t", 0): (3, 2.0), ("t", 2): (2, 1.0)}
    for ends in ([early, late], [late, early]):
        assert newest_log_end_lookup(ends)(("t", 0)) == (3, 2.0)
        assert newest_log_end_lookup(ends)(("t", 9)) is None
        assert sorted(newest_log_bounds(ends)) == [(("t", 0), (3, 2.0)), (("t", 1), (1, 1.0)), (("t", 2), (2, 1.0))]


def test_log_ends_may_change_during_iteration() -> None:
    """Iteration over log ends survives log ends that are removed or added meanwhile."""
    ends = {("t", number): (number, 1.0) for number in range(4)}
    newest = newest_log_bounds([ends])
    assert next(newest)[0] == ("t", 0)
    del ends["t", 1]
    ends["t", 9] = (9, 1.0)
    assert [where for where, _ in newest] == [("t", 2), ("t", 3)]
