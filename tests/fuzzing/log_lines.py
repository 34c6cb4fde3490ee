"""Collects the errors that the sidecar logs while a target runs."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

_ERRORS = {"error", "exception", "critical"}


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    """Yields a list that gets each error that is logged, with its exception. Other lines are dropped."""
    found: list[str] = []

    def keep(_: Any, method: str, line: MutableMapping[str, Any]) -> Any:
        if method in _ERRORS:
            found.append(str(structlog.processors.format_exc_info(None, method, line)))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep], wrapper_class=structlog.make_filtering_bound_logger(30))
    try:
        yield found
    finally:
        structlog.configure(**before)
