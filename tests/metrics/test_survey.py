"""Going through all groups: in order, breath by breath, each group of one moment."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from group_sidecar.codecs.offsets_topic import suffix
from group_sidecar.coordinator.committed import CommittedOffsets
from group_sidecar.coordinator.views import CommittedOffset, GroupView
from group_sidecar.metrics.family import Detail
from group_sidecar.metrics.survey import (
    AT_ONCE,
    GROUP_COST,
    NAMES_AT_ONCE,
    Position,
    Visit,
    each_newest,
    newest,
    walk,
)
from tests.metrics.world import Copy, World, commits, group, survey_of, visits_of


class Groups(Copy):
    """A copy that finds a group at once, and may change."""

    def __init__(self, *groups: GroupView) -> None:
        super().__init__()
        self.by_id = {each.group_id: each for each in groups}

    @property
    def group_metadata_cache(self) -> dict[str, GroupView]:
        return self.by_id

    def existing(self, group_id: str, now: float) -> GroupView | None:
        return self.by_id.get(group_id)


def visited(*copies: Copy) -> Iterator[Visit | None]:
    return walk(copies, 1.0, lambda _: None)


def ids(*copies: Copy) -> list[str]:
    return [visit.figures.view.group_id for visit in visited(*copies) if visit is not None]


# Order.


def test_groups_come_in_the_order_of_their_ids_however_many() -> None:
    names = [f"g{number * 7919 % 10007}" for number in range(3 * NAMES_AT_ONCE)]
    first, second = Groups(*map(group, names[: NAMES_AT_ONCE + 5])), Groups(*map(group, names))
    assert ids(first, second) == sorted(set(names))


def test_a_group_that_goes_meanwhile_is_passed_over() -> None:
    copy = Groups(group("a"), group("b"), group("c"))
    groups = (visit.figures for visit in visited(copy) if visit is not None)
    assert next(groups).view.group_id == "a"
    del copy.by_id["b"]
    assert [figures.view.group_id for figures in groups] == ["c"]


def test_a_survey_has_all_groups_in_order() -> None:
    found = survey_of(Copy(groups=(group("b", members=2), group("a"), group("d"))))
    assert [(figures.view.group_id, len(figures.view.members)) for figures in found.groups] == [
        ("a", 0),
        ("b", 2),
        ("d", 0),
    ]


# Breath.


def costs(*copies: Copy) -> list[int]:
    """What is done between each two breaths, in partitions."""
    walked, spent = list(visited(*copies)), [0]
    for visit in walked:
        if visit is None:
            spent.append(0)
        else:
            spent[-1] += GROUP_COST + visit.figures.committed
    return spent


@pytest.mark.parametrize(("groups", "partitions"), [(2_000, 0), (500, 10), (40, 400)])
def test_no_more_is_done_between_two_breaths_than_is_said(groups: int, partitions: int) -> None:
    offsets = commits("t", *range(partitions))
    spent = costs(Groups(*(group(f"g{number}", offsets=offsets) for number in range(groups))))
    assert max(spent) <= AT_ONCE + GROUP_COST + partitions
    assert len(spent) >= groups * (GROUP_COST + partitions) / (AT_ONCE + GROUP_COST + partitions)


def test_it_breathes_within_a_group_with_many_partitions() -> None:
    walked = list(visited(Groups(group("g", offsets=commits("t", *range(10 * AT_ONCE))))))
    assert walked.count(None) >= 10
    assert walked[-1] is not None
    assert walked[-1].figures.committed == 10 * AT_ONCE


def test_members_take_time_too() -> None:
    few, many = (costs(Groups(*(group(str(n), members=size) for n in range(50)))) for size in (1, 500))
    assert len(many) > 2 * len(few)


# One moment.


def value(offset: int) -> bytes:
    """A raw OffsetCommitValue v3."""
    return b"\0\3" + offset.to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\0\2hi" + (5_000).to_bytes(8, "big")


def test_a_group_is_of_one_moment_however_long_it_takes() -> None:
    offsets = CommittedOffsets()
    offsets.logged = {suffix("t", number): value(3) for number in range(3 * AT_ONCE)}
    walked, breaths = visited(Groups(group("g", offsets=offsets))), 0
    while (visit := next(walked)) is None:
        breaths += 1
        offsets.logged |= dict.fromkeys(offsets.logged, value(breaths))
    assert breaths > 2
    positions = list(visit.each_position())
    assert len({position.offset for position in positions}) == 1
    assert visit.figures.committed == len(positions) == 3 * AT_ONCE


def test_positions_say_what_was_committed() -> None:
    offsets = CommittedOffsets()
    offsets.logged = {suffix("u", 1): value(3), suffix("t", 10): value(4), suffix("t", 9): b"\0\x63 garbage"}
    offsets.seen = {("t", 2): CommittedOffset(7, at=1.0), ("u", 1): CommittedOffset(-1)}
    copy = Copy(groups=(group("g", offsets=offsets),), log_ends={("t", 10): (10, 2.0), ("t", 2): (5, 1.0)})
    (visit,) = visits_of(copy)
    assert sorted(visit.each_position()) == [
        Position("t", 2, 7, -1, 1.0, 0, 1.0),
        Position("t", 10, 4, -1, 5.0, 6, 2.0),
    ]
    figures = visit.figures
    assert (figures.lag, figures.unknown_lags, figures.committed, figures.lag_seen_at) == (6, 0, 2, 1.0)


def test_what_cannot_be_read_does_not_spoil_a_scrape() -> None:
    offsets = CommittedOffsets()
    offsets.logged = {suffix("t", 0): b"\0\x63", suffix("t", 1): value(4), b"\0\x63short": value(5)}
    world = World(Copy(groups=(group("g", offsets=offsets),)), detail=Detail.PARTITION)
    assert world.series("committed_offset") == {("g", "1", "t"): 4}


# Log ends.


def test_of_several_log_ends_the_one_seen_last_counts() -> None:
    early, late = {("t", 0): (9, 1.0), ("t", 1): (1, 1.0)}, {("t", 0): (3, 2.0), ("t", 2): (2, 1.0)}
    for ends in ([early, late], [late, early]):
        assert newest(ends)(("t", 0)) == (3, 2.0)
        assert newest(ends)(("t", 9)) is None
        assert sorted(each_newest(ends)) == [(("t", 0), (3, 2.0)), (("t", 1), (1, 1.0)), (("t", 2), (2, 1.0))]


def test_log_ends_may_go_and_come_while_they_are_told() -> None:
    ends = {("t", number): (number, 1.0) for number in range(4)}
    told = each_newest([ends])
    assert next(told)[0] == ("t", 0)
    del ends["t", 1]
    ends["t", 9] = (9, 1.0)
    assert [where for where, _ in told] == [("t", 2), ("t", 3)]


def test_ids_are_strictly_ascending() -> None:
    found = ids(Groups(group("b"), group("a")), Groups(group("a"), group("é"), group("B")))
    assert all(one < other for one, other in pairwise(found))
    assert len(found) == 4
