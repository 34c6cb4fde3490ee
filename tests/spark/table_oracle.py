"""Computes the tables record by record in plain Python, without Spark, as the expected results of tests."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from tests.spark.record_frames import MIDNIGHT, Row

WINDOW = timedelta(minutes=5)
HOUR = timedelta(hours=1)

Answer = dict[tuple[Any, ...], Row]
"""Rows by window and keys."""


def window_of(moment: datetime, width: timedelta = WINDOW) -> datetime:
    return moment - (moment - MIDNIGHT) % width


def _by(records: Iterable[Row], kind: str, *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for record in records:
        if record["kind"] == kind:
            found[window_of(record["emitted_at"]), *(record[key] for key in keys)].append(record)
    return found


def _order(record: Row) -> tuple[Any, ...]:
    return record["observed_at"], record["emitted_at"], record["seq"]


def groups(records: list[Row]) -> Answer:
    words: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for (window, group, _), reports in _by(records, "group", "group", "sidecar").items():
        words[window, group].append(max(reports, key=_order))

    def weight(word: Row) -> tuple[Any, ...]:
        generation = word["generation"]
        return -2 if generation >= 2**31 else generation, word["observed_at"], word["sidecar"]

    columns = ("sidecar", "protocol", "state", "protocol_type", "assignor", "generation", "members", "max_size")
    return {
        key: {name: max(reports, key=weight)[name] for name in (*columns, "observed_at")} | {"sidecars": len(reports)}
        for key, reports in words.items()
    }


def lag(records: list[Row]) -> Answer:
    ends = _by(records, "log_end", "topic", "partition")
    found = {}
    for (window, group, topic, partition), commits in _by(records, "commit", "group", "topic", "partition").items():
        last = max(commits, key=_order)
        row = {"committed": last["offset"], "committed_at": last["observed_at"]}
        seen = ends.get((window, topic, partition), [])
        found[window, group, topic, partition] = row | _behind(last, sorted(seen, key=_order), window)
    return found


def _behind(commit: Row, ends: list[Row], window: datetime) -> Row:
    if not ends:
        return dict.fromkeys(("log_end", "log_end_at", "lag", "lag_seconds", "skew_seconds"))
    end = ends[-1]
    seen, behind = end["observed_at"], max(0, end["offset"] - commit["offset"])
    within = [each for each in ends if each["observed_at"] >= window]
    seconds: float | None = None
    if behind == 0:
        seconds = 0.0
    elif within and end["offset"] > within[0]["offset"] and seen > within[0]["observed_at"]:
        grown = end["offset"] - within[0]["offset"]
        seconds = behind * (seen - within[0]["observed_at"]).total_seconds() / grown
    held = min(max(seen, commit["observed_at"]), commit["emitted_at"])
    skew = (seen - held).total_seconds()
    return {"log_end": end["offset"], "log_end_at": seen, "lag": behind, "lag_seconds": seconds, "skew_seconds": skew}


def group_lag(records: list[Row]) -> Answer:
    partitions: dict[tuple[Any, ...], list[tuple[str, Row]]] = defaultdict(list)
    for (window, group, topic, _), row in lag(records).items():
        partitions[window, group].append((topic, row))
    found = {}
    for key, each in partitions.items():
        lags = [row["lag"] for _, row in each if row["lag"] is not None]
        found[key] = {
            "lag": sum(lags) if lags else None,
            "max_partition_lag": max(lags, default=None),
            "lag_seconds": max((row["lag_seconds"] for _, row in each if row["lag_seconds"] is not None), default=None),
            "topics": len({topic for topic, _ in each}),
            "partitions": len(each),
            "partitions_without_log_end": len(each) - len(lags),
        }
    return found


def rebalances(records: list[Row]) -> Answer:
    with_cause = [record | {"cause": record.get("cause") or "unknown"} for record in records]
    return {
        key: {
            "rebalances": len(each),
            "seconds": sum(one["duration_seconds"] for one in each),
            "longest_seconds": max(one["duration_seconds"] for one in each),
            "lost_consumer_seconds": sum(one["duration_seconds"] * one["members"] for one in each),
            "members": max(one["members"] for one in each),
            "last_at": max(one["observed_at"] for one in each),
        }
        for key, each in _by(with_cause, "rebalance", "group", "cause", "reason").items()
    }


def _verdicts(kind: str, counted: str) -> Callable[[list[Row]], Answer]:
    def answer(records: list[Row]) -> Answer:
        return {
            key: {
                counted: len(each),
                "clients": len({one["client_id"] for one in each}),
                "last_at": max(one["observed_at"] for one in each),
            }
            for key, each in _by(records, kind, "group", "policy", "error_code").items()
        }

    return answer


def churn(records: list[Row]) -> Answer:
    return {key: {"members": len(each)} for key, each in _by(records, "member", "group", "change").items()}


def sidecars(records: list[Row]) -> Answer:
    by_boot: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for record in records:
        by_boot[window_of(record["emitted_at"]), record["sidecar"], record["boot"]].append(record)
    found = {}
    for key, each in by_boot.items():
        beats = [one for one in each if one["kind"] == "heartbeat"]
        skews = [(one["arrived_at"] - one["emitted_at"]).total_seconds() for one in beats if one["arrived_at"]]
        found[key] = {
            "first_seq": min(one["seq"] for one in each),
            "last_seq": max(one["seq"] for one in each),
            "records": len(each),
            "heartbeats": len(beats),
            "last_heartbeat": max((one["emitted_at"] for one in beats), default=None),
            "last_record": max(one["emitted_at"] for one in each),
            "clock_skew_seconds": median(skews) if skews else None,
        }
    return found


def metrics(records: list[Row]) -> Answer:
    first = {(window_of(one["emitted_at"]), one["sidecar"], one["boot"]) for one in records if one["seq"] == 1}
    beats = {
        key: sorted(each, key=lambda one: one["seq"])
        for key, each in _by(records, "heartbeat", "sidecar", "boot").items()
    }
    newest: dict[tuple[Any, ...], tuple[datetime, str, float]] = {}
    growth: dict[tuple[Any, ...], float] = defaultdict(float)
    for (window, sidecar, boot), each in beats.items():
        last = each[-1]
        before = beats.get((window - WINDOW, sidecar, boot))
        base: Mapping[str, float] = each[0]["sample"]
        if (window, sidecar, boot) in first:
            base = {}
        elif before and window_of(window, HOUR) == window_of(window - WINDOW, HOUR):
            base = before[-1]["sample"]
        for metric, figure in last["sample"].items():
            key = window, metric, sidecar
            newest[key] = max(newest.get(key, (MIDNIGHT, "", 0.0)), (last["emitted_at"], boot, figure))
            counted = base.get(metric, 0.0)
            growth[window, metric] += figure - counted if figure >= counted else figure
    figures: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for (window, metric, _), (_, _, figure) in newest.items():
        figures[window, metric].append(figure)
    return {
        key: {
            "value": min(each) if key[1].endswith("_timestamp_seconds") else sum(each),
            "increase": growth[key] if key[1].endswith("_total") else None,
            "sidecars": len(each),
        }
        for key, each in figures.items()
    }


ORACLE: Mapping[str, Callable[[list[Row]], Answer]] = {
    "groups": groups,
    "lag": lag,
    "group_lag": group_lag,
    "rebalances": rebalances,
    "refusals": _verdicts("refusal", "refusals"),
    "audits": _verdicts("audit", "audits"),
    "sidecars": sidecars,
    "churn": churn,
    "metrics": metrics,
}
"""The function that computes each table, by its name."""
