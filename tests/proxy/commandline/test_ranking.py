"""`groups top`: the keys, the order of groups, and the columns that fit into a terminal."""

import pytest
from rich.console import Console

from group_sidecar.proxy.commandline.ranking import Order, TopSelection, top_groups
from group_sidecar.proxy.commandline.results import GroupSummary, Ranking
from group_sidecar.proxy.commandline.tables import fit_table


@pytest.mark.parametrize(
    ("keys", "choice"),
    [
        ("m", TopSelection(Order.MEMBERS)),
        ("r", TopSelection(Order.REBALANCES)),
        ("rmn", TopSelection(Order.NAME)),
        ("nl", TopSelection(Order.LAG)),
        ("x\n ", TopSelection()),
        ("q", TopSelection(quit_requested=True)),
        ("/mq", TopSelection(search="mq", typing=True)),
        ("/mq\r", TopSelection(search="mq")),
        ("/mq\rm", TopSelection(Order.MEMBERS, search="mq")),
        ("/abc\x7f\x7fd", TopSelection(search="ad", typing=True)),
        ("/\x7f", TopSelection(typing=True)),
        ("/ab\t\x01c", TopSelection(search="abc", typing=True)),
        ("/ab\n/", TopSelection(typing=True)),
    ],
)
def test_keys_change_selection(keys: str, choice: TopSelection) -> None:
    """Keys select the order, type a search or quit."""
    pressed = TopSelection()
    pressed.press(keys)
    assert pressed == choice


def test_escape_clears_search() -> None:
    """The escape key clears the search, and arrow keys have no effect."""
    choice = TopSelection()
    choice.press("/ab")
    choice.press("\x1b[A")
    assert choice == TopSelection(search="ab", typing=True)
    choice.press("\x1b")
    assert choice == TopSelection()
    choice.press("/ab\n")
    choice.press("\x1b")
    assert choice == TopSelection()


def order(choice: TopSelection, *groups: GroupSummary, limit: int = 9) -> list[str]:
    return [group.group for group in top_groups(Ranking(groups=groups, total=9, all=9), choice, limit).groups]


def test_unknown_values_are_ranked_last() -> None:
    """Groups are ranked from the largest value, with unknown values last and ties by name."""
    groups = (
        GroupSummary(group="b", lag=3, rebalances=0, members=1),
        GroupSummary(group="unknown"),
        GroupSummary(group="c", lag=9, rebalances=1, members=2),
        GroupSummary(group="a", lag=3, rebalances=5, members=0),
    )
    assert order(TopSelection(Order.LAG), *groups) == ["c", "a", "b", "unknown"]
    assert order(TopSelection(Order.REBALANCES), *groups) == ["a", "c", "b", "unknown"]
    assert order(TopSelection(Order.MEMBERS), *groups) == ["c", "b", "a", "unknown"]
    assert order(TopSelection(Order.NAME), *groups) == ["a", "b", "c", "unknown"]
    assert order(TopSelection(Order.LAG), *groups, limit=2) == ["c", "a"]


def lines(width: int) -> list[str]:
    headings = ("GROUP", "STATE", "LAG", "CAUSE")
    rows = [{"GROUP": "g" * 40, "STATE": "Stable", "LAG": 12, "CAUSE": "new_member"}]
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(fit_table(headings, rows, width, ("CAUSE", "STATE")))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_wide_terminal_shows_all_columns() -> None:
    """A wide terminal shows all columns completely."""
    assert lines(80)[1].split() == ["g" * 40, "Stable", "12", "new_member"]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (65, ["g" * 37 + "…", "Stable", "12", "new_member"]),
        (50, ["g" * 34 + "…", "Stable", "12"]),
        (40, ["g" * 32 + "…", "12"]),
        (20, ["g" * 12 + "…", "12"]),
        (5, None),
    ],
)
def test_narrow_terminal_drops_columns_first(width: int, shown: list[str] | None) -> None:
    """A narrow terminal drops columns before it shortens names further."""
    headings, row = lines(width)[:2]
    assert len(headings) <= width
    assert shown is None or row.split() == shown
