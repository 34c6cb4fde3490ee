"""The two ways to one broker, and the comparison of what is seen on each.

Owns: routes, names that no other test uses, and what must be taken out of an observation before two
of them can be equal. Must not know: any scenario.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.kafka.processes import Address, spelled

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_JAVA_UUID = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")
_BLANKS = re.compile(r"[ \t]+")


@dataclass(frozen=True)
class Route:
    """One way to the broker: where a client starts, with and without SASL."""

    name: str
    plain: Address
    sasl: Address

    @property
    def bootstrap(self) -> str:
        return spelled(self.plain)

    @property
    def sasl_bootstrap(self) -> str:
        return spelled(self.sasl)


@dataclass(frozen=True)
class Run:
    """One run of a scenario: its route, and a prefix for every topic, group and id that it makes."""

    route: Route
    prefix: str

    def name(self, stem: str) -> str:
        """A name that is this run's alone and reads alike in the other run's observation."""
        return f"{self.prefix}-{stem}"

    @property
    def bootstrap(self) -> str:
        return self.route.bootstrap


@dataclass(frozen=True)
class Routes:
    """The direct way, and the one under test."""

    direct: Route
    through: Route

    def compare(self, scenario: Callable[[Run], Any]) -> Any:
        """Runs a scenario on both routes, asserts that both saw the same, and returns what they saw.

        What differs from run to run by its nature reads alike: the run's own names, the listener's address,
        member ids and topic ids, and how many blanks a table has between its columns.
        """
        seen = {}
        for route in (self.direct, self.through):
            run = Run(route, f"t{secrets.token_hex(5)}")
            seen[route.name] = alike(scenario(run), run)
        direct, through = seen[self.direct.name], seen[self.through.name]
        assert through == direct
        return direct


def alike(value: Any, run: Run) -> Any:
    """The observation with everything replaced that differs from run to run by its nature."""
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
