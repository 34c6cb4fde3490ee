"""Batches with every kind of damage, in any order and interrupted, give the same result as one batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark import line_sources, recompute
from group_sidecar.spark.ingest import ingest, replay
from group_sidecar.spark.store import Store
from group_sidecar.spark.tables import TABLES
from tests.spark.record_frames import at, by_key, select_columns
from tests.spark.segment_files import HOUR, NOW, all_rows, folders, segments_in_order, tell

DAY = 24 * HOUR
FEW = ("groups", "lag", "rebalances", "sidecars")


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All segments, each in its own folder."""
    folder = tmp_path_factory.mktemp("journals")
    for name in segments_in_order():
        tell(folder / name, [name])
    return folder


@pytest.fixture(scope="module")
def whole(spark: SparkSession, journals: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The store after one batch of all segments."""
    store = Store(spark, str(tmp_path_factory.mktemp("whole")))
    refreshed = ingest(store, line_sources.files(spark, str(journals)), 0, NOW)
    assert refreshed.records == 22
    assert refreshed.quarantined == {"not_json_object": 2, "unknown_version": 1, "in_future": 1}
    assert refreshed.hours == (at(-400 * DAY), at(0), at(HOUR))
    return store


@pytest.fixture
def few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits the job to some tables, to save time. All tables are written in the same way."""
    monkeypatch.setattr(recompute, "TABLES", {name: TABLES[name] for name in FEW})


class Killed(BaseException):
    """Raised where the job is killed."""


@contextmanager
def killed_at(table: str) -> Iterator[None]:
    """Kills the job before it writes this table."""
    replace = Store.replace

    def kill(self: Store, name: str, answer: DataFrame, hours: object) -> None:
        if name == table:
            raise Killed
        replace(self, name, answer, hours)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "replace", kill)
        yield


def test_tables_match_journal_records(whole: Store) -> None:
    """The tables of one batch contain the groups, lags and sidecars that the records report."""
    groups = by_key(whole.read("groups"), "window", "group")
    assert select_columns(groups, "sidecar", "generation", "members") == {
        (at(0), "orders"): ("a", 1, 1),
        (at(300), "orders"): ("b", 2, 3),
        (at(HOUR), "orders"): ("b", 3, 2),
    }
    lags = by_key(whole.read("lag"), "window", "topic", "partition")
    assert select_columns(lags, "lag") == {(at(0), "t", 0): (3,), (at(HOUR), "t", 0): (20,)}
    # A clock that is ahead moves only the records of its own sidecar into another window.
    beats = by_key(whole.read("sidecars", at(0), at(HOUR)), "window", "sidecar", "boot")
    assert select_columns(beats, "records") == {
        (at(0), "a", "1"): (3,),
        (at(0), "b", "1"): (2,),
        (at(0), "fast", "1"): (1,),
        (at(300), "b", "1"): (3,),
    }


@pytest.mark.usefixtures("few_tables")
def test_batches_equal_single_batch(spark: SparkSession, journals: Path, whole: Store, tmp_path: Path) -> None:
    """Several batches, one of which is killed and repeated, produce the same tables as one batch."""
    store = Store(spark, str(tmp_path))
    for batch, name in enumerate(("late", "begin")):
        ingest(store, line_sources.files(spark, str(journals / name)), batch, NOW)
    # The job is killed during the third batch, and started again.
    with killed_at("rebalances"), pytest.raises(Killed):
        ingest(store, line_sources.files(spark, str(journals / "second")), 2, NOW)
    store = Store(spark, str(tmp_path))
    again = ingest(store, line_sources.files(spark, str(journals / "second")), 2, NOW)
    assert again.hours == (at(HOUR),)
    last = ingest(store, line_sources.files(spark, str(journals / "again")), 3, NOW)
    assert last.hours == (at(-400 * DAY), at(0))
    assert all_rows(store, FEW) == all_rows(whole, FEW)


@pytest.mark.usefixtures("few_tables")
def test_replay_rebuilds_hours(spark: SparkSession, journals: Path, whole: Store, tmp_path: Path) -> None:
    """A replay of journals rebuilds the tables of lost and incomplete hours."""
    store = Store(spark, str(tmp_path))
    tell(tmp_path / "some", ["begin"])
    ingest(store, line_sources.files(spark, str(tmp_path / "some")), 0, NOW)
    # That hour has records but no tables. The next hour is lost completely.
    for folder in folders(tmp_path, "*/day=2025-01-31/hour=0"):
        if not folder.startswith("records"):
            store._folders.remove(folder)
    replayed = replay(store, line_sources.files(spark, str(journals)), at(0), at(2 * HOUR), NOW)
    assert replayed.hours == (at(0), at(HOUR))
    assert (replayed.records, replayed.quarantined) == (21, {})
    for name in FEW:
        found, expected = store.read(name, at(0)), whole.read(name, at(0))
        assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect())), name
    assert store.read("quarantine").count() == 0
    assert [batch.rsplit("=", 1)[1].split("-")[0] for batch in folders(tmp_path, "records/*/hour=1/*")] == ["replay"]
