"""How lines look, and how often they come."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog

from group_sidecar.proxy.logs import MOST_CAUSES, Recurring, configure_logs, log


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leaves both libraries' logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("json", "info")
    log.info("started", listen="127.0.0.1:9092")
    try:
        raise RuntimeError("gone wrong")
    except RuntimeError:
        log.exception("a connection failed")
    logging.getLogger("library").warning("not %s", "ours")
    logging.getLogger("library").info("nobody asked")
    first, second, third = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["timestamp"].endswith("Z")
    assert (first["event"], first["level"], first["listen"]) == ("started", "info", "127.0.0.1:9092")
    assert "gone wrong" in second["exception"]
    assert (third["event"], third["level"]) == ("not ours", "warning")


def test_the_console_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("console", "info")
    log.warning("a client was turned away", times=3)
    line = capsys.readouterr().err
    assert "a client was turned away" in line
    assert "times=3" in line


@pytest.mark.parametrize(("terminal", "as_json"), [(False, True), (True, False)])
def test_auto_looks_for_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool, as_json: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    configure_logs("auto", "info")
    log.info("started")
    assert capsys.readouterr().err.startswith("{") is as_json


def test_what_is_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("json", "error")
    log.warning("hardly anything")
    log.error("something")
    logging.getLogger("library").warning("not ours")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["something"]


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_cause_is_due_once_in_a_while_and_says_how_often_it_came() -> None:
    clock = Clock()
    recurring = Recurring(30, clock)
    assert [recurring.due("a") for _ in range(5)] == [1, 0, 0, 0, 0]
    assert recurring.due("b") == 1
    clock.now = 29.9
    assert recurring.due("a") == 0
    clock.now = 30
    assert recurring.due("a") == 6
    assert recurring.due("a") == 0


def test_a_cause_that_ended_is_due_again_at_once() -> None:
    recurring = Recurring(30, Clock())
    assert not recurring.ended("a")
    recurring.due("a")
    assert recurring.ended("a")
    assert not recurring.ended("a")
    assert recurring.due("a") == 1


def test_causes_are_bounded() -> None:
    recurring = Recurring(30, Clock())
    for number in range(MOST_CAUSES + 1):
        assert recurring.due(str(number)) == 1
    assert recurring.due(str(MOST_CAUSES)) == 0
    assert recurring.due("0") == 1
