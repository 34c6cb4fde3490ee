"""The rules of naming, held against everything that is really exposed."""

import subprocess
import sys
from pathlib import Path

import pytest

from group_sidecar.metrics.families import FAMILIES, Detail, Family, Kind
from tests.metrics.world import full_world

FORBIDDEN_LABELS = {
    *("client", "client_id", "client_host", "host", "member", "member_id", "instance_id"),
    *("cluster", "broker", "service", "env", "job", "instance", "type"),
}
NOT_BASE_UNITS = ("milliseconds", "ms", "minutes", "hours", "kilobytes", "megabytes", "percent")
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@every_family
def test_counters_and_nothing_else_end_in_total(family: Family) -> None:
    assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
    assert family.name.endswith("_info") == (family.kind is Kind.INFO)
    assert not family.name.endswith(("_count", "_sum", "_bucket", "_created"))


@every_family
def test_units_are_base_units(family: Family) -> None:
    assert not set(family.name.split("_")) & set(NOT_BASE_UNITS)
    assert ("timestamp" in family.name) == family.name.endswith("_timestamp_seconds")
    if family.kind is Kind.HISTOGRAM:
        assert family.name.endswith("_seconds")


@every_family
def test_labels(family: Family) -> None:
    assert not set(family.labels) & FORBIDDEN_LABELS
    assert "_by_" not in family.name
    assert len(set(family.labels)) == len(family.labels)


@every_family
def test_only_details_name_groups_topics_and_partitions(family: Family) -> None:
    level = {label for label in ("group", "topic", "partition") if label in family.labels}
    assert bool(level) == (family.detail is not Detail.NONE)
    if "partition" in level:
        assert family.detail is Detail.PARTITION
    elif "topic" in level:
        assert family.detail is Detail.TOPIC


@every_family
def test_help_is_one_sentence(family: Family) -> None:
    assert family.help.endswith(".")
    assert ". " not in family.help
    assert "\n" not in family.help


def test_names_are_unique_in_openmetrics_too() -> None:
    names = [family.name.removesuffix("_total").removesuffix("_info") for family in FAMILIES]
    assert len(set(names)) == len(names)


def test_what_is_exposed_is_what_is_named_here() -> None:
    exposed = {metric.name: metric for metric in full_world().registry.collect()}
    ours = {name: metric for name, metric in exposed.items() if not name.startswith(("process_", "python_"))}
    named = {family.full_name.removesuffix("_total").removesuffix("_info"): family for family in FAMILIES}
    assert ours.keys() == named.keys()
    for name, metric in ours.items():
        assert metric.samples, name
        assert metric.type == named[name].kind
        assert metric.documentation == named[name].help
        assert {label for sample in metric.samples for label in sample.labels} - {"le"} == set(named[name].labels)


def test_no_value_tells_who_a_member_is() -> None:
    text = full_world().text()
    assert '"orders"' in text
    for secret in ("memberid-", "instanceid-", "clientid-", "10.9.8."):
        assert secret not in text


def test_the_page_is_what_the_code_says() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "group_sidecar.metrics"], capture_output=True, text=True, check=True
    )
    assert DOCS.read_text() == printed.stdout
