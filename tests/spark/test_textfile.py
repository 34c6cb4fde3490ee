"""The file for Prometheus, parsed as Prometheus parses it."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from group_sidecar.spark import line_sources
from group_sidecar.spark.ingest import IngestResult, ingest
from group_sidecar.spark.progress import StreamHealth
from group_sidecar.spark.store import Store
from group_sidecar.spark.textfile import NAMES, PREFIX, Textfile, newest_window
from tests.spark.record_frames import RecordsOfBoot, at
from tests.spark.segment_files import NOW, line, seal

Series = dict[tuple[str, tuple[str, ...]], float]


def series(file: Path) -> Series:
    """Returns all samples by name without the prefix, and by label values."""
    found: Series = {}
    for family in text_string_to_metric_families(file.read_text()):
        assert family.documentation
        assert family.type in ("gauge", "counter")
        for sample in family.samples:
            assert sample.name.startswith(PREFIX)
            found[(sample.name.removeprefix(PREFIX), tuple(sample.labels.values()))] = sample.value
    return found


@pytest.fixture(scope="module")
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, IngestResult]:
    """Three groups in the window from 3:10 on, a sidecar that has been silent since, and a sidecar with a gap."""
    folder = tmp_path_factory.mktemp("textfile")
    a, silent = RecordsOfBoot("a"), RecordsOfBoot("silent")
    start = 3 * 3600 + 600
    early = [silent.heartbeat(60), a.heartbeat(60)]
    a.skip(2)
    now = [a.heartbeat(start + 1)]
    for name, state, members, lag in (("x", "Stable", 2, 5), ("y", "Stable", 3, 9), ('z"\\', "Empty", 0, 1)):
        now += [
            a.group(start + 1, name, 1, state=state, members=members),
            a.commit(start + 2, name, name, 0, 0),
            a.log_end(start + 2, name, 0, lag),
        ]
    now += [a.commit(start + 2, "blind", "unseen", 0, 1)]
    now += [a.rebalance(start + 3, "x", "join", 1.0, cause="new_member") for _ in range(2)]
    now += [a.refusal(start + 3, "x", "group_max_size", 77)]
    # The next window is not complete yet.
    now += [a.group(start + 301, "x", 2, members=7), a.heartbeat(start + 301)]
    seal(folder / "in", "all", [*map(line, [*early, *now]), "{"])
    store = Store(spark, str(folder / "store"))
    return store, ingest(store, line_sources.files(spark, str(folder / "in")), 0, at(start + 600))


HEALTH = StreamHealth(
    batch=4,
    batches=2,
    input_rows=30,
    total_rows=50,
    seconds={"triggerExecution": 1.5},
    source_backlog={"maxOffsetsBehindLatest": 6.0},
    last_progress=1234.5,
)


def test_figures_of_newest_whole_window(fleet: tuple[Store, IngestResult], tmp_path: Path) -> None:
    """The text file contains the figures of the newest complete window and the health of the job."""
    store, refreshed = fleet
    start = 3 * 3600 + 600
    textfile = Textfile(tmp_path / "fleet.prom", store, worst=2, clock=lambda: at(start + 600))
    textfile.count(refreshed)
    textfile.write(HEALTH)
    found = series(tmp_path / "fleet.prom")
    assert found == {
        ("groups", ("Stable",)): 2,
        ("groups", ("Empty",)): 1,
        ("members", ()): 5,
        ("lag", ()): 15,
        ("group_lag", ("y",)): 9,
        ("group_lag", ("x",)): 5,
        ("rebalances", ("new_member",)): 2,
        ("refusals", ("group_max_size",)): 1,
        ("sidecars", ("live",)): 1,
        ("sidecars", ("silent",)): 1,
        ("records_missing", ()): 2,
        ("window_start_timestamp_seconds", ()): at(start).timestamp(),
        ("records_total", ()): 18,
        ("quarantined_lines_total", ("not_json_object",)): 1,
        ("up", ()): 1,
        ("last_progress_timestamp_seconds", ()): 1234.5,
        ("batch", ()): 4,
        ("batch_seconds", ()): 1.5,
        ("batch_lines", ()): 30,
        ("source_behind", ("maxOffsetsBehindLatest",)): 6,
    }
    assert {name for name, _ in found} == NAMES
    assert [file.name for file in tmp_path.iterdir()] == ["fleet.prom"]


def test_window_is_whole_after_its_length(fleet: tuple[Store, IngestResult]) -> None:
    """A window counts as complete when its length has passed again after its end."""
    store, _ = fleet
    start = 3 * 3600 + 600
    assert newest_window(store, at(start + 899)) == at(start)
    assert newest_window(store, at(start + 900)) == at(start + 300)
    assert newest_window(store, at(60)) is None


def test_file_is_written_on_news(spark: SparkSession, tmp_path: Path) -> None:
    """The text file is written only when there are new figures or a failure."""
    file = tmp_path / "fleet.prom"
    textfile = Textfile(file, Store(spark, str(tmp_path / "store")), clock=lambda: NOW)
    textfile.count(IngestResult(records=0, quarantined={}, hours=()))
    textfile.write(StreamHealth())
    assert series(file) == {("up", ()): 1, ("records_total", ()): 0}
    file.unlink()
    textfile.write(StreamHealth())
    assert not file.exists()
    textfile.write(StreamHealth(failure="it broke"))
    assert series(file)[("up", ())] == 0
