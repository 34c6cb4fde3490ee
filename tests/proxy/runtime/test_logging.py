"""Tests the format of log lines."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog

from group_sidecar.proxy.runtime.logging import configure_logging, log


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restores the logging of both libraries."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_log_lines_are_objects(capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON format, each line of this program or a library is one object with time, level and exception."""
    configure_logging("json", "info")
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


def test_console_log_is_readable_text(capsys: pytest.CaptureFixture[str]) -> None:
    """In console format, a line contains the event and its fields as text."""
    configure_logging("console", "info")
    log.warning("a client was turned away", times=3)
    line = capsys.readouterr().err
    assert "a client was turned away" in line
    assert "times=3" in line


@pytest.mark.parametrize(("terminal", "as_json"), [(False, True), (True, False)])
def test_auto_format_depends_on_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool, as_json: bool
) -> None:
    """The auto format is console on a terminal and JSON otherwise."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    configure_logging("auto", "info")
    log.info("started")
    assert capsys.readouterr().err.startswith("{") is as_json


def test_lines_below_level_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines below the configured level are not written."""
    configure_logging("json", "error")
    log.warning("hardly anything")
    log.error("something")
    logging.getLogger("library").warning("not ours")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["something"]
