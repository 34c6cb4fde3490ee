"""``kafka-consumer-groups`` prints the same directly and through the sidecar."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from tests.conformance.held_groups import GROUPS, population
from tests.conformance.routes import Route, Routes, Run, alike
from tests.kafka.tools import CONSUMER_GROUPS, ToolFailed, kafka_tool

VERBOSE = ("--verbose", "--members --verbose", "--state --verbose")
"""The options with which the command requests all fields. Each run takes two seconds of CPU time."""
LONG = partial(pytest.param, marks=pytest.mark.long)
CLEANUPS = 5
"""How often the listings are repeated if the broker's cleanup of empty groups falls between two listings."""


@pytest.fixture(scope="module")
def populations(routes: Routes) -> Iterator[list[Run]]:
    """Creates the same groups twice: with direct clients, and with clients through the sidecar."""
    with ExitStack() as stack:
        runs = [Run(route, f"t{secrets.token_hex(5)}") for route in (routes.direct, routes.through)]
        for run in runs:
            stack.enter_context(population(run))
        yield runs


def printed(route: Route, *arguments: str) -> list[str]:
    """Runs the command with these options. Returns its output line by line, with the listener's address replaced."""
    try:
        text = kafka_tool(CONSUMER_GROUPS, "--bootstrap-server", route.bootstrap, *arguments)
    except ToolFailed as error:
        text = str(error)
    return [line.replace(route.bootstrap, "broker").rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("option", [LONG(""), "--state", "--type"])
def test_list(routes: Routes, populations: list[Run], option: str) -> None:
    """kafka-consumer-groups --list prints the same directly and through the sidecar."""

    def listed(route: Route) -> list[str]:
        return sorted(printed(route, "--list", *option.split()))

    direct = listed(routes.direct)
    for _ in range(1 + CLEANUPS):
        before, through, direct = direct, listed(routes.through), listed(routes.direct)
        if before == direct:  # The broker did not remove a group meanwhile.
            break
    assert through == direct
    for run in populations:
        assert {run.name(group) for group in GROUPS} <= {line.partition(" ")[0] for line in direct}


@pytest.mark.parametrize("options", [*map(LONG, ("", "--members", "--state")), *VERBOSE])
def test_describe(routes: Routes, populations: list[Run], options: str) -> None:
    """kafka-consumer-groups --describe prints the same directly and through the sidecar."""
    names = [part for run in populations for group in GROUPS for part in ("--group", run.name(group))]
    direct, through = (
        printed(route, "--describe", *names, *options.split()) for route in (routes.direct, routes.through)
    )
    assert table(through) == table(direct)
    for run in populations:
        assert any(run.name("stable") in line for line in direct)


def table(lines: list[str]) -> list[list[str]]:
    """Returns the words of each line, because column widths depend on the addresses, which differ here."""
    return [line.split() for line in lines]


@pytest.mark.parametrize("options", ["", LONG("--state"), LONG("--members")])
def test_describe_unknown_group(routes: Routes, options: str) -> None:
    """kafka-consumer-groups --describe prints the same for an unknown group directly and through the sidecar."""
    direct, through = (
        printed(route, "--describe", "--group", "nobody", *options.split()) for route in (routes.direct, routes.through)
    )
    assert [alike(line, Run(routes.through, "-")) for line in through] == [
        alike(line, Run(routes.direct, "-")) for line in direct
    ]
    assert any("nobody" in line for line in direct)
