"""The log: one line for each thing worth one, on standard error.

Owns: how lines look, and that a cause that repeats does not fill the disk. Must not know: what is logged.
What clients and brokers send is never logged.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, Protocol

import structlog

Format = Literal["auto", "console", "json"]

MOST_CAUSES = 1024
"""Causes remembered at a time, unless told otherwise: some of them carry addresses, which others choose."""


class Logger(Protocol):
    """What is used of a structlog logger."""

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...
    def exception(self, event: str, **fields: Any) -> Any: ...


log: Logger = structlog.get_logger("group_sidecar")


def configure_logs(form: Format, level: str) -> None:
    """Sets up structlog, and passes on what libraries log through `logging` from `warning` up."""
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: structlog.typing.Processor
    if as_json:
        shared.append(structlog.processors.format_exc_info)
        render = structlog.processors.JSONRenderer()
    else:
        render = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    least = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(least, logging.WARNING), force=True)


class Recurring:
    """Lines that may recur: each cause at most once in `every` seconds, with how often it came up meanwhile.

    Args:
        every: seconds of silence after a line.
        clock: seconds, never going back.
        most: causes remembered at a time; the oldest goes first.
    """

    def __init__(
        self, every: float = 30.0, clock: Callable[[], float] = time.monotonic, most: int = MOST_CAUSES
    ) -> None:
        self._every = every
        self._clock = clock
        self._most = most
        self._seen: dict[tuple[str, ...], tuple[float, int]] = {}

    def due(self, *cause: str) -> int:
        """Counts one occurrence. Gives how many a line would stand for now; 0 where it is too early for one."""
        now = self._clock()
        logged_at, silent = self._seen.get(cause, (-self._every, 0))
        if now - logged_at < self._every:
            self._seen[cause] = (logged_at, silent + 1)
            return 0
        if len(self._seen) >= self._most:
            self._seen.pop(next(iter(self._seen)))
        self._seen[cause] = (now, 0)
        return silent + 1

    def ended(self, *cause: str) -> bool:
        """The cause is gone. Says whether it had come up."""
        return self._seen.pop(cause, None) is not None
