"""The log on standard error, and its format.

Log lines may contain values from clients' and brokers' messages, but no credentials.
"""

import logging
import sys
from typing import Any, Literal, Protocol

import structlog

Format = Literal["auto", "console", "json"]


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
