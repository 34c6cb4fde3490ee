"""The two routes to a broker, and the comparison of what a scenario observes on each.

Names are unique to a run, and are replaced before two observations are compared.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.kafka.processes import Address, host_port

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_JAVA_UUID = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")
_BLANKS = re.compile(r"[ \t]+")


@dataclass(frozen=True)
class Route:
    """A route to the broker: the bootstrap addresses of a client, with and without SASL."""

    name: str
    plain: Address
    sasl: Address

    @property
    def bootstrap(self) -> str:
        return host_port(self.plain)

    @property
    def sasl_bootstrap(self) -> str:
        return host_port(self.sasl)


@dataclass(frozen=True)
class Run:
    """One run of a scenario: its route, and a prefix for the names of its topics, groups and ids."""

    route: Route
    prefix: str

    def name(self, stem: str) -> str:
        """Returns a name that is unique to this run and equals the other run's name in observations."""
        return f"{self.prefix}-{stem}"

    @property
    def bootstrap(self) -> str:
        return self.route.bootstrap


@dataclass(frozen=True)
class Routes:
    """The direct route, and the route under test."""

    direct: Route
    through: Route

    def compare(self, scenario: Callable[[Run], Any]) -> Any:
        """Runs a scenario on both routes, and asserts that both observations are equal. Returns the observation.

        Values that necessarily differ between runs are replaced first: the run's names, the listener's address, member
        ids, topic ids, and the number of blanks between the columns of a table.
        """
        seen = {}
        for route in (self.direct, self.through):
            run = Run(route, f"t{secrets.token_hex(5)}")
            seen[route.name] = alike(scenario(run), run)
        direct, through = seen[self.direct.name], seen[self.through.name]
        assert through == direct
        return direct


def alike(value: Any, run: Run) -> Any:
    """Returns the observation without values that necessarily differ between runs."""
    if isinstance(value, str):
        for own, common in (
            (run.prefix, "run"),
            (run.route.bootstrap, "broker"),
            (run.route.sasl_bootstrap, "broker"),
            (f":{run.route.plain[1]}", ":port"),
        ):
            value = value.replace(own, common)
        return _BLANKS.sub(" ", _JAVA_UUID.sub("uuid", _UUID.sub("uuid", value)))
    if isinstance(value, dict):
        return {alike(key, run): alike(item, run) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(alike(item, run) for item in value)
    return value
