"""What is told of the fleet pipeline's figures; nothing is measured here."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.fleet import Row, cells, judgement, marginal, stream_lines
from benchmarks.fleet_cost import Cost, bytes_below, cost
from benchmarks.fleet_plan import Cluster, Measured, need, plan_lines
from benchmarks.fleet_stream import Kept
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


def test_what_a_record_costs_leaves_out_what_a_start_costs() -> None:
    found = marginal([row(1, 70.0, None), row(2, 120.0, None), row(5, 270.0, None)])
    assert found.intake == pytest.approx(30e-6)
    assert found.answer == pytest.approx(20e-6)
    assert found.start_cpu_seconds == pytest.approx(20.0)
    assert (found.bytes_per_record, found.stored_bytes_per_record, found.compressed) == (300.0, 15.0, 0.1)


def test_a_row_has_rates_per_core_and_its_cost_in_that_of_the_first() -> None:
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


def test_pandas_without_memory_leaves_its_cells_empty() -> None:
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
        ([row(1, 70, 10.0), row(50, 2_500, None)], "From 50 M on it was not tried: there is not memory enough."),
        ([row(1, 5, 10.0), row(2, 120, 20.0)], "Per core pandas with pyarrow is ahead at 2 M records, the most"),
        ([row(1, 70, 10.0), row(2, 120, 20.0)], "At 2 M records pandas held 1,000 bytes a record"),
    ],
)
def test_who_is_ahead_is_said_as_it_is(rows: list[Row], said: str) -> None:
    assert said in judgement(rows)


def test_what_is_needed_follows_from_the_interval() -> None:
    cluster = Cluster(sidecars=100, groups=10_000, commits=9, partitions=20_000)
    assert cluster.restated == 120_100
    slow, fast = (need(MEASURED, cluster, seconds) for seconds in (60, 10))
    assert slow.records == pytest.approx(120_100 / 60)
    assert slow.day_bytes == pytest.approx(120_100 * 1440 * 300)
    assert slow.stored_bytes == pytest.approx(120_100 * 1440 * 15)
    assert slow.cores == [3, 1, 1]
    assert fast.cores == [16, 3, 2]
    assert fast.partitions == 2
    assert slow.segment_bytes == pytest.approx(120_100 / 60 * 300 * 300 / 100)


def test_the_plan_shows_what_it_stands_on() -> None:
    text = "\n".join(plan_lines(MEASURED))
    assert "30 us" in text
    assert "1,301,000 records a restatement" in text
    assert "288,000 a day" in text
    assert "| 60 s | 21,683 | 562 | 56 | 28.1 | 28 | 5 | 3 |" in text


def test_a_stream_is_told_by_what_it_keeps() -> None:
    kept = [Kept(1, 1000, 9.0, 0, 4_000, 1, 80_000_000), Kept(2, 2000, 8.0, 0, 6_000, 2, 81_000_000)]
    lines = stream_lines(kept, Truth(segments=20))
    assert lines[-1] == "| 2 | 2,000 | 8.0 | 0 | 6 | 2 | 81 |"
    assert "300 bytes" in " ".join(lines[0].split())


def test_a_process_costs_what_its_children_cost_too(tmp_path: Path) -> None:
    child = "import time; kept = bytearray(60_000_000)\nwhile time.process_time() < 2.5: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True); print('done')"
    found = cost([sys.executable, "-c", parent], tmp_path / "log")
    assert found.cpu_seconds >= 2
    assert found.peak_bytes > 60_000_000
    assert found.seconds >= 2
    assert (tmp_path / "log").read_text() == "done\n"


def test_a_process_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)status 3.*no such thing"):
        cost([sys.executable, "-c", "print('no such thing'); raise SystemExit(3)"], tmp_path / "log")


def test_bytes_are_those_of_all_files_below(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"123")
    (tmp_path / "c").write_bytes(b"4567")
    assert bytes_below(tmp_path) == 7
    assert bytes_below(tmp_path / "nowhere") == 0
