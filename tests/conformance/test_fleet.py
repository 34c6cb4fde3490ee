"""The fleet job's results for three sidecars of a cluster equal the output of Kafka's tools at the same moment.

One of the sidecars writes array lines.
"""

import shutil
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from group_sidecar.metrics.array_lines import records_of
from group_sidecar.metrics.journal_segments import SEALED_SEGMENTS
from group_sidecar.metrics.records import ARRAY_VERSION, VERSION, Record, Timestamp, timestamp
from group_sidecar.spark.ingest import ingest
from group_sidecar.spark.line_sources import files
from group_sidecar.spark.store import Store
from tests.conformance.fleet_answers import (
    Rows,
    answer,
    events_of_kind,
    groups,
    kafkas_groups,
    offsets,
    rebalances,
    sidecars_rebalances,
)
from tests.conformance.fleet_cluster import CROWDED, CROWDED_LIMIT, NODES, REFUSALS, REFUSED, sidecar_id
from tests.conformance.fleet_scenario import LOST, RESTARTED, STICKY, FleetMoment, FleetScenario
from tests.spark.conftest import spark
from tests.spark.segment_files import all_rows

__all__ = ["spark"]  # pytest finds the imported fixtures.

pytestmark = pytest.mark.timeout(900)
"""The timeout in seconds. The first test waits for the cluster, for the whole scenario, and for Spark."""

MOMENTS = ("quiet", "damaged")
Answers = dict[str, dict[str, Rows]]


@pytest.fixture(scope="module")
def answers(spark: SparkSession, fleet_story: FleetScenario, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The summaries by moment and name. The second moment is a second batch that repeats the first one."""
    store = Store(spark, str(tmp_path_factory.mktemp("fleet") / "tables"))
    asked = {
        "quiet": ("groups", "lag", "rebalances", "refusals", "churn", "sidecars", "quarantine"),
        "damaged": ("groups", "lag", "sidecars"),
    }
    found: Answers = {}
    for batch, (moment, names) in enumerate(asked.items()):
        ingest(store, files(spark, str(of(fleet_story, moment).journals)), batch)
        found[moment] = {name: answer(store.read, name) for name in names}
    return found


def of(story: FleetScenario, moment: str) -> FleetMoment:
    return {"quiet": story.quiet, "damaged": story.damaged}[moment]


def records(folder: Path) -> list[Record]:
    """Returns all records in sealed segments, unordered."""
    return [record for path in folder.rglob(SEALED_SEGMENTS) for record in records_of_segment(path)]


def records_of_segment(path: Path) -> list[Record]:
    return [record for line in path.read_bytes().splitlines() for record in records_of(line)]


@pytest.mark.parametrize("moment", MOMENTS)
def test_offsets_match_kafka(fleet_story: FleetScenario, answers: Answers, moment: str) -> None:
    """The fleet job's committed offsets equal Kafka's at each moment."""
    assert offsets(answers[moment]["lag"]) == of(fleet_story, moment).kafka.offsets


@pytest.mark.parametrize("moment", MOMENTS)
def test_groups_match_kafka(fleet_story: FleetScenario, answers: Answers, moment: str) -> None:
    """The fleet job's groups equal Kafka's at each moment."""
    assert groups(answers[moment]["groups"]) == kafkas_groups(of(fleet_story, moment))


def test_cluster_covers_moved_groups(fleet_story: FleetScenario) -> None:
    """Every broker of the test cluster coordinates groups, the lost broker's groups have moved, and one moved group has
    lost a member.
    """
    before = {state.coordinator for state in fleet_story.quiet.kafka.states.values()}
    after = {state.coordinator for state in fleet_story.damaged.kafka.states.values()}
    assert (before, after) == (set(range(1, NODES + 1)), before - {LOST})
    assert fleet_story.damaged.kafka.states[f"fleet-{STICKY}"].members == 1


def test_rebalances_match_timelines(fleet_story: FleetScenario, answers: Answers) -> None:
    """The fleet job's rebalances and causes equal those of the sidecars' timelines."""
    expected = sidecars_rebalances(fleet_story)
    assert rebalances(answers["quiet"]["rebalances"]) == expected
    assert {"new_member", "member_left", "partitions_revoked"} <= {cause for _, cause in expected}
    rebalances_of = {row["group"]: row["rebalances"] for row in answers["quiet"]["groups"] if row["rebalances"]}
    assert rebalances_of == Counter(group for group, _ in events_of_kind(fleet_story, "rebalance_completed"))


def test_refusals_are_counted(answers: Answers) -> None:
    """The fleet job counts refusals by group, policy and client, and knows the group's limit."""
    [refused] = answers["quiet"]["refusals"]
    named = {"group": f"fleet-{CROWDED}", "policy": "group_max_size", "error_code": REFUSED}
    assert {name: refused[name] for name in (*named, "refusals", "clients")} == {
        **named,
        "refusals": REFUSALS,
        "clients": 1,
    }
    limits = {row["group"]: row["max_size"] for row in answers["quiet"]["groups"] if row["max_size"] is not None}
    assert limits == {f"fleet-{CROWDED}": CROWDED_LIMIT}


def test_joins_and_departures_are_counted(fleet_story: FleetScenario, answers: Answers) -> None:
    """The fleet job's counts of joins and departures equal those of the sidecars' timelines."""
    moves = Counter((group, "joined") for group, _ in events_of_kind(fleet_story, "member_joined"))
    moves.update((group, cell["how"]) for group, cell in events_of_kind(fleet_story, "member_gone"))
    assert {(row["group"], row["change"]): row["members"] for row in answers["quiet"]["churn"]} == moves


def test_valid_lines_are_not_quarantined(answers: Answers) -> None:
    """No line that a sidecar writes is put into quarantine."""
    assert answers["quiet"]["quarantine"] == []


def test_killed_sidecar_loses_no_line(fleet_story: FleetScenario, answers: Answers) -> None:
    """A killed sidecar loses no complete line and has a second boot."""
    folder = fleet_story.damaged.journals / str(RESTARTED)
    sealed = {line for path in folder.glob(SEALED_SEGMENTS) for line in path.read_bytes().splitlines(keepends=True)}
    assert set(fleet_story.unsealed) <= sealed
    boots = {row["sidecar"]: (row["boots"], row["missing"]) for row in answers["damaged"]["sidecars"]}
    assert boots == {sidecar_id(node): (1 + (node == RESTARTED), 0) for node in range(1, NODES + 1)}


@pytest.mark.parametrize("moment", MOMENTS)
def test_each_record_exists_once(fleet_story: FleetScenario, answers: Answers, moment: str) -> None:
    """Each journal record exists once, and the fleet job counts all records."""
    envelopes = [record.envelope for record in records(of(fleet_story, moment).journals)]
    names = Counter((each.sidecar, each.boot, each.seq) for each in envelopes)
    assert set(names.values()) == {1}
    counted = {row["sidecar"]: row["records"] for row in answers[moment]["sidecars"]}
    assert counted == Counter(sidecar for sidecar, _, _ in names)


def test_lost_sidecar_is_silent(fleet_story: FleetScenario, answers: Answers) -> None:
    """The fleet job reports the time since each sidecar's last record, and that of the lost sidecar is the longest."""
    last: dict[str, Timestamp] = {}
    for record in records(fleet_story.damaged.journals):
        sidecar = record.envelope.sidecar
        last[sidecar] = max(record.emitted_at, last.get(sidecar, record.emitted_at))
    rows = {row["sidecar"]: row for row in answers["damaged"]["sidecars"]}
    assert {sidecar: timestamp(row["last_record"].timestamp()) for sidecar, row in rows.items()} == last
    silence = {sidecar: seconds(max(last.values())) - seconds(at) for sidecar, at in last.items()}
    assert {name: row["silent_seconds"] for name, row in rows.items()} == pytest.approx(silence, abs=0.02)
    assert max(silence, key=silence.__getitem__) == sidecar_id(LOST)


def test_topic_gives_the_same_answers(spark: SparkSession, fleet_story: FleetScenario, answers: Answers) -> None:
    """The fleet job gives the same answers from a journal topic as from journal files."""
    read = Store.opened(spark, str(fleet_story.from_topic)).read
    assert offsets(answer(read, "lag")) == fleet_story.quiet.kafka.offsets
    assert groups(answer(read, "groups")) == kafkas_groups(fleet_story.quiet)
    assert rebalances(answer(read, "rebalances")) == sidecars_rebalances(fleet_story)
    assert {row["sidecar"]: (row["boots"], row["missing"]) for row in answer(read, "sidecars")} == {
        sidecar_id(node): (1, 0) for node in range(1, NODES + 1)
    }
    assert answer(read, "quarantine") == []


def test_versions_give_the_same_tables(spark: SparkSession, fleet_story: FleetScenario, tmp_path: Path) -> None:
    """All tables are the same if each record of the array lines is on a line of its own."""
    single, stores = tmp_path / "single", (Store(spark, str(tmp_path / name)) for name in ("arrays", "singles"))
    in_arrays = 0
    for path in fleet_story.damaged.journals.rglob(SEALED_SEGMENTS):
        found = records_of_segment(path)
        in_arrays += sum(record.envelope.version == ARRAY_VERSION for record in found)
        copy = single / path.relative_to(fleet_story.damaged.journals)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(b"".join(as_single(record).to_line() for record in found))
        shutil.copystat(path, copy)
    assert in_arrays > 1000
    rows = []
    for store, journals in zip(stores, (fleet_story.damaged.journals, single), strict=True):
        ingest(store, files(spark, str(journals)), 0)
        assert store.read("quarantine").count() == 0
        rows.append(all_rows(store))
    assert rows[0] == rows[1]


def as_single(record: Record) -> Record:
    """Returns the record in the form of version 1 of the contract."""
    return replace(record, envelope=replace(record.envelope, version=VERSION))


def test_sidecar_writes_to_own_brokers_partition(fleet_story: FleetScenario) -> None:
    """Each sidecar writes to a partition that its own broker leads."""
    assert fleet_story.writers == {node: {sidecar_id(node)} for node in range(1, NODES + 1)}


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
