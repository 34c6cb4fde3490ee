"""Builds the error replies that refused clients get, and computes how long a refused client is asked to wait.

The replies are those of Kafka's ``AbstractRequest.getErrorResponse``. The wait grows if a client is refused repeatedly.
"""

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.schema import Array, Struct, field_specs

FIRST_WAIT_MS, LONGEST_WAIT_MS = 100, 30_000
"""The wait after the second refusal in a row, and the maximum wait, in milliseconds. Each further refusal doubles the
wait."""
BACKOFF_RESET_SECONDS = 60.0
"""If a wait ended longer ago than this, the next refusal counts as the first in a row."""
MAX_GROUPS_PER_CONNECTION = 100
"""Maximum number of groups whose waits are kept for a connection. A consumer has one group, an admin client a few."""

ERROR_FIELDS = frozenset({"error_code", "error_message", "throttle_time_ms"})
_BLANKS: MappingProxyType[type, Any] = MappingProxyType({str: "", bytes: b"", int: 0, bool: False, float: 0.0})


def error_reply(request: Struct, version: int, error_code: int, message: str | None, throttle_ms: int) -> Struct:
    """Returns a reply with an error at its top level and otherwise blank values.

    Raises:
        ValueError: replies of this API and version have no top-level error.
    """
    response = APIS[request.KEY].response
    error_values: dict[str, Any] = {"error_code": error_code, "error_message": message, "throttle_time_ms": throttle_ms}
    names, values = _error_template(request.KEY, version)
    return response(**values, **{name: error_values[name] for name in names})


@cache
def _error_template(api_key: int, version: int) -> tuple[frozenset[str], Mapping[str, Any]]:
    """Returns the names of a reply's error fields, and the values of its other fields. Raises as `error_reply` does."""
    response = APIS[api_key].response
    fields, layout = {field.name: field for field in dataclasses.fields(response)}, field_specs(response)
    if "error_code" not in layout or not layout["error_code"].since <= version <= layout["error_code"].until:
        raise ValueError(f"{response.NAME} v{version} has no error of its own")
    values: dict[str, Any] = {}
    for name, spec in layout.items():
        if name not in ERROR_FIELDS and fields[name].default is dataclasses.MISSING:
            absent = spec.nullable <= version <= spec.nullable_until
            values[name] = None if absent else () if isinstance(spec.kind, Array) else _blank(fields[name].type)
    return ERROR_FIELDS & fields.keys(), MappingProxyType(values)


def _blank(annotation: Any) -> Any:
    return next(blank for kind, blank in _BLANKS.items() if kind in (annotation, *getattr(annotation, "__args__", ())))


class ThrottleBackoff:
    """Computes how long refused clients are asked to wait (KIP-219), by connection and group.

    For each connection, the groups that were refused last are kept. The waits of an evicted group start again.
    """

    def __init__(self) -> None:
        self._refused: dict[int, dict[str, tuple[int, float]]] = {}

    def refused(self, connection: int, group_id: str, now: float) -> int:
        """Notes a refusal. Returns how many milliseconds the client is asked to wait.

        The wait grows with each refusal in a row, up to `LONGEST_WAIT_MS`.
        """
        of_connection = self._refused.setdefault(connection, {})
        times, until = of_connection.pop(group_id, (0, now))
        if now > until + BACKOFF_RESET_SECONDS:
            times = 0
        wait = min(FIRST_WAIT_MS << times - 1, LONGEST_WAIT_MS) if times else 0
        of_connection[group_id] = min(times + 1, 16), now + wait / 1000
        if len(of_connection) > MAX_GROUPS_PER_CONNECTION:
            del of_connection[next(iter(of_connection))]
        return wait

    def reset(self, connection: int, group_id: str) -> None:
        """Notes that a request was not refused, so the waits for its group start again."""
        if connection in self._refused:
            self._refused[connection].pop(group_id, None)

    def gone(self, connection: int) -> None:
        """Forgets a connection that has ended."""
        self._refused.pop(connection, None)
