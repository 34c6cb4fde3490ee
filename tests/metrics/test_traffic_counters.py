"""The counters of the data path, and their exposition."""

from collections.abc import Callable

import pytest

from group_sidecar.codecs.api_registry import APIS, api_name
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.metrics.traffic_counters import (
    REQUEST_SECONDS,
    Histogram,
    TrafficCounters,
    Verification,
)
from tests.metrics.metrics_world import MetricsWorld

JOIN_GROUP, DESCRIBE_GROUPS, PRODUCE = 11, 15, 0


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.0, 0), (1.0, 0), (1.001, 1), (2.0, 1), (2.001, 2), (float("inf"), 2), (-1.0, 0)]
)
def test_bucket_includes_upper_bound(value: float, bucket: int) -> None:
    """A histogram bucket includes its upper bound."""
    histogram = Histogram((1.0, 2.0))
    histogram.observe(value)
    assert [number for number, count in enumerate(histogram.counts) if count] == [bucket]


def test_histogram_is_cumulative() -> None:
    """A histogram returns cumulative counts and the sum."""
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 0.5, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.cumulative() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert histogram.sum == 11.5


def moved(series: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Returns the series that are not 0."""
    return {labels: value for labels, value in series.items() if value}


def test_requests_by_api() -> None:
    """Requests are counted by API with and without a reply, and durations only with a reply."""
    world = MetricsWorld()
    world.traffic.request_done(JOIN_GROUP, 0.2)
    world.traffic.request_done(JOIN_GROUP, 31.0)
    world.traffic.request_unanswered(PRODUCE)
    assert moved(world.series("requests_total")) == {("JoinGroup",): 2, ("Produce",): 1}
    assert moved(world.series("request_duration_seconds_count")) == {("JoinGroup",): 2}
    assert world.value("request_duration_seconds_sum", api="JoinGroup") == pytest.approx(31.2)
    assert world.value("request_duration_seconds_bucket", api="JoinGroup", le="0.1") == 0
    assert world.value("request_duration_seconds_bucket", api="JoinGroup", le="0.5") == 1
    assert world.value("request_duration_seconds_bucket", api="JoinGroup", le="300.0") == 2
    assert len(world.series("request_duration_seconds_bucket")) == len(APIS) * (len(REQUEST_SECONDS) + 1)


def test_requests_start_at_zero() -> None:
    """Request metrics of every decoded API start at zero."""
    world = MetricsWorld()
    names = {(api_name(key),) for key in APIS}
    assert world.series("requests_total") == world.series("request_duration_seconds_count") == dict.fromkeys(names, 0)


def test_unknown_api_keys_share_one_row() -> None:
    """Unknown API keys are counted in one row."""
    world = MetricsWorld()
    for key in (-1, 95, 4711, 32767):
        world.traffic.request_done(key, 0.1)
        world.traffic.request_unanswered(key)
        world.traffic.decode_failed(key)
    assert moved(world.series("requests_total")) == {("unknown",): 8}
    assert moved(world.series("request_duration_seconds_count")) == {("unknown",): 4}
    assert world.value("decode_failures_total", api="unknown") == 4
    assert len(world.traffic.durations) == len(world.traffic.decode_failures) == len(world.traffic.unanswered) == 1


def test_connections_open_and_closed() -> None:
    """Connection metrics report open connections, and closed connections by reason."""
    world = MetricsWorld()
    for _ in range(3):
        world.counters.connection_opened()
    world.counters.connection_closed(CloseReason.BAD_FRAME_LENGTH)
    assert world.value("client_connections", listener="clients") == 2
    assert world.value("client_connections_opened_total", listener="clients") == 3
    closed = world.series("client_connections_closed_total")
    assert closed.pop(("clients", "bad_frame_length")) == 1
    assert closed == {("clients", reason): 0 for reason in CloseReason if reason != CloseReason.BAD_FRAME_LENGTH}


def test_bytes_and_failed_connects() -> None:
    """Metrics report received, sent and held bytes, failed upstream connects and TLS connections."""
    world = MetricsWorld(held_bytes=lambda: 12)
    world.counters.received_bytes += 100
    world.counters.sent_bytes += 250
    world.counters.upstream_connect_failures += 1
    assert world.value("received_bytes_total", listener="clients") == 100
    assert world.value("sent_bytes_total", listener="clients") == 250
    assert world.value("upstream_connect_failures_total", listener="clients") == 1
    world.counters.tls_passed += 3
    assert world.value("tls_connections_total", listener="clients") == 3
    assert world.value("held_bytes") == 12


def test_answers_and_fallbacks_start_at_zero() -> None:
    """Metrics of local answers and fallbacks start at zero and count by API and reason."""
    world = MetricsWorld()
    apis = ("ListGroups", "DescribeGroups", "OffsetFetch", "ConsumerGroupDescribe")
    assert world.series("mirror_answers_total") == {(api,): 0 for api in apis}
    assert len(world.series("mirror_fallbacks_total")) == len(apis) * len(FallbackReason)
    world.traffic.answered(DESCRIBE_GROUPS)
    world.traffic.fell_back(DESCRIBE_GROUPS, FallbackReason.COLD)
    world.traffic.fell_back(DESCRIBE_GROUPS, FallbackReason.COLD)
    assert world.value("mirror_answers_total", api="DescribeGroups") == 1
    assert world.value("mirror_fallbacks_total", api="DescribeGroups", reason="cold") == 2
    assert sum(world.series("mirror_fallbacks_total").values()) == 2


def test_reply_cache_counters() -> None:
    """Metrics report the answers from the reply cache and its bytes."""
    world = MetricsWorld()
    assert set(world.series("mirror_answers_remembered_total").values()) == {0}
    world.traffic.answered_from_cache(DESCRIBE_GROUPS)
    world.traffic.reply_cache_bytes += 500
    assert world.value("mirror_answers_remembered_total", api="DescribeGroups") == 1
    assert sum(world.series("mirror_answers_remembered_total").values()) == 1
    assert world.value("remembered_bytes") == 500


def test_verifications_start_at_zero() -> None:
    """Verification metrics start at zero and count by API and result."""
    world = MetricsWorld()
    assert set(world.series("mirror_verifications_total").values()) == {0}
    assert {result for _, result in world.series("mirror_verifications_total")} == set(Verification)
    world.traffic.verified(DESCRIBE_GROUPS, Verification.DIFFERENT)
    world.traffic.distrusted_groups += 2
    assert world.value("mirror_verifications_total", api="DescribeGroups", result="different") == 1
    assert sum(world.series("mirror_verifications_total").values()) == 1
    assert world.value("mirror_distrusted_groups") == 2


def test_divergence_is_different_answer() -> None:
    """Only a verification with a different result counts as a divergence."""
    world = MetricsWorld()
    assert set(world.series("mirror_divergences_total").values()) == {0}
    for outcome in Verification:
        world.traffic.verified(DESCRIBE_GROUPS, outcome)
    assert moved(world.series("mirror_divergences_total")) == {("DescribeGroups",): 1}


def test_decode_failures_start_at_zero() -> None:
    """Decode failures of every decoded API start at zero."""
    world = MetricsWorld()
    world.traffic.decode_failed(JOIN_GROUP)
    failures = world.series("decode_failures_total")
    assert failures.pop(("JoinGroup",)) == 1
    assert failures
    assert set(failures.values()) == {0}


def test_policy_counters() -> None:
    """Policy metrics count evaluations, and rejections by error, with unknown errors as other."""
    world = MetricsWorld()
    world.traffic.expect_policy("group_max_size", [77, 81])
    assert world.series("policy_evaluations_total") == {("group_max_size",): 0}
    world.traffic.policy_evaluated("group_max_size")
    world.traffic.policy_rejected("group_max_size", 81)
    world.traffic.policy_rejected("group_max_size", 12345)
    world.traffic.policy_rejected("group_max_size", 12346)
    assert world.series("policy_evaluations_total") == {("group_max_size",): 1}
    rejections = {
        (sample.labels["policy"], sample.labels["error"]): sample.value
        for sample in world.samples("policy_rejections_total")
    }
    assert rejections == {
        ("group_max_size", "GROUP_MAX_SIZE_REACHED_KIP_389"): 0,
        ("group_max_size", "GROUP_MAX_SIZE_REACHED"): 1,
        ("group_max_size", "other"): 2,
    }


ERROR = "GROUP_MAX_SIZE_REACHED"


@pytest.mark.parametrize(
    ("family", "count"),
    [
        ("policy_rejections_total", TrafficCounters.policy_rejected),
        ("policy_audited_rejections_total", TrafficCounters.policy_audited),
        ("policy_broker_rejections_total", TrafficCounters.broker_rejected),
    ],
)
def test_rejection_kinds_count_separately(family: str, count: Callable[[TrafficCounters, str, int], None]) -> None:
    """Enforced, audited and broker rejections have separate metrics."""
    world = MetricsWorld()
    world.traffic.expect_policy("p", [81])
    world.traffic.expect_broker_rejections("p", 81)
    count(world.traffic, "p", 81)
    families = ("policy_rejections_total", "policy_audited_rejections_total", "policy_broker_rejections_total")
    assert {name: world.value(name, policy="p", error=ERROR) for name in families} == {
        **dict.fromkeys(families, 0),
        family: 1,
    }


def test_policy_confirmations() -> None:
    """policy_confirmations_total starts at zero and counts confirmations."""
    world = MetricsWorld()
    world.traffic.expect_policy("p", [81])
    assert world.series("policy_confirmations_total") == {("p",): 0}
    world.traffic.policy_confirmed("p")
    assert world.series("policy_confirmations_total") == {("p",): 1}


def test_repeated_expectation_keeps_counts() -> None:
    """Expecting a policy again keeps its counts."""
    world = MetricsWorld()
    traffic = world.traffic
    traffic.policy_evaluated("p")
    traffic.policy_confirmed("p")
    for count in (traffic.policy_rejected, traffic.policy_audited, traffic.broker_rejected):
        count("p", 81)
    before = world.text_of("policy_")
    traffic.expect_policy("p", [81])
    traffic.expect_broker_rejections("p", 81)
    assert world.text_of("policy_") == before
    assert before
