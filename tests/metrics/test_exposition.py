"""The formats are negotiated, parsed by Prometheus' own parsers, and checked by promtool."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from group_sidecar.metrics.collector import GroupTotals, process_registry, sidecar_families
from group_sidecar.metrics.exposition import MAX_CACHED_LABEL_VALUES, Escaped, FamilyText, choose_format, encode_family
from group_sidecar.metrics.families import COMMITTED_OFFSET, FAMILIES
from group_sidecar.metrics.group_snapshot import batches
from group_sidecar.metrics.metric_family import Detail, Family, MetricType, Row
from tests.metrics.metrics_world import OPENMETRICS, CoordinatorCopy, MetricsWorld, commits, full_world, group

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
def test_format_follows_accept_header(accept: str, content_type: str) -> None:
    """The exposition format follows the Accept header, and text format is the default."""
    body, answered = full_world().scrape(accept)
    assert answered.startswith(content_type)
    assert body.endswith(b"# EOF\n") == content_type.startswith("application/openmetrics")


def test_formats_have_same_series() -> None:
    """Text format and OpenMetrics expose the same series."""
    world = full_world()
    plain = {(sample.name, *sorted(sample.labels.items())) for family in world.families() for sample in family.samples}
    openmetrics = {
        (sample.name, *sorted(sample.labels.items()))
        for family in world.openmetrics_families()
        for sample in family.samples
    }
    assert plain == openmetrics


def test_openmetrics_types_and_units() -> None:
    """OpenMetrics output has the expected types and units."""
    families = {family.name: family for family in full_world().openmetrics_families()}
    assert families["group_sidecar_group"].type == "info"
    assert families["group_sidecar_received_bytes"].type == "counter"
    assert families["group_sidecar_received_bytes"].unit == "bytes"
    assert families["group_sidecar_request_duration_seconds"].type == "histogram"
    assert families["group_sidecar_request_duration_seconds"].unit == "seconds"
    assert families["group_sidecar_group_lag"].type == "gauge"


@pytest.mark.parametrize("openmetrics", [False, True])
def test_series_have_no_timestamps(openmetrics: bool) -> None:
    """No series has a timestamp or a creation time."""
    world = full_world()
    families = world.openmetrics_families() if openmetrics else world.families()
    samples = [sample for family in families for sample in family.samples]
    assert samples
    assert all(sample.timestamp is None for sample in samples)
    assert not [sample.name for sample in samples if sample.name.endswith("_created")]


def test_series_are_unique() -> None:
    """Each series occurs once in the output."""
    seen = Counter(line.rpartition(" ")[0] for line in full_world().text().splitlines() if not line.startswith("#"))
    assert [series for series, count in seen.items() if count > 1] == []


@settings(max_examples=40, deadline=None)
@given(group_id=names, topic=names)
def test_any_group_or_topic_name_survives(group_id: str, topic: str) -> None:
    """Any group or topic name is parsed back unchanged from both formats."""
    world = MetricsWorld(
        CoordinatorCopy(groups=(group(group_id, offsets=commits(topic, 3)),), log_ends={(topic, 0): (4, 1.0)}),
        detail=Detail.PARTITION,
    )
    wanted = {"group": group_id, "topic": topic, "partition": "0"}
    for families in (world.families(), world.openmetrics_families()):
        found = [sample for family in families for sample in family.samples if sample.name.endswith("_partition_lag")]
        assert [(sample.labels, sample.value) for sample in found] == [(wanted, 1)]


# The project's own lines, compared with those of the library.

labels = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\\\\\n\r"{}=,# '), max_size=12)
values = (
    st.integers(-(2**70), 2**70)
    | st.integers(-1_000_100, 1_000_100)
    | st.floats()
    | st.booleans()
    | st.sampled_from([999_999, 1_000_000, 10**15, 10**16, 0.1, 1e6, 1e-7, 1.5e9])
)
plain_families = [family for family in FAMILIES if family.labels and family.kind is not MetricType.HISTOGRAM]


def rows_of(family: Family) -> st.SearchStrategy[list[Row]]:
    value = st.just(1) if family.kind is MetricType.INFO else values
    return st.lists(st.tuples(st.tuples(*[labels] * len(family.labels)), value), max_size=6)


families_with_rows = st.sampled_from(plain_families).flatmap(lambda family: st.tuples(st.just(family), rows_of(family)))


class Collected:
    """A registry of these families for the encoders of the library."""

    def __init__(self, *families: Metric) -> None:
        self.families = families

    def collect(self) -> Iterable[Metric]:
        return self.families


def encoded(accept: str, *families: Metric) -> bytes:
    """Returns the families as the library encodes them."""
    encode, _ = choose_encoder(accept)
    return encode(Collected(*families))


every_format = pytest.mark.parametrize("accept", ["", OPENMETRICS, PROMETHEUS_ACCEPT])


@every_format
@given(given_rows=families_with_rows, at_once=st.integers(1, 4))
def test_lines_match_prometheus_client(accept: str, given_rows: tuple[Family, list[Row]], at_once: int) -> None:
    """The lines of a family equal those of the Prometheus client library."""
    family, rows = given_rows
    chosen = choose_format(accept)
    text = FamilyText(family, Escaped(), openmetrics=chosen.openmetrics)
    for some in batches(rows, at_once):
        text.add(some, max_lines=len(rows))
    wanted = encoded(accept, family.fill(rows))
    assert b"".join((*text.first(len(rows)), chosen.end)) == wanted
    assert encode_family(family.fill(rows), openmetrics=chosen.openmetrics) + chosen.end == wanted


@every_format
def test_families_match_prometheus_client(accept: str) -> None:
    """All families are written as by the Prometheus client library."""
    world, chosen = full_world(), choose_format(accept)
    families = [
        *sidecar_families(world.sources, GroupTotals()),
        *process_registry().collect(),
        Metric("m", 'a "b"\\\nc', "gauge"),
    ]
    assert {family.type for family in families} == {"counter", "gauge", "histogram", "info"}
    written = b"".join(encode_family(family, openmetrics=chosen.openmetrics) for family in families)
    assert written + chosen.end == encoded(accept, *families)


@given(rows=rows_of(COMMITTED_OFFSET), max_lines=st.integers(0, 8), shown=st.integers(0, 8), at_once=st.integers(1, 4))
def test_text_is_bounded(rows: list[Row], max_lines: int, shown: int, at_once: int) -> None:
    """A family's text holds only as many lines as fit, but the family counts all rows."""
    text = FamilyText(COMMITTED_OFFSET, Escaped(), openmetrics=False)
    for some in batches(rows, at_once):
        text.add(some, max_lines - text.count)
    count = min(shown, max_lines, len(rows))
    assert text.count == len(rows)
    assert b"".join(text.first(count)) == encoded("", COMMITTED_OFFSET.fill(rows[:count]))


def test_thousands_of_lines_are_cut() -> None:
    """A family of thousands of lines is cut exactly after the requested number."""
    rows: list[Row] = [((f"g\n{number}", "t\r", "0"), number) for number in range(3_333)]
    text = FamilyText(COMMITTED_OFFSET, Escaped(), openmetrics=False)
    for some in batches(rows, 7):
        text.add(some, max_lines=len(rows) - text.count)
    for count in (3_333, 3_332, 1_050, 1, 0):
        assert b"".join(text.first(count)) == encoded("", COMMITTED_OFFSET.fill(rows[:count]))


def test_label_cache_is_bounded() -> None:
    """The cache of escaped label values stays within its limit."""
    escaped = Escaped()
    for number in range(MAX_CACHED_LABEL_VALUES * 2 + 5):
        assert escaped[f'"{number}'] == f'\\"{number}'
    assert len(escaped) <= MAX_CACHED_LABEL_VALUES


if shutil.which("promtool") or os.environ.get("CI") == "true":

    @pytest.mark.parametrize("make_world", [MetricsWorld, full_world])
    def test_promtool_accepts_output(make_world: Callable[[], MetricsWorld]) -> None:
        """promtool accepts the output without remarks."""
        promtool = shutil.which("promtool")
        assert promtool, "promtool is not on PATH; the Debian package prometheus has it"
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=make_world().text().encode(), capture_output=True
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
