"""The fleet job reads journals with every kind of damage. Its results for the undamaged records are unaffected."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark.ingest import IngestResult, ingest
from group_sidecar.spark.line_sources import files
from group_sidecar.spark.store import Store
from tests.conformance.fleet_answers import (
    Rows,
    answer,
    groups,
    kafkas_groups,
    offsets,
    rebalances,
    sidecars_rebalances,
)
from tests.conformance.fleet_cluster import CROWDED, NODES, REFUSALS, sidecar_id
from tests.conformance.fleet_damage import FALSE_SIDECAR, Damage, damaged
from tests.conformance.fleet_scenario import FleetScenario
from tests.spark.conftest import spark

__all__ = ["spark"]  # pytest finds the imported fixtures.

pytestmark = pytest.mark.timeout(900)
"""The timeout in seconds. The first test waits for the cluster, for the whole scenario, and for Spark."""


@dataclass(frozen=True)
class Run:
    """The results of the job."""

    damage: Damage
    refreshed: IngestResult
    store: Store

    def rows(self, name: str) -> Rows:
        """Returns the rows of a summary, without rows about the false sidecar."""
        return [
            row for row in answer(self.store.read, name) if FALSE_SIDECAR not in (row.get("group"), row.get("sidecar"))
        ]


@pytest.fixture(scope="module")
def run(spark: SparkSession, fleet_story: FleetScenario, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs the job over the damaged copies of the journals. No member joined or left while they were copied."""
    folder = tmp_path_factory.mktemp("damage")
    damage = damaged(fleet_story.quiet.journals, folder / "journals")
    store = Store(spark, str(folder / "tables"), retention=timedelta(days=30))
    return Run(damage, ingest(store, files(spark, str(damage.folder)), 0), store)


def test_lag_matches_kafka(fleet_story: FleetScenario, run: Run) -> None:
    """With damaged journals, the fleet job's offsets equal Kafka's."""
    assert offsets(run.rows("lag")) == fleet_story.quiet.kafka.offsets


def test_groups_match_kafka(fleet_story: FleetScenario, run: Run) -> None:
    """With damaged journals, the fleet job's groups equal Kafka's."""
    assert groups(run.rows("groups")) == kafkas_groups(fleet_story.quiet)


def test_events_are_counted_once(fleet_story: FleetScenario, run: Run) -> None:
    """With damaged journals, the fleet job counts each rebalance and refusal once."""
    assert rebalances(run.rows("rebalances")) == sidecars_rebalances(fleet_story)
    assert [(row["group"], row["refusals"]) for row in run.rows("refusals")] == [(f"fleet-{CROWDED}", REFUSALS)]


def test_damaged_lines_are_quarantined(run: Run) -> None:
    """Each damaged line is in quarantine with its reason."""
    found = [(row["fault"], row["line"]) for row in run.store.read("quarantine").collect()]
    assert Counter(fault for fault, _ in found) == run.damage.faults
    assert set(run.damage.lines) <= {line for _, line in found}
    assert run.refreshed.quarantined == run.damage.faults


def test_only_lost_records_are_missing(run: Run) -> None:
    """The fleet job reports exactly the lost records as missing."""
    missing = {row["sidecar"]: (row["boots"], row["missing"]) for row in run.rows("sidecars")}
    assert missing == {sidecar_id(node): (1, run.damage.missing[sidecar_id(node)]) for node in range(1, NODES + 1)}
