"""One broker for all scenarios, and the sidecars before it; and the table of the differential suite."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.conformance.differential.added_table import added_table_of
from tests.conformance.differential.states import State
from tests.conformance.differential.table import table_of
from tests.conformance.fleet_story import Story, told_in
from tests.conformance.routes import Route, Routes
from tests.kafka.broker import KafkaBroker
from tests.kafka.sidecar import SidecarProcess

settings.register_profile("conformance", deadline=None, print_blob=True, max_examples=1000)
"""For ``make conformance``, which has more time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--table``; it is there where this folder is named on the command line."""
    parser.addoption("--table", type=Path, help="the file to write the conformance table to")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the states of groups that a version of Kafka does not have; the table says why."""
    absent = [item for item in items if _is_absent(item)]
    if absent:
        items[:] = [item for item in items if item not in set(absent)]
        config.hook.pytest_deselected(items=absent)


def _is_absent(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    params: dict[str, Any] = item.callspec.params
    return isinstance(state := params.get("state"), State) and not state.exists(params["stage"])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the tables."""
    place: Path | None = session.config.getoption("--table", default=None)
    if place is not None:
        place.write_text(table_of(session.config).page() + added_table_of(session.config).section())


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker with and without SASL, for scenarios that use names of their own."""
    with KafkaBroker(tmp_path_factory.mktemp("broker"), sasl=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker with limits of its own: one member in a classic group, ten in a consumer group."""
    limits = {"group.max.size": "1", "group.consumer.max.size": "10"}
    with KafkaBroker(tmp_path_factory.mktemp("strict-broker"), properties=limits) as broker:
        broker.wait_for_coordinator()
        yield broker


@pytest.fixture(scope="session")
def routes(
    broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Routes]:
    """To the broker's plain listeners: directly, and through a sidecar."""
    direct = Route("direct", broker.direct, broker.sasl_direct)
    if request.config.getoption("--through") == "direct":
        yield Routes(direct, replace(direct, name="direct again"))
        return
    folder = tmp_path_factory.mktemp("sidecar")
    with SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client):
        yield Routes(direct, Route("sidecar", broker.sidecar, broker.sasl_sidecar))


@pytest.fixture(scope="session")
def sasl_sidecar(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """Before the listener that wants SASL, for which the sidecar has no credentials of its own."""
    folder = tmp_path_factory.mktemp("sasl-sidecar")
    with SidecarProcess(folder, listen=broker.sasl_sidecar, upstream=broker.sasl_client, until="/healthz") as sidecar:
        yield sidecar


@pytest.fixture
def sasl_routes(routes: Routes, request: pytest.FixtureRequest) -> Routes:
    """As `routes`, and to the listeners with SASL too."""
    if request.config.getoption("--through") == "sidecar":
        request.getfixturevalue("sasl_sidecar")
    return routes


@pytest.fixture(scope="session")
def fleet_story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """What three sidecars before a cluster wrote. When it is asked about, nothing of it runs any more."""
    return told_in(tmp_path_factory.mktemp("fleet"))
