"""group.max.size under a storm of joins: the same script tests the sidecar's limit and the broker's own limit."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import trio

from group_sidecar.codecs.errors import ErrorCode
from tests.conformance.join_storm import Plan, Storm
from tests.conformance.join_storm_outcome import Outcome
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, free_addresses
from tests.kafka.sidecar_process import SidecarProcess

LARGE = Plan(name="large", clients=500, limit=50, seconds=6)
SMALL = Plan(name="small", clients=60, limit=20, seconds=4)
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
SOON_FORGOTTEN = {"group.min.session.timeout.ms": "100"}
ITSELF = "4.4.0 itself"
"""The way to the broker with a limit. 1.1.1 has no limit, so its sidecars are compared with 4.4.0 too."""
THROUGH = ("4.4.0, exclusive", "4.4.0", "1.1.1, exclusive", "1.1.1")
STORMS = ((ITSELF, LARGE), *product(THROUGH, (LARGE, SMALL)))


@dataclass(frozen=True)
class Way:
    """The address to which a storm's clients connect, and the broker's own address."""

    through: Address
    broker: Address


def settings(way: str) -> dict[str, Any]:
    """Returns the settings of a sidecar, with the error code that the broker uses."""
    small = {"pattern": f"{SMALL.name}-.*", "limit": SMALL.limit}
    limits = {"limit": LARGE.limit, "error_code": int(FULL), "overrides": [small]}
    return {"policies": {"group_max_size": limits}, "answers": {"exclusive": way.endswith("exclusive")}}


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Way]]:
    """The ways to a broker that has a limit, and to two brokers without a limit, each through two sidecars."""
    folder = tmp_path_factory.mktemp("storm")
    limit = {"group.max.size": str(LARGE.limit)}
    limited = KafkaBroker(folder / "limited", properties={**SOON_FORGOTTEN, **limit})
    free = {
        version: KafkaBroker(folder / version, version=version, properties=SOON_FORGOTTEN)
        for version in ("4.4.0", "1.1.1")
    }
    with ExitStack() as stack, ThreadPoolExecutor() as together:
        brokers = [limited, *free.values()]
        list(together.map(stack.enter_context, brokers))
        list(together.map(KafkaBroker.wait_for_coordinator, brokers))
        ways = {ITSELF: Way(limited.direct, limited.direct)}
        for way, listen in zip(THROUGH, free_addresses(len(THROUGH)), strict=True):
            broker = free[way.partition(",")[0]]
            stack.enter_context(
                SidecarProcess(folder / way, listen=listen, upstream=broker.client, settings=settings(way))
            )
            ways[way] = Way(listen, broker.direct)
        yield ways


Outcomes = dict[tuple[str, Plan], Outcome]


@pytest.fixture(scope="module")
def outcomes(ways: dict[str, Way]) -> Outcomes:
    """The outcomes of all storms. They run at the same time, because they mostly wait."""
    storms = {(way, plan): Storm(plan, ways[way].through, ways[way].broker) for way, plan in STORMS}

    async def rage() -> None:
        async with trio.open_nursery() as nursery:
            for storm in storms.values():
                nursery.start_soon(storm.run)

    trio.run(rage)
    return {key: storm.outcome for key, storm in storms.items()}


@pytest.fixture(params=STORMS, ids=[f"{way}, {plan.name}" for way, plan in STORMS])
def outcome(outcomes: Outcomes, request: pytest.FixtureRequest) -> Outcome:
    """The outcome of one storm. The report of a failed test shows all outcomes."""
    table = "\n".join(f"{way}, {plan.name}: {each.row()}" for (way, plan), each in outcomes.items())
    request.node.add_report_section("setup", "storms", table)
    return outcomes[request.param]


def test_no_generation_exceeds_limit(outcome: Outcome) -> None:
    """No generation has more joined members than the limit, without static members that did not rejoin, which Kafka
    does not count either.
    """
    assert len(outcome.sizes) > 1
    assert max(outcome.joined.values()) == outcome.limit
    assert outcome.most_settled <= outcome.limit


def test_refused_clients_get_expected_errors(outcome: Outcome) -> None:
    """Refused clients get GROUP_MAX_SIZE_REACHED without a member id, and no client gets an unexpected error."""
    assert outcome.errors[FULL] > outcome.limit
    # A static client's join may reach the broker after the join of its next connection. The broker then fences the
    # join of the next connection.
    static = {ErrorCode.FENCED_INSTANCE_ID}
    assert outcome.errors.keys() <= {0, FULL, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID, *static}
    refused = [reply for reply in outcome.replies if reply.error_code == FULL]
    assert {(reply.generation, reply.member_id, reply.roster) for reply in refused} == {(-1, "", ())}


def test_storm_ends_with_full_group(outcome: Outcome) -> None:
    """A join storm ends with a stable group of exactly the limit."""
    assert outcome.described[-1].is_stable(outcome.limit)


def test_calm_join_needs_free_place(outcomes: Outcomes, outcome: Outcome) -> None:
    """After the storm, a join succeeds only if a place is free, as at the broker with its own limit."""
    itself = outcomes[ITSELF, LARGE].calm
    assert itself == [f"{FULL}, and let in"] * 3 + [f"static {FULL}, and let in"]
    assert outcome.calm == itself[: len(outcome.calm)]
    assert len(outcome.calm) >= 3  # 1.1.1 has no static members.
