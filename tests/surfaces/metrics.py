"""The surface of the metrics: every family, and every label value that is known at the start."""

import http.client
import json
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import trio
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from group_sidecar.metrics.families import FAMILIES
from group_sidecar.metrics.log_read_counters import LogReadCounters
from group_sidecar.proxy.config.loading import load_config
from group_sidecar.proxy.sidecar_process import run_sidecar
from tests.metrics.metrics_world import full_world
from tests.surfaces.texts import as_json, empty_folder, environment

GIVE_UP_SECONDS = 30
SETTINGS: dict[str, Any] = {
    "listen": "127.0.0.1:0",
    "upstream": "127.0.0.1:1",
    "admin": "127.0.0.1:0",
    "policies": {"group_max_size": {"limit": 5, "error_code": 77}, "offset_metadata_max_bytes": {"limit": 10}},
    "journal": {"folder": "records", "topic": "records", "interval_seconds": 0.1, "segment_seconds": 0.1},
    "log": {"level": "error"},
}
"""The settings of a sidecar without a reachable broker. Every part that has metrics is switched on."""
ANY_VALUE = frozenset({"version"})
"""Labels whose values are not part of the surface."""


def metric_families() -> str:
    """Returns each family's name, type, unit, ordered labels and level of detail, and its samples in a scrape."""
    exposed = {name: samples for metric in full_world().openmetrics_families() for name, samples in _samples(metric)}
    return as_json(
        [
            {
                "name": family.full_name,
                "type": family.kind.value,
                "unit": family.unit,
                "labels": family.labels,
                "detail": family.detail.value,
                "samples": exposed[family.full_name.removesuffix("_total").removesuffix("_info")],
            }
            for family in FAMILIES
        ]
    )


def label_values() -> str:
    """Returns the series that a sidecar exposes at its start, and the figures of its first heartbeat record."""
    with environment({}), capture_logs(), empty_folder() as folder:
        scraped, heartbeat = trio.run(_observed, folder)
    families = list(text_string_to_metric_families(scraped))  # type: ignore[no-untyped-call]
    ours = [each for each in families if each.name.startswith("group_sidecar_")]
    others = sorted(each.name for each in families if each not in ours)
    lines = [line for metric in sorted(ours, key=lambda each: each.name) for line in _series(metric)]
    lines += ["", "# Of the client library", *others]
    lines += ["", "# Figures of a heartbeat record", *sorted(heartbeat)]
    lines += ["", "# Values that only come later", *_later()]
    return "\n".join(lines) + "\n"


def _samples(metric: Metric) -> Iterable[tuple[str, list[str]]]:
    found = {f"{sample.name}{{{','.join(sorted(sample.labels))}}}" for sample in metric.samples}
    yield metric.name, sorted(found)


def _series(metric: Metric) -> list[str]:
    lines = set()
    for sample in metric.samples:
        labels = {name: "<any>" if name in ANY_VALUE else value for name, value in sample.labels.items()}
        lines.add(f"{sample.name}{{{','.join(f'{name}={value}' for name, value in sorted(labels.items()))}}}")
    return sorted(lines)


def _later() -> list[str]:
    """Returns label values of open sets: an API and an error that the project does not name, and unknown key types."""
    world = full_world()
    world.traffic.request_done(9_999, 0.1)
    world.traffic.policy_rejected("group_max_size", 9_999)
    reading: LogReadCounters = world.logs[0]
    reading.count_skipped({-1: 1, 31: 1, 32: 1})
    texts = (
        *(f"requests_total {values}" for values in world.series("requests_total") if "unknown" in values),
        *(f"policy_rejections_total {values}" for values in world.series("policy_rejections_total")),
        *(
            f"offsets_log_records_skipped_total {values}"
            for values in world.series("offsets_log_records_skipped_total")
        ),
    )
    return sorted(texts)


async def _observed(folder: Path) -> tuple[str, dict[str, float]]:
    """Runs a sidecar. Returns its metrics, and the figures of a heartbeat."""
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(run_sidecar, load_config(flags=SETTINGS))
        heartbeat = await trio.to_thread.run_sync(_heartbeat, folder)
        scraped = await trio.to_thread.run_sync(_scraped_after_flush, addresses.admin.port)
        nursery.cancel_scope.cancel()
    return scraped, heartbeat


def _scraped_after_flush(port: int) -> str:
    """Scrapes until the journal has been flushed once, because the last series appears only then."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while "records_last_flush_timestamp_seconds{" not in (text := _scraped(port)):
        assert time.monotonic() < deadline, "the journal was not flushed"
        time.sleep(0.02)
    return text


def _scraped(port: int) -> str:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=GIVE_UP_SECONDS)) as connection:
        connection.request("GET", "/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"})
        return connection.getresponse().read().decode()


def _heartbeat(folder: Path) -> dict[str, float]:
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < deadline:
        for segment in (folder / "records").rglob("*.jsonl"):
            for line in segment.read_text("utf-8").splitlines():
                record = json.loads(line)
                if record["kind"] == "heartbeat":
                    sample: dict[str, float] = record["sample"]
                    return sample
        time.sleep(0.02)
    raise TimeoutError("no heartbeat was written")
