"""promtool checks the rules. Each alert has its tests and a section in the documentation."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from group_sidecar.metrics.families import FAMILIES
from group_sidecar.metrics.metric_family import PREFIX, MetricType
from group_sidecar.spark import textfile
from tests.deploy.promql import metric_names

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
TESTS = sorted((FOLDER / "tests").glob("*.yml"))
CASES = ["fires", "stays silent", "counter reset", "missing series"]
"""The cases that the tests of each alert contain."""
FOREIGN = {"up"}
"""The metrics of Prometheus itself about a target."""


def _rules(kind: str) -> list[dict[str, Any]]:
    """Returns all rules of this kind, `alert` or `record`."""
    groups = [
        group for file in sorted(FOLDER.glob("*.yml")) for group in yaml.safe_load(file.read_text()).get("groups", [])
    ]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


ALERTS, RECORDS = _rules("alert"), _rules("record")
NAMES = [alert["alert"] for alert in ALERTS]


def promtool(*args: str | Path) -> str:
    """Runs promtool in the rules' folder. Asserts that promtool succeeds. Returns its output."""
    found = shutil.which("promtool")
    assert found, "promtool is not on PATH; the Debian package prometheus has it"
    done = subprocess.run([found, *map(str, args)], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_config_and_rules() -> None:
    """promtool accepts the configuration and all rules."""
    said = promtool("check", "config", "prometheus.yml")

    assert f"SUCCESS: {len(ALERTS)} rules found" in said
    assert f"SUCCESS: {len(RECORDS)} rules found" in said


def test_target_alert_matches_scraped_job() -> None:
    """The alert on targets that are down selects the scraped job."""
    [job] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    [down] = [alert["expr"] for alert in ALERTS if alert["alert"] == "GroupSidecarTargetDown"]

    assert set(re.findall(r'job="([^"]*)"', down)) == {job["job_name"]}


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_promtool_passes(file: Path) -> None:
    """promtool passes the tests of the rules."""
    promtool("test", "rules", file)


def test_each_alert_has_all_test_cases() -> None:
    """Each alert has a test file with all required cases."""
    assert [file.stem for file in TESTS if file.stem != "recording_rules"] == sorted(NAMES)
    for name in NAMES:
        content = yaml.safe_load((FOLDER / "tests" / f"{name}.yml").read_text())
        assert [case for case in CASES if case not in {test["name"] for test in content["tests"]}] == [], name


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_alert_tests_fire_own_alert(alert: dict[str, Any]) -> None:
    """The tests of an alert name only that alert, and it fires only in the cases where it should."""
    content = yaml.safe_load((FOLDER / "tests" / f"{alert['alert']}.yml").read_text())
    tried = {test["name"]: test["alert_rule_test"] for test in content["tests"]}

    assert {each["alertname"] for tests in tried.values() for each in tests} == {alert["alert"]}
    assert any(each["exp_alerts"] for each in tried["fires"])
    assert not any(each["exp_alerts"] for name in ("stays silent", "counter reset") for each in tried[name])


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_alert_has_required_fields(alert: dict[str, Any]) -> None:
    """Each alert has a proper name, a duration or range, a severity and all annotations."""
    assert re.fullmatch(r"(ConsumerGroup|GroupSidecar|FleetPipeline)([A-Z][a-z]+)+", alert["alert"])
    assert "for" in alert or "[" in alert["expr"], "the alert would fire on a single sample"
    assert alert["keep_firing_for"]
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["summary"].endswith(".")


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_runbook_exists(alert: dict[str, Any]) -> None:
    """The runbook link of each alert leads to its own section in docs/operations.md."""
    page, anchor = alert["annotations"]["runbook_url"].split("#")

    assert page == "docs/operations.md"
    assert anchor == alert["alert"].lower()
    assert anchors((ROOT / page).read_text())[anchor] == 1


def anchors(page: str) -> Counter[str]:
    """Returns the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page, flags=re.MULTILINE)
    return Counter(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("rule", [*ALERTS, *RECORDS], ids=lambda rule: rule.get("alert") or rule["record"])
def test_rules_use_existing_series(rule: dict[str, Any]) -> None:
    """Each rule uses only series that exist."""
    assert metric_names(rule["expr"]) <= KNOWN


def test_recorded_names_follow_convention() -> None:
    """Recorded series are unique and named by level, metric and operation, or as in kafka_exporter."""
    names = [rule["record"] for rule in RECORDS]

    assert len(names) == len(set(names))
    for name in names:
        assert re.fullmatch(r"[a-z_]+:group_sidecar_[a-z_]+:[a-z0-9]+|kafka_(consumergroup|topic)_[a-z_]+", name)


def _exposed_names() -> set[str]:
    """Returns the names of all series that a sidecar exposes."""
    names = set()
    for family in FAMILIES:
        if family.kind is MetricType.HISTOGRAM:
            names |= {f"{family.full_name}_{part}" for part in ("bucket", "sum", "count")}
        else:
            names.add(family.full_name)
    assert all(name.startswith(PREFIX) for name in names)
    return names


FLEET = {f"{textfile.PREFIX}{name}" for name in textfile.NAMES}
"""The metrics of the fleet job."""
KNOWN = _exposed_names() | FLEET | FOREIGN | {rule["record"] for rule in RECORDS}
