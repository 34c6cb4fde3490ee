"""Tables of results: the contents of each column, also without a figure."""

import psutil

from benchmarks.markdown_tables import cpu_table, memory_table, ratio_table, sidecar_table, target_table
from benchmarks.rounds import Results, Row, Sample
from benchmarks.targets import DIRECT, SIDECAR, Target

SEEN = psutil.Process()
TARGETS = [
    Target(DIRECT, ("", 0), SEEN, "Kafka 4.3.1", "defaults"),
    Target(SIDECAR, ("", 0), SEEN, "0.1.0", "as in production"),
    Target("HAProxy", ("", 0), SEEN, "2.6", "TCP mode"),
    Target("unseen", ("", 0), None, "as named", "as its owner started it"),
]
RATE = Row("produce", "MB/s", lambda at: 0.0, 0.2, "GB")
TIME = Row("OffsetFetch", "p50 us", lambda at: 0.0, 0.1, "10,000", more_is_better=False)


def results() -> Results:
    found = Results([RATE, TIME], TARGETS)
    found.samples = {
        ("produce", DIRECT): [Sample(400, 0.5), Sample(500, 0.5)],
        ("produce", SIDECAR): [Sample(360, 0.1), Sample(400, 0.1)],
        ("produce", "HAProxy"): [Sample(300, 0.04), Sample(400, 0.06)],
        ("produce", "unseen"): [Sample(200, 0), Sample(250, 0)],
        ("OffsetFetch", DIRECT): [Sample(1200, 0), Sample(1300, 0)],
        ("OffsetFetch", SIDECAR): [Sample(300, 0), Sample(325, 0)],
        ("OffsetFetch", "HAProxy"): [Sample(1500, 0), Sample(1300, 0)],
    }
    found.failed = {("OffsetFetch", "unseen"): "a reply of 20 bytes"}
    found.resident = {DIRECT: 800_000_000, SIDECAR: 61_000_000, "HAProxy": 20_400_000}
    return found


def test_ratios_follow_direct_figure() -> None:
    """The ratio table contains the direct figure and the ratios of the other targets."""
    assert ratio_table(results()) == [
        "| measure | direct | sidecar | HAProxy | unseen |",
        "|---|---:|---:|---:|---:|",
        "| produce, MB/s | 450 | 0.80 **0.85** 0.90 | 0.75 **0.78** 0.80 | 0.50 **0.50** 0.50 |",
        "| OffsetFetch, p50 us | 1,250 | 0.25 **0.25** 0.25 | 1.00 **1.12** 1.25 | - |",
        "\nunseen, OffsetFetch: a reply of 20 bytes.",
    ]


def test_sidecar_ratio_above_one_is_better() -> None:
    """In the sidecar table, a ratio above 1 means that the sidecar is better, for rates and for times."""
    assert sidecar_table(results()) == [
        "| measure | HAProxy | unseen |",
        "|---|---:|---:|",
        "| produce, MB/s | 1.00 **1.10** 1.20 | 1.60 **1.70** 1.80 |",
        "| OffsetFetch, p50 us | 4.00 **4.50** 5.00 | - |",
    ]


def test_cpu_and_memory_need_visible_process() -> None:
    """The CPU and memory tables contain only targets whose process is visible."""
    assert cpu_table(results())[:3] == [
        "| CPU s | direct | sidecar | HAProxy |",
        "|---|---:|---:|---:|",
        "| produce, per GB | 2.50 | 0.50 | 0.25 |",
    ]
    assert memory_table(results(), {DIRECT: 30.26, SIDECAR: 3.1, "HAProxy": 3.3}, 1_000)[2:] == [
        "| kB per idle connection, 1,000 held | 30.3 | 3.1 | 3.3 |",
        "| resident MB under load | 800 | 61 | 20 |",
    ]


def test_targets_have_version_and_settings() -> None:
    """The target table contains the version and the settings of each target."""
    assert "| HAProxy | 2.6 | TCP mode |" in target_table(TARGETS)
