"""The formats: negotiated, parsed back by Prometheus' own parsers, checked by promtool."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from group_sidecar.coordinator.views import Snapshot
from group_sidecar.metrics.collector import exposition
from group_sidecar.metrics.families import Detail
from tests.metrics.world import OPENMETRICS, World, commits, full_world, group

PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.2"
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("text/html", "text/plain; version=0.0.4"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0"),
        (PROMETHEUS_ACCEPT, "application/openmetrics-text; version=1.0.0"),
        ("application/openmetrics-text;version=banana", "text/plain; version=0.0.4"),
        ("text/plain;version=x.y", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, content_type: str) -> None:
    body, answered = exposition(accept, full_world().registry)
    assert answered.startswith(content_type)
    assert body.endswith(b"# EOF\n") == content_type.startswith("application/openmetrics")


def test_both_formats_say_the_same() -> None:
    world = full_world()
    plain = {(sample.name, *sorted(sample.labels.items())) for family in world.families() for sample in family.samples}
    openmetrics = {
        (sample.name, *sorted(sample.labels.items()))
        for family in world.openmetrics_families()
        for sample in family.samples
    }
    assert plain == openmetrics


def test_openmetrics_knows_types_and_units() -> None:
    families = {family.name: family for family in full_world().openmetrics_families()}
    assert families["group_sidecar_group"].type == "info"
    assert families["group_sidecar_received_bytes"].type == "counter"
    assert families["group_sidecar_received_bytes"].unit == "bytes"
    assert families["group_sidecar_request_duration_seconds"].type == "histogram"
    assert families["group_sidecar_request_duration_seconds"].unit == "seconds"
    assert families["group_sidecar_group_lag"].type == "gauge"


@pytest.mark.parametrize("openmetrics", [False, True])
def test_no_series_has_a_timestamp_or_a_creation_time(openmetrics: bool) -> None:
    world = full_world()
    families = world.openmetrics_families() if openmetrics else world.families()
    samples = [sample for family in families for sample in family.samples]
    assert samples
    assert all(sample.timestamp is None for sample in samples)
    assert not [sample.name for sample in samples if sample.name.endswith("_created")]


def test_no_series_occurs_twice() -> None:
    seen = Counter(line.rpartition(" ")[0] for line in full_world().text().splitlines() if not line.startswith("#"))
    assert [series for series, count in seen.items() if count > 1] == []


@settings(max_examples=40, deadline=None)
@given(group_id=names, topic=names)
def test_any_name_of_a_group_or_topic_survives_both_formats(group_id: str, topic: str) -> None:
    world = World(
        Snapshot(groups=(group(group_id, offsets=commits(topic, 3)),), log_ends={(topic, 0): (4, 1.0)}),
        detail=Detail.PARTITION,
    )
    wanted = {"group": group_id, "topic": topic, "partition": "0"}
    for families in (world.families(), world.openmetrics_families()):
        found = [sample for family in families for sample in family.samples if sample.name.endswith("_partition_lag")]
        assert [(sample.labels, sample.value) for sample in found] == [(wanted, 1)]


if shutil.which("promtool") or os.environ.get("CI") == "true":

    @pytest.mark.parametrize("make_world", [World, full_world])
    def test_promtool_finds_nothing_to_say(make_world: Callable[[], World]) -> None:
        promtool = shutil.which("promtool")
        assert promtool, "promtool is not on PATH; the Debian package prometheus has it"
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=make_world().text().encode(), capture_output=True
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
