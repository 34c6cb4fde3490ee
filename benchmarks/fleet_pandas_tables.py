"""The queries of the fleet pipeline, written with pandas. The argument `frames` has the records by kind."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import pandas as pd

Frames = Mapping[str, pd.DataFrame]
PARTITION = ["window", "topic", "partition"]
VERDICT = ["window", "group", "policy", "error_code"]
BOOT = ["window", "sidecar", "boot"]


def groups(frames: Frames) -> pd.DataFrame:
    """Computes the table of spark/queries/groups_table.py."""
    newest = frames["group"].sort_values(["observed_at", "emitted_at", "seq"])
    each = newest.drop_duplicates(["window", "group", "sidecar"], keep="last").copy()
    each["sidecar"] = each["sidecar"].astype(str)
    each["sidecars"] = each.groupby(["window", "group"], observed=True)["sidecar"].transform("size")
    holds = each.sort_values(["generation", "observed_at", "sidecar"]).drop_duplicates(["window", "group"], keep="last")
    names = ["protocol", "state", "protocol_type", "assignor", "generation", "members", "max_size", "observed_at"]
    return holds[["window", "group", "sidecar", "sidecars", *names]]


def lag(frames: Frames) -> pd.DataFrame:
    """Computes the table `lag` of spark/queries/lag_tables.py."""
    commits = frames["commit"].sort_values(["observed_at", "emitted_at"], kind="stable")
    commits = commits.drop_duplicates([*PARTITION, "group"], keep="last")
    commits = commits.rename(columns={"offset": "committed", "observed_at": "committed_at", "emitted_at": "held_until"})
    found = commits[[*PARTITION, "group", "committed", "committed_at", "held_until"]].merge(
        _log_ends(frames["log_end"]), on=PARTITION, how="left"
    )
    known = found["log_end"].notna()
    found["lag"] = (found["log_end"] - found["committed"]).clip(lower=0).where(known)
    found["lag_seconds"] = (found["lag"] / found["per_second"]).mask(found["lag"] == 0, 0.0)
    found["skew_seconds"] = _skew(found)
    names = ["committed", "log_end", "lag", "lag_seconds", "committed_at", "log_end_at", "skew_seconds"]
    return found[["window", "group", "topic", "partition", *names]]


def _log_ends(ends: pd.DataFrame) -> pd.DataFrame:
    ends = ends.sort_values(["observed_at", "emitted_at"], kind="stable")
    last = ends.drop_duplicates(PARTITION, keep="last").rename(
        columns={"offset": "log_end", "observed_at": "log_end_at"}
    )
    within = ends[ends["observed_at"] >= ends["window"]].drop_duplicates(PARTITION, keep="first")
    first = within.rename(columns={"offset": "first", "observed_at": "first_at"})
    found = last[[*PARTITION, "log_end", "log_end_at"]].merge(
        first[[*PARTITION, "first", "first_at"]], on=PARTITION, how="left"
    )
    grown = found["log_end"] - found["first"]
    seconds = (found["log_end_at"] - found["first_at"]).dt.total_seconds()
    found["per_second"] = (grown / seconds).where((grown > 0) & (seconds != 0))
    return found.drop(columns=["first", "first_at"])


def _skew(found: pd.DataFrame) -> pd.Series:
    seen = found["log_end_at"]
    before = (seen - found["committed_at"]).dt.total_seconds()
    after = (seen - found["held_until"]).dt.total_seconds()
    return before.where(before < 0, after.clip(lower=0))


def group_lag(each: pd.DataFrame) -> pd.DataFrame:
    """Computes the table `group_lag` of spark/queries/lag_tables.py. `each` is the result of `lag`."""
    by = each.assign(unknown=each["lag"].isna()).groupby(["window", "group"], observed=True)
    found = by.agg(
        max_partition_lag=("lag", "max"),
        lag_seconds=("lag_seconds", "max"),
        topics=("topic", "nunique"),
        partitions=("partition", "size"),
        partitions_without_log_end=("unknown", "sum"),
    )
    found["lag"] = by["lag"].sum(min_count=1)
    return found.reset_index()


def rebalances(frames: Frames) -> pd.DataFrame:
    """Computes the table of spark/queries/rebalances_table.py."""
    all_ = frames["rebalance"].assign(
        cause=frames["rebalance"]["cause"].astype(object).fillna("unknown"),
        lost=lambda each: each["duration_seconds"] * each["members"],
    )
    return (
        all_.groupby(["window", "group", "cause", "reason"], observed=True)
        .agg(
            rebalances=("seq", "size"),
            seconds=("duration_seconds", "sum"),
            longest_seconds=("duration_seconds", "max"),
            lost_consumer_seconds=("lost", "sum"),
            members=("members", "max"),
            last_at=("observed_at", "max"),
        )
        .reset_index()
    )


def refusals(frames: Frames) -> pd.DataFrame:
    """Computes the table `refusals` of spark/queries/policy_tables.py."""
    return _verdicts(frames["refusal"], "refusals")


def audits(frames: Frames) -> pd.DataFrame:
    """Computes the table `audits` of spark/queries/policy_tables.py."""
    return _verdicts(frames["audit"], "audits")


def _verdicts(verdicts: pd.DataFrame, counted: str) -> pd.DataFrame:
    by = verdicts.groupby(VERDICT, observed=True)
    found = by.agg(clients=("client_id", "nunique"), last_at=("observed_at", "max"))
    found[counted] = by.size()
    return found.reset_index()


def sidecars(frames: Frames) -> pd.DataFrame:
    """Computes the table of spark/queries/sidecars_table.py."""
    everything = frames["all"].groupby(BOOT, observed=True)
    found = everything.agg(
        first_seq=("seq", "min"), last_seq=("seq", "max"), records=("seq", "size"), last_record=("emitted_at", "max")
    )
    beats = frames["heartbeat"]
    late = (beats["arrived_at"] - beats["emitted_at"]).dt.total_seconds()
    by = beats.assign(late=late).groupby(BOOT, observed=True)
    found["heartbeats"] = by.size()
    found["heartbeats"] = found["heartbeats"].fillna(0).astype("int64")
    found["last_heartbeat"] = by["emitted_at"].max()
    found["clock_skew_seconds"] = by["late"].median()
    return found.reset_index()


def churn(frames: Frames) -> pd.DataFrame:
    """Computes the table of spark/queries/churn_table.py."""
    return frames["member"].groupby(["window", "group", "change"], observed=True).size().rename("members").reset_index()


def metrics(frames: Frames) -> pd.DataFrame:
    """Computes the table of spark/queries/metrics_table.py."""
    beats = frames["heartbeat"].sort_values("seq")
    samples = pd.json_normalize(beats["sample"].tolist())
    long = pd.concat([beats[[*BOOT, "seq", "emitted_at"]].reset_index(drop=True), samples], axis=1)
    long = long.melt([*BOOT, "seq", "emitted_at"], var_name="metric", value_name="figure").dropna(subset="figure")
    keys = [*BOOT, "metric"]
    last = long.drop_duplicates(keys, keep="last").set_index(keys)
    first = long.drop_duplicates(keys, keep="first").set_index(keys)["figure"]
    before = last["figure"].reset_index()
    before["window"] += pd.Timedelta(minutes=5)
    before = before[before["window"].dt.minute != 0].set_index(keys)["figure"]
    began = frames["all"].loc[frames["all"]["seq"] == 1, BOOT].assign(began=True)
    found = last.assign(base=before.reindex(last.index).fillna(first)).reset_index().merge(began, on=BOOT, how="left")
    base = found["base"].mask(found["began"].notna(), 0.0)
    found["grown"] = (found["figure"] - base).where(found["figure"] >= base, found["figure"])
    found.loc[~found["metric"].str.endswith("_total"), "grown"] = float("nan")
    return _summed(found.sort_values(["emitted_at", "boot"]))


def _summed(found: pd.DataFrame) -> pd.DataFrame:
    by = found.groupby(["window", "metric", "sidecar"], observed=True)
    each = by.agg(figure=("figure", "last"))
    each["grown"] = by["grown"].sum(min_count=1)
    by = each.reset_index().groupby(["window", "metric"], observed=True)
    answer = by.agg(value=("figure", "sum"), sidecars=("sidecar", "size"))
    answer["increase"] = by["grown"].sum(min_count=1)
    moments = answer.index.get_level_values("metric").str.endswith("_timestamp_seconds")
    answer.loc[moments, "value"] = by["figure"].min()[moments]
    return answer.reset_index()


def answers(frames: Frames) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields all tables by name, as in spark/tables.py."""
    each = lag(frames)
    yield "lag", each
    yield "group_lag", group_lag(each)
    for name, ask in ASKED.items():
        yield name, ask(frames)


ASKED: Mapping[str, Callable[[Frames], pd.DataFrame]] = MappingProxyType(
    {
        "groups": groups,
        "rebalances": rebalances,
        "refusals": refusals,
        "audits": audits,
        "sidecars": sidecars,
        "churn": churn,
        "metrics": metrics,
    }
)
"""The queries that take only the records."""
