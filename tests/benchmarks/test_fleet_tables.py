"""The tables that pandas computes of a fleet are true, and the comparisons find differences."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from benchmarks.fleet_check import KEYS, differences, different, wrong
from benchmarks.fleet_pandas import Judged, by_pandas, run
from benchmarks.fleet_records import write
from benchmarks.fleet_shape import Fleet, Shape
from benchmarks.fleet_truth import Truth

FLEET = Fleet(
    begin=1_735_689_600,
    sidecars=5,
    groups=30,
    topics=8,
    partitions=40,
    commits=90,
    interval_seconds=60,
    facts=6,
    moves=0.2,
    damage=0.2,
)


class Answered(NamedTuple):
    """A fleet, and the tables that pandas computed, in the folders to which Spark would write them."""

    truth: Truth
    judged: Judged
    answers: Path
    store: Path


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Answered:
    folder = tmp_path_factory.mktemp("fleet")
    truth = write(folder / "segments", FLEET, processes=1)
    judged = run(folder / "segments", folder / "answers")
    for name in KEYS:
        put(folder / "store", name, pd.read_parquet(folder / "answers" / f"{name}.parquet"))
    put(folder / "store", "quarantine", pd.DataFrame({"fault": list(Counter(judged.faults).elements())}))
    return Answered(truth, judged, folder / "answers", folder / "store")


def put(store: Path, name: str, rows: pd.DataFrame) -> None:
    place = store / name / "day=2025-01-01" / "hour=0"
    place.mkdir(parents=True, exist_ok=True)
    rows.to_parquet(place / "part.parquet", index=False)


def test_pandas_counts_each_record_once(answered: Answered) -> None:
    """pandas takes each record once and rejects the damaged lines."""
    assert len(answered.judged.records) == answered.truth.records
    assert answered.judged.faults == answered.truth.faults


def test_pandas_reader_matches_pyarrow(answered: Answered, tmp_path: Path) -> None:
    """The pandas reader produces the same records, faults and tables as the default reader."""
    judged = run(answered.answers.parent / "segments", tmp_path, by_pandas)
    assert len(judged.records) == answered.truth.records
    assert judged.faults == answered.truth.faults
    assert differences(answered.store, tmp_path) == []


def test_pandas_answers_are_true(answered: Answered) -> None:
    """The tables that pandas computes match the truth."""
    assert wrong(answered.store, Shape(FLEET), answered.truth) == []


def test_row_order_makes_no_difference(answered: Answered, tmp_path: Path) -> None:
    """Tables with the same rows in another order count as equal."""
    for name in (*KEYS, "quarantine"):
        rows = pd.read_parquet(answered.store / name).drop(columns=["day", "hour"])
        put(tmp_path, name, rows.sample(frac=1, random_state=1))
    assert differences(tmp_path, answered.answers) == []


@pytest.mark.parametrize(
    ("name", "column", "complaint"),
    [
        ("lag", "committed", "lag of 2025"),
        ("lag", "log_end", "lag of 2025"),
        ("groups", "sidecars", "groups of 2025"),
        ("rebalances", "rebalances", "rebalances"),
        ("rebalances", "lost_consumer_seconds", "lost_consumer_seconds"),
        ("refusals", "refusals", "refusals"),
        ("audits", "audits", "audits"),
        ("churn", "members", "churn"),
        ("sidecars", "records", "boots"),
    ],
)
def test_false_figure_is_detected(answered: Answered, tmp_path: Path, name: str, column: str, complaint: str) -> None:
    """A false figure in a table is found by the check against the truth and by the comparison."""
    for each in (*KEYS, "quarantine"):
        rows = pd.read_parquet(answered.store / each).drop(columns=["day", "hour"])
        if each == name:
            rows.loc[rows.index[7], column] += 1
        put(tmp_path, each, rows)
    assert any(found.startswith(complaint) for found in wrong(tmp_path, Shape(FLEET), answered.truth))
    assert any(found.startswith(f"{name}.{column}: 1 rows") for found in differences(tmp_path, answered.answers))


def test_missing_quarantine_line_is_detected(answered: Answered) -> None:
    """A line that is missing from the quarantine is found."""
    other = replace(answered.truth, faults=answered.truth.faults + Counter(gossip=1))
    assert wrong(answered.store, Shape(FLEET), other) == ["quarantine"]


@pytest.mark.parametrize(
    ("theirs", "complaint"),
    [
        ({"group": ["b", "a"], "lag": [None, 1.0]}, None),
        ({"group": ["a", "b"], "lag": [1.0, 0.0]}, "t.lag: 1 rows"),
        ({"group": ["a", "c"], "lag": [1.0, None]}, "t.group: 1 rows"),
        ({"group": ["a"], "lag": [1.0]}, "t: 2 rows"),
        ({"group": ["a", "b"], "log": [1.0, None]}, "t: 2 rows"),
    ],
)
def test_differing_rows_are_reported(theirs: dict[str, Any], complaint: str | None) -> None:
    """The comparison reports differing rows, columns and counts, and ignores row order."""
    ours = pd.DataFrame({"group": ["a", "b"], "lag": [1.0, None]})
    found = [
        each.partition(",")[0].partition(" of")[0] for each in different("t", ours, pd.DataFrame(theirs), ["group"])
    ]
    assert found == ([] if complaint is None else [complaint])
