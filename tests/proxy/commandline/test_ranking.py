"""What the keys of `groups top` do, which groups stand first, and what has room in a terminal."""

import pytest
from rich.console import Console

from group_sidecar.proxy.commandline.answers import GroupSummary, Ranking
from group_sidecar.proxy.commandline.ranking import Choice, Order, first
from group_sidecar.proxy.commandline.tables import fitted


@pytest.mark.parametrize(
    ("keys", "choice"),
    [
        ("m", Choice(Order.MEMBERS)),
        ("r", Choice(Order.REBALANCES)),
        ("rmn", Choice(Order.NAME)),
        ("nl", Choice(Order.LAG)),
        ("x\n ", Choice()),
        ("q", Choice(ended=True)),
        ("/mq", Choice(search="mq", typing=True)),
        ("/mq\r", Choice(search="mq")),
        ("/mq\rm", Choice(Order.MEMBERS, search="mq")),
        ("/abc\x7f\x7fd", Choice(search="ad", typing=True)),
        ("/\x7f", Choice(typing=True)),
        ("/ab\t\x01c", Choice(search="abc", typing=True)),
        ("/ab\n/", Choice(typing=True)),
    ],
)
def test_keys(keys: str, choice: Choice) -> None:
    pressed = Choice()
    pressed.press(keys)
    assert pressed == choice


def test_escape_ends_the_search_and_arrows_do_nothing() -> None:
    choice = Choice()
    choice.press("/ab")
    choice.press("\x1b[A")
    assert choice == Choice(search="ab", typing=True)
    choice.press("\x1b")
    assert choice == Choice()
    choice.press("/ab\n")
    choice.press("\x1b")
    assert choice == Choice()


def order(choice: Choice, *groups: GroupSummary, limit: int = 9) -> list[str]:
    return [group.group for group in first(Ranking(groups=groups, total=9, all=9), choice, limit).groups]


def test_the_most_comes_first_and_what_is_not_known_last() -> None:
    groups = (
        GroupSummary(group="b", lag=3, rebalances=0, members=1),
        GroupSummary(group="unknown"),
        GroupSummary(group="c", lag=9, rebalances=1, members=2),
        GroupSummary(group="a", lag=3, rebalances=5, members=0),
    )
    assert order(Choice(Order.LAG), *groups) == ["c", "a", "b", "unknown"]
    assert order(Choice(Order.REBALANCES), *groups) == ["a", "c", "b", "unknown"]
    assert order(Choice(Order.MEMBERS), *groups) == ["c", "b", "a", "unknown"]
    assert order(Choice(Order.NAME), *groups) == ["a", "b", "c", "unknown"]
    assert order(Choice(Order.LAG), *groups, limit=2) == ["c", "a"]


def lines(width: int) -> list[str]:
    headings = ("GROUP", "STATE", "LAG", "CAUSE")
    rows = [{"GROUP": "g" * 40, "STATE": "Stable", "LAG": 12, "CAUSE": "new_member"}]
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(fitted(headings, rows, width, ("CAUSE", "STATE")))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_wide_terminal_has_room_for_all() -> None:
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
def test_a_narrow_terminal_loses_columns_before_names(width: int, shown: list[str] | None) -> None:
    headings, row = lines(width)[:2]
    assert len(headings) <= width
    assert shown is None or row.split() == shown
