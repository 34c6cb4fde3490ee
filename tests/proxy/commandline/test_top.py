"""`groups top` in a terminal, and without a terminal."""

import json
import signal
import sys
import termios
from collections.abc import Iterator

import pytest

from tests.proxy.commandline.admin_ports import AdminPort, group, listening, run
from tests.proxy.commandline.terminal import Terminal

COMMAND = (sys.executable, "-m", "group_sidecar.proxy.cli", "groups", "top")
SHOWN, HIDDEN = "\x1b[?1049h", "\x1b[?1049l"
"""The escape sequences that switch a terminal to its alternate screen, and back."""
CURSOR = "\x1b[?25h"


@pytest.fixture
def ports() -> Iterator[list[AdminPort]]:
    far = group("far-behind", lag=90, members=1, rebalances=2)
    big = group("big", lag=5, members=80, rebalances=0)
    restless = group("restless\x1b[2J", lag=0, members=2, rebalances=30)
    ports = [AdminPort([far, restless]), AdminPort([big])]
    with listening(*ports):
        yield ports


def terminal(ports: list[AdminPort], *more: str, columns: int = 100, lines: int = 24) -> Terminal:
    flags = [part for port in ports for part in ("--sidecar", port.address)]
    return Terminal([*COMMAND, *flags, *more], columns=columns, lines=lines)


def names(picture: str) -> list[str]:
    """Returns the groups on a screen, from top to bottom."""
    known = [(picture.find(name), name) for name in ("far-behind", "big", "restless")]
    return [name for place, name in sorted(known) if place >= 0]


def test_keys_change_sort_order(ports: list[AdminPort]) -> None:
    """Groups are sorted by lag until a key selects another order."""
    with terminal(ports, "--interval", "0.1") as screen:
        assert names(screen.picture("far-behind")) == ["far-behind", "big", "restless"]
        screen.press("m")
        assert names(screen.picture("by members")) == ["big", "restless", "far-behind"]
        screen.press("r")
        assert names(screen.picture("by rebalances")) == ["restless", "far-behind", "big"]
        screen.press("n")
        assert names(screen.picture("by name")) == ["big", "far-behind", "restless"]
        screen.press("q")
        assert screen.end() == 0


def test_screen_shows_new_groups(ports: list[AdminPort]) -> None:
    """The screen shows a new group after the next interval."""
    with terminal(ports, "--interval", "0.1") as screen:
        screen.picture("far-behind")
        ports[0].groups = [group("newcomer", lag=1)]
        assert "newcomer" in screen.picture("newcomer")
        screen.press("q")
        assert screen.end() == 0


def test_search_filters_groups(ports: list[AdminPort]) -> None:
    """A typed search filters the groups until it is cleared."""
    with terminal(ports, "--interval", "0.1") as screen:
        screen.picture("far-behind")
        screen.press("/big")
        screen.picture("/big_")
        screen.press("\r")
        assert names(screen.picture("1 of 3 groups")) == ["big"]
        screen.press("\x1b")
        assert "1 of 3" not in screen.picture("far-behind")
        screen.press("q")
        assert screen.end() == 0


@pytest.mark.parametrize(
    ("end", "status"),
    [("q", 0), ("\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_terminal_is_restored_at_exit(ports: list[AdminPort], end: str | signal.Signals, status: int) -> None:
    """The terminal is restored after a quit key, an interrupt or a signal."""
    with terminal(ports) as screen:
        screen.picture("far-behind")
        assert SHOWN in screen.written
        assert not screen.restored()
        if isinstance(end, signal.Signals):
            screen.process.send_signal(end)
        else:
            screen.press(end)
        assert screen.end() == status
        assert screen.restored()
        assert screen.written.endswith(CURSOR + HIDDEN)


def test_suspend_key_is_disabled(ports: list[AdminPort]) -> None:
    """The suspend key is disabled while the screen is in use, and the interrupt key is not."""
    with terminal(ports) as screen:
        before = screen.modes()
        screen.picture("far-behind")
        characters, disabled = screen.modes()[-1], b"\0"
        assert before[-1][termios.VSUSP] == b"\x1a"
        assert characters[termios.VSUSP] == disabled
        assert characters[termios.VINTR] == b"\x03"
        screen.press("q")
        assert screen.end() == 0


def test_resize_redraws_screen(ports: list[AdminPort]) -> None:
    """A resized terminal gets a screen that fits its size."""
    with terminal(ports, "--interval", "60") as screen:
        screen.picture("far-behind")
        assert "LAST-REBALANCE" in screen.written
        screen.resize(60, 10)
        picture = screen.picture("far-behind")
        assert "LAST-REBALANCE" not in picture
        screen.press("q")
        assert screen.end() == 0


def test_group_names_are_escaped(ports: list[AdminPort]) -> None:
    """Control characters in group names are escaped."""
    with terminal(ports) as screen:
        picture = screen.picture("restless")
        assert r"restless\x1b[2J" in picture
        assert "\x1b[2J" not in screen.written
        screen.press("q")
        assert screen.end() == 0


def test_unreachable_sidecar_is_shown(ports: list[AdminPort]) -> None:
    """An unreachable sidecar is one line on the screen next to the other sidecars' groups."""
    with terminal([*ports, AdminPort(address="127.0.0.1:1")]) as screen:
        picture = screen.picture("far-behind")
        assert "127.0.0.1:1 cannot be reached: Connection refused" in picture
        screen.press("q")
        assert screen.end() == 0


def test_last_groups_stay_when_all_fail(ports: list[AdminPort]) -> None:
    """If all sidecars fail, the last groups stay on the screen with the error."""
    with terminal(ports, "--interval", "0.1") as screen:
        screen.picture("far-behind")
        for port in ports:
            port.failing = 500, b"{}"
        assert "far-behind" in screen.picture("with status 500")
        screen.press("q")
        assert screen.end() == 0


def test_no_terminal_prints_one_table(ports: list[AdminPort]) -> None:
    """Without a terminal, one sorted table is printed."""
    result = run("top", "--utc", ports=ports)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["GROUP", "STATE", "#MEMBERS", "LIMIT", "LAG", "REBALANCES", "LAST-REBALANCE", "CAUSE"],
        ["far-behind", "Stable", "1", "-", "90", "2", "2026-11-21", "13:59:00Z", "new_member"],
        ["big", "Stable", "80", "-", "5", "0", "2026-11-21", "13:59:00Z", "new_member"],
        [r"restless\x1b[2J", r"Stable", r"2", r"-", r"0", r"30", r"2026-11-21", r"13:59:00Z", r"new_member"],
    ]


def test_once_prints_one_table(ports: list[AdminPort]) -> None:
    """The flag --once prints one table in a terminal without its alternate screen."""
    with terminal(ports, "--once") as screen:
        assert screen.end() == 0
        assert "far-behind" in screen.written
        assert SHOWN not in screen.written


def test_json_follows_sort_and_search(ports: list[AdminPort]) -> None:
    """The JSON output follows --sort and --search, which the sidecar gets as parameters."""
    result = run("top", "--json", "--sort", "rebalances", "--search", "r", ports=ports)
    output = json.loads(result.stdout)
    assert [one["group"] for one in output["groups"]] == ["restless\x1b[2J", "far-behind"]
    assert (output["total"], output["all"], output["problems"]) == (2, 3, [])
    [(_, query)] = ports[1].asked
    assert query == {"search": "r", "sort": "rebalances", "order": "desc", "limit": "25"}


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "0.05"])
def test_invalid_interval_is_refused(interval: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval that is not a number of at least 0.1 seconds is refused with status 2."""
    monkeypatch.setenv("COLUMNS", "200")
    result = run("top", "--interval", interval, "--sidecar", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "must be at least 0.1" in result.stderr
