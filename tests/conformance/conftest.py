"""Fixtures: one broker for all scenarios, the sidecars in front of it, and the table of the differential suite."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.conformance.differential.added_table import added_table_of
from tests.conformance.differential.answers_table import table_of
from tests.conformance.differential.group_states import State
from tests.conformance.fleet_scenario import FleetScenario, run_fleet_scenario
from tests.conformance.routes import Route, Routes
from tests.conformance.sasl_forms_broker import SaslForms, running_sasl_forms
from tests.kafka.broker import KafkaBroker
from tests.kafka.sidecar_process import SidecarProcess

settings.register_profile("conformance", deadline=None, print_blob=True, max_examples=1000)
"""The profile of ``make conformance``, which has more time than a usual run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--table``. The option exists only if this folder is named on the command line."""
    parser.addoption("--table", type=Path, help="the file to write the conformance table to")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips the group states that a version of Kafka does not have. The table contains the reason."""
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
    """A broker with plain and SASL listeners, for scenarios that use unique names."""
    with KafkaBroker(tmp_path_factory.mktemp("broker"), sasl=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker with small limits: one member in a classic group, ten members in a consumer group."""
    limits = {"group.max.size": "1", "group.consumer.max.size": "10"}
    with KafkaBroker(tmp_path_factory.mktemp("strict-broker"), properties=limits) as broker:
        broker.wait_for_coordinator()
        yield broker


@pytest.fixture(scope="session")
def routes(
    broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Routes]:
    """The routes to the broker's plain listeners: direct, and through a sidecar."""
    direct = Route("direct", broker.direct, broker.sasl_direct)
    if request.config.getoption("--through") == "direct":
        yield Routes(direct, replace(direct, name="direct again"))
        return
    folder = tmp_path_factory.mktemp("sidecar")
    with SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client):
        yield Routes(direct, Route("sidecar", broker.sidecar, broker.sasl_sidecar))


@pytest.fixture(scope="session")
def sasl_sidecar(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """A sidecar in front of the SASL listener. It has no credentials of its own."""
    folder = tmp_path_factory.mktemp("sasl-sidecar")
    with SidecarProcess(folder, listen=broker.sasl_sidecar, upstream=broker.sasl_client, until="/healthz") as sidecar:
        yield sidecar


@pytest.fixture
def sasl_routes(routes: Routes, request: pytest.FixtureRequest) -> Routes:
    """The routes to the broker's plain listeners, and those to its SASL listeners."""
    if request.config.getoption("--through") == "sidecar":
        request.getfixturevalue("sasl_sidecar")
    return routes


@pytest.fixture(scope="session")
def sasl_forms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslForms]:
    """A broker with every SASL mechanism except GSSAPI, and a sidecar that answers for it."""
    with running_sasl_forms(tmp_path_factory.mktemp("sasl-forms")) as running:
        yield running


@pytest.fixture(scope="session")
def fleet_story(tmp_path_factory: pytest.TempPathFactory) -> FleetScenario:
    """The journals of three sidecars of a cluster. All processes have ended before the journals are read."""
    return run_fleet_scenario(tmp_path_factory.mktemp("fleet"))
