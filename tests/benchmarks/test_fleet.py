"""The texts and tables about the fleet pipeline's figures. The tests measure nothing."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.fleet import Row, cells, comparison_text, marginal, stream_lines
from benchmarks.fleet_cost import Cost, bytes_below, cost
from benchmarks.fleet_plan import Cluster, Measured, need, plan_lines
from benchmarks.fleet_stream import StreamFootprint
from benchmarks.fleet_truth import Truth

MEASURED = Measured(
    intake=30e-6,
    answer=20e-6,
    start_cpu_seconds=20.0,
    bytes_per_record=300.0,
    stored_bytes_per_record=15.0,
    compressed=0.1,
    files_an_hour=12,
    peak_bytes=10**9,
    cores=2,
)


def row(millions: int, cpu_seconds: float, pandas_seconds: float | None) -> Row:
    truth = Truth(lines=millions * 1_000_000, bytes=millions * 300_000_000, kinds=Counter(commit=millions * 1_000_000))
    pandas = None if pandas_seconds is None else Cost(pandas_seconds, pandas_seconds, 2_000_000_000)
    spark = Cost(cpu_seconds / 2, cpu_seconds, 1_500_000_000)
    late = Cost(cpu_seconds / 4, 20 + (cpu_seconds - 20) * 0.4, 1_500_000_000)
    alone = None if pandas is None or millions > 2 else Cost(pandas.seconds * 4, pandas.cpu_seconds * 4, 2_000_000_000)
    return Row(f"{millions} M", truth, millions * 15_000_000, 0.1, 12.0, spark, late, pandas, alone, [])


def test_record_cost_excludes_start() -> None:
    """The marginal cost of a record excludes the cost of a start."""
    found = marginal([row(1, 70.0, None), row(2, 120.0, None), row(5, 270.0, None)])
    assert found.intake == pytest.approx(30e-6)
    assert found.answer == pytest.approx(20e-6)
    assert found.start_cpu_seconds == pytest.approx(20.0)
    assert (found.bytes_per_record, found.stored_bytes_per_record, found.compressed) == (300.0, 15.0, 0.1)


def test_row_has_rates_and_relative_cost() -> None:
    """A row contains rates per core and its cost relative to the first row."""
    first, second = row(1, 70.0, 10.0), row(2, 120.0, 25.0)
    assert cells(second, first) == [
        "2 M",
        "600",
        "30",
        "60",
        "30",
        "16,667",
        "1,500",
        "80,000",
        "2,000",
        "0.21",
        "20,000",
        "0.83",
        "0.86",
    ]
    assert cells(first, first)[-1] == "1.00"


def test_missing_pandas_leaves_cells_empty() -> None:
    """A row that pandas had no memory for has empty pandas cells."""
    assert cells(row(50, 2_500.0, None), row(1, 70.0, 10.0))[7:12] == ["-"] * 5


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [row(1, 70, 10.0), row(2, 120, 130.0), row(5, 200, 400.0)],
            "ahead of pandas with pyarrow from 2 M records on.",
        ),
        ([row(1, 70, 10.0), row(2, 120, 20.0)], "Per core pandas with pyarrow is ahead at 2 M records, the most"),
        ([row(1, 70, 10.0), row(2, 70, 20.0)], "Per core Spark is ahead of pandas alone from 2 M records on."),
        ([row(1, 70, 10.0), row(2, 90, 20.0)], "Per core pandas alone is ahead at 2 M records, the most"),
        (
            [row(1, 70, 10.0), row(50, 2_500, None)],
            "pandas was not run from 50 M on, because there is too little memory.",
        ),
        ([row(1, 5, 10.0), row(2, 120, 20.0)], "Per core pandas with pyarrow is ahead at 2 M records, the most"),
        ([row(1, 70, 10.0), row(2, 120, 20.0)], "At 2 M records pandas held 1,000 bytes per record"),
    ],
)
def test_comparison_names_faster_tool(rows: list[Row], said: str) -> None:
    """The comparison text names the tool that is ahead, and the size from which this holds."""
    assert said in comparison_text(rows)


def test_needs_follow_interval() -> None:
    """The needed cores, bytes and partitions follow from the cluster's size and the interval."""
    cluster = Cluster(sidecars=100, groups=10_000, commits=9, partitions=20_000)
    assert cluster.snapshot_records == 120_100
    slow, fast = (need(MEASURED, cluster, seconds) for seconds in (60, 10))
    assert slow.records == pytest.approx(120_100 / 60)
    assert slow.day_bytes == pytest.approx(120_100 * 1440 * 300)
    assert slow.stored_bytes == pytest.approx(120_100 * 1440 * 15)
    assert slow.cores == [3, 1, 1]
    assert fast.cores == [16, 3, 2]
    assert fast.partitions == 2
    assert slow.segment_bytes == pytest.approx(120_100 / 60 * 300 * 300 / 100)


def test_plan_shows_its_assumptions() -> None:
    """The plan contains the costs, record counts and intervals on which it is based."""
    text = "\n".join(plan_lines(MEASURED))
    assert "30 us" in text
    assert "1,301,000 records per snapshot" in text
    assert "288,000 segments a day" in text
    assert "| 60 s | 21,683 | 562 | 56 | 28.1 | 28 | 5 | 3 |" in text


def test_stream_lines_show_footprint() -> None:
    """The stream table shows the records, files and bytes that a stream keeps."""
    kept = [
        StreamFootprint(1, 1000, 9.0, 0, 4_000, 1, 80_000_000),
        StreamFootprint(2, 2000, 8.0, 0, 6_000, 2, 81_000_000),
    ]
    lines = stream_lines(kept, Truth(segments=20))
    assert lines[-1] == "| 2 | 2,000 | 8.0 | 0 | 6 | 2 | 81 |"
    assert "300 bytes" in " ".join(lines[0].split())


def test_process_cost_includes_children(tmp_path: Path) -> None:
    """The cost of a process includes the CPU time and memory of its children."""
    child = "import time; kept = bytearray(60_000_000)\nwhile time.process_time() < 2.5: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True); print('done')"
    found = cost([sys.executable, "-c", parent], tmp_path / "log")
    assert found.cpu_seconds >= 2
    assert found.peak_bytes > 60_000_000
    assert found.seconds >= 2
    assert (tmp_path / "log").read_text() == "done\n"


def test_failed_process_reports_output(tmp_path: Path) -> None:
    """A failed process raises an error with its status and last output."""
    with pytest.raises(RuntimeError, match=r"(?s)status 3.*no such thing"):
        cost([sys.executable, "-c", "print('no such thing'); raise SystemExit(3)"], tmp_path / "log")


def test_bytes_below_sums_all_files(tmp_path: Path) -> None:
    """bytes_below sums the sizes of all files in a folder, and is 0 for a missing folder."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"123")
    (tmp_path / "c").write_bytes(b"4567")
    assert bytes_below(tmp_path) == 7
    assert bytes_below(tmp_path / "nowhere") == 0
