"""The log on standard error: its format, and the throttling of repeated lines.

Log lines may contain values from clients' and brokers' messages, but no credentials.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, Protocol

import structlog

Format = Literal["auto", "console", "json"]

MAX_CAUSES = 1024
"""The default number of causes that are throttled at a time. The number is bounded because some causes contain
addresses, which clients choose."""


class Logger(Protocol):
    """The methods of a structlog logger that the sidecar uses."""

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...
    def exception(self, event: str, **fields: Any) -> Any: ...


log: Logger = structlog.get_logger("group_sidecar")


def configure_logging(form: Format, level: str) -> None:
    """Sets up structlog. Log records of libraries are written to the same log, from level `warning` up."""
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
    lowest_level = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(lowest_level),
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
    logging.basicConfig(handlers=[handler], level=max(lowest_level, logging.WARNING), force=True)


class LogThrottle:
    """Lets a repeated line be logged at most once in `every` seconds for each cause, with the number of occurrences.

    Args:
        every: seconds of silence after a line.
        clock: returns seconds, and never goes back.
        max_causes: the maximum number of causes that are remembered. The oldest cause is evicted first.
    """

    def __init__(
        self, every: float = 30.0, clock: Callable[[], float] = time.monotonic, max_causes: int = MAX_CAUSES
    ) -> None:
        self._every = every
        self._clock = clock
        self._max_causes = max_causes
        self._seen: dict[tuple[str, ...], tuple[float, int]] = {}

    def due(self, *cause: str) -> int:
        """Counts an occurrence.

        Returns how many occurrences a line would stand for now, or 0 if it is too early for a line.
        """
        now = self._clock()
        logged_at, silent = self._seen.get(cause, (-self._every, 0))
        if now - logged_at < self._every:
            self._seen[cause] = (logged_at, silent + 1)
            return 0
        if len(self._seen) >= self._max_causes:
            self._seen.pop(next(iter(self._seen)))
        self._seen[cause] = (now, 0)
        return silent + 1

    def ended(self, *cause: str) -> bool:
        """Forgets a cause. Returns whether it had occurred."""
        return self._seen.pop(cause, None) is not None
