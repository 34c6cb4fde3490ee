"""A real Prometheus runs every query. It scrapes a real sidecar of a real broker with real groups."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.conformance.routes import Route, Run
from tests.deploy.dashboards import choices, queries
from tests.deploy.life import GROUP, MOST_MEMBERS, TOPIC, life
from tests.deploy.prometheus import Prometheus
from tests.deploy.promql import interpolated, metric_names
from tests.deploy.test_rules import ALERTS, RECORDS
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import free_addresses, host_port
from tests.kafka.sidecar_process import SidecarProcess

PREFIX = "shop"
SECONDS = 300
"""The maximum seconds until every query has data: a few scrapes, and some evaluations of rules that use other rules."""

SETTINGS = {
    "policies": {"group_max_size": {"limit": MOST_MEMBERS}},
    "answers": {"exclusive": True, "verify": 1},
    "metrics": {"detail": "partition"},
}

WITHOUT_DATA = {
    "group_sidecar_decode_failures_total": "it shows what is over 0, and nothing fails to decode",
    "group_sidecar_mirror_fallbacks_total": "it shows what is over 0, and may be past",
    "group_sidecar_offset_commit_failures_total": "it shows what is over 0, and no commit fails",
    "group_sidecar_offsets_log_records_skipped_total": "this Kafka writes no record that is not known",
}
"""Metrics whose queries may return nothing in a run without faults, and why."""

FLEET = "group_sidecar_fleet_"
"""The prefix of the fleet job's metrics. This run has no fleet job."""

_CHOSEN = '{instance=~"$instance", topic=~"$topic"}'
KAFKA_EXPORTER_OVERVIEW = (
    f"sum(rate(kafka_topic_partition_current_offset{_CHOSEN}[1m])) by (topic)",
    f"sum(kafka_consumergroup_lag{_CHOSEN}) by (consumergroup, topic)",
    f"sum(delta(kafka_topic_partition_current_offset{_CHOSEN}[5m])/5) by (topic)",
    f"sum(delta(kafka_consumergroup_current_offset{_CHOSEN}[5m])/5) by (consumergroup, topic)",
    f"sum by(topic) (kafka_topic_partitions{_CHOSEN})",
)
"""The queries of the panels of Grafana's dashboard 7589."""


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """A sidecar with a journal, beside a broker with a full group of consumers."""
    folder = tmp_path_factory.mktemp("live")
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(folder / "broker"))
        journal = {"folder": str(folder / "journal"), "interval_seconds": 1}
        settings = {**SETTINGS, "journal": journal, "listeners": _listeners(broker, folder)}
        beside = SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=settings)
        stack.enter_context(beside)
        stack.enter_context(life(Run(Route("sidecar", broker.sidecar, broker.sasl_sidecar), PREFIX)))
        yield beside


def _listeners(broker: KafkaBroker, folder: Path) -> list[dict[str, Any]]:
    """Returns the clients' listener, and a TLS listener without clients for the metrics of its certificate."""
    plain = {"name": "CLIENT", "listen": host_port(broker.sidecar), "upstream": host_port(broker.client)}
    [address] = free_addresses(1)
    certificate = Authority(folder / "ca").issue("127.0.0.1").settings
    secure = {"name": "SECURE", "listen": host_port(address), "upstream": plain["upstream"], "tls": certificate}
    return [plain, secure]


@pytest.fixture(scope="module")
def prometheus(sidecar: SidecarProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the sidecar."""
    with Prometheus(tmp_path_factory.mktemp("prometheus"), [sidecar.admin], {"cluster": "here"}) as prometheus:
        yield prometheus


@pytest.fixture
def ask(sidecar: SidecarProcess) -> Callable[[str], str]:
    """Returns a function that replaces Grafana's variables by real values."""
    values = {
        "cluster": "here",
        "job": "group-sidecar",
        "instance": host_port(sidecar.admin),
        "group": f"{PREFIX}-{GROUP}",
        "topic": f"{PREFIX}-{TOPIC}",
        "__rate_interval": "15s",
        "__interval": "15s",
        "__range": "1m",
    }
    return lambda expression: interpolated(expression, values)


def _without_data(prometheus: Prometheus, expressions: dict[str, str]) -> dict[str, str]:
    """Returns the expressions, by place, that return nothing within SECONDS. Raises QueryFailed."""
    left = dict(expressions)

    def nothing_left() -> bool:
        for place, expression in list(left.items()):
            if prometheus.query(expression):
                del left[place]
        return not left

    prometheus.wait_for(nothing_left, SECONDS)
    return left


def test_every_panel_query_returns_data(prometheus: Prometheus, ask: Callable[[str], str]) -> None:
    """Each panel's query returns data in a live setup, except those that need a fault."""
    asked = {f"{place} {number}": ask(text) for number, (place, text) in enumerate(queries())}
    excused = {place: text for place, text in asked.items() if metric_names(text) & WITHOUT_DATA.keys()}

    assert {name for text in excused.values() for name in metric_names(text)} >= WITHOUT_DATA.keys()
    assert _without_data(prometheus, {place: text for place, text in asked.items() if place not in excused}) == {}
    for text in excused.values():
        prometheus.query(text)


def test_every_variable_has_values(prometheus: Prometheus, ask: Callable[[str], str]) -> None:
    """Each dashboard variable has values in a live setup."""
    asked = {place: (ask(selector), label) for place, selector, label in choices()}
    assert _without_data(prometheus, {place: selector for place, (selector, _) in asked.items()}) == {}

    for place, (selector, label) in asked.items():
        assert prometheus.values(label, selector), place


def test_every_recording_rule_records(prometheus: Prometheus) -> None:
    """Each recording rule produces a series in a live setup."""
    names = {rule["record"]: rule["record"] for rule in RECORDS}

    assert _without_data(prometheus, names) == {}


def test_every_alert_is_evaluated(prometheus: Prometheus) -> None:
    """Each alert is evaluated without errors on series that exist in a live setup."""
    named = {name for alert in ALERTS for name in metric_names(alert["expr"])} - WITHOUT_DATA.keys()
    names = {name for name in named if not name.startswith(FLEET)}

    assert _without_data(prometheus, {name: name for name in names}) == {}
    for alert in ALERTS:
        prometheus.query(alert["expr"])
    assert [rule["lastError"] for rule in prometheus.rules() if rule["health"] == "err"] == []


def test_only_justified_alert_fires(prometheus: Prometheus) -> None:
    """Only the alert on rejections fires when a consumer exceeds the limit. The alert on a full group is pending."""

    def states() -> dict[str, str]:
        return {rule["name"]: rule["state"] for rule in prometheus.rules() if rule["type"] == "alerting"}

    def settled() -> bool:
        now = states()
        return now["ConsumerGroupMaxSizeRejections"] == "firing" and now["ConsumerGroupNearMaxSize"] == "pending"

    assert prometheus.wait_for(settled, SECONDS), states()
    assert [name for name, state in states().items() if state == "firing"] == ["ConsumerGroupMaxSizeRejections"]


def test_kafka_exporter_dashboard_has_data(prometheus: Prometheus) -> None:
    """The queries of the kafka_exporter dashboard return data from the recording rules."""
    selector = 'kafka_consumergroup_current_offset{job="group-sidecar"}'
    assert _without_data(prometheus, {selector: selector}) == {}
    [instance] = prometheus.values("instance", selector)
    values = {"instance": instance, "topic": f"{PREFIX}-{TOPIC}"}
    asked = {text: interpolated(text, values) for text in KAFKA_EXPORTER_OVERVIEW}

    assert _without_data(prometheus, asked) == {}
    [partitions] = prometheus.query(f'kafka_topic_partitions{{topic="{PREFIX}-{TOPIC}"}}')
    assert partitions["value"][1] == "4"
