"""The naming rules, checked for all exposed metrics."""

import subprocess
import sys
from pathlib import Path

import pytest

from group_sidecar.metrics.families import FAMILIES
from group_sidecar.metrics.metric_family import Detail, Family, MetricType
from tests.metrics.metrics_world import MetricsWorld, Outlet, full_world

FORBIDDEN_LABELS = {
    *("client", "client_id", "client_host", "host", "member", "member_id", "instance_id"),
    *("cluster", "broker", "service", "env", "job", "instance", "type"),
}
NOT_BASE_UNITS = ("milliseconds", "ms", "minutes", "hours", "kilobytes", "megabytes", "percent")
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@every_family
def test_name_suffix_matches_type(family: Family) -> None:
    """Only counters end in _total and only info metrics end in _info. No name ends in a reserved suffix."""
    assert family.name.endswith("_total") == (family.kind is MetricType.COUNTER)
    assert family.name.endswith("_info") == (family.kind is MetricType.INFO)
    assert not family.name.endswith(("_count", "_sum", "_bucket", "_created"))


@every_family
def test_units_are_base_units(family: Family) -> None:
    """Metric names use base units. Timestamps and histograms end in seconds."""
    assert not set(family.name.split("_")) & set(NOT_BASE_UNITS)
    assert ("timestamp" in family.name) == family.name.endswith("_timestamp_seconds")
    if family.kind is MetricType.HISTOGRAM:
        assert family.name.endswith("_seconds")


@every_family
def test_labels(family: Family) -> None:
    """No family has forbidden or duplicate labels."""
    assert not set(family.labels) & FORBIDDEN_LABELS
    assert "_by_" not in family.name
    assert len(set(family.labels)) == len(family.labels)


@every_family
def test_only_details_have_group_labels(family: Family) -> None:
    """Only detail families have group, topic or partition labels, at the matching level."""
    level = {label for label in ("group", "topic", "partition") if label in family.labels}
    assert bool(level) == (family.detail is not Detail.NONE)
    if "partition" in level:
        assert family.detail is Detail.PARTITION
    elif "topic" in level:
        assert family.detail is Detail.TOPIC


@every_family
def test_help_is_one_sentence(family: Family) -> None:
    """The help text of each family is one sentence on one line."""
    assert family.help.endswith(".")
    assert ". " not in family.help
    assert "\n" not in family.help


def test_names_are_unique_in_openmetrics() -> None:
    """Family names are unique even without the suffixes that OpenMetrics removes."""
    names = [family.name.removesuffix("_total").removesuffix("_info") for family in FAMILIES]
    assert len(set(names)) == len(names)


def test_exposed_families_match_declarations() -> None:
    """The exposed families have exactly the declared names, types, help texts and labels."""
    exposed = {metric.name: metric for metric in full_world().openmetrics_families()}
    ours = {name: metric for name, metric in exposed.items() if not name.startswith(("process_", "python_"))}
    named = {family.full_name.removesuffix("_total").removesuffix("_info"): family for family in FAMILIES}
    assert ours.keys() == named.keys()
    for name, metric in ours.items():
        assert metric.samples, name
        assert metric.type == named[name].kind
        assert metric.documentation == named[name].help
        assert {label for sample in metric.samples for label in sample.labels} - {"le"} == set(named[name].labels)


OPEN_SETS = {
    "build_info",
    "certificate_not_after_timestamp_seconds",
    "offsets_log_records_skipped_total",
    "records_last_flush_timestamp_seconds",
}
"""Families with label values that are unknown in advance, or that appear with the first event or certificate."""


def test_known_labels_start_at_zero() -> None:
    """Every family with known label values starts at zero for each of them."""
    world = MetricsWorld(outlets={"folder": Outlet(records_dropped={"full": 0})})
    world.traffic.expect_policy("p", [81])
    world.traffic.expect_broker_rejections("p", 81)
    families = {family.name: family for family in world.openmetrics_families()}
    for family in FAMILIES:
        if family.labels and family.detail is Detail.NONE and family.name not in OPEN_SETS:
            samples = families[family.full_name.removesuffix("_total")].samples
            assert samples, family.name
            assert {sample.value for sample in samples} == {0}, family.name


def test_members_are_not_exposed() -> None:
    """No exposed value identifies a member, client or host."""
    text = full_world().text()
    assert '"orders"' in text
    for secret in ("memberid-", "instanceid-", "clientid-", "10.9.8."):
        assert secret not in text


def test_docs_page_matches_code() -> None:
    """The metrics page equals what the code prints."""
    printed = subprocess.run(
        [sys.executable, "-m", "group_sidecar.metrics"], capture_output=True, text=True, check=True
    )
    assert DOCS.read_text() == printed.stdout
