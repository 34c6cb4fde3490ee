"""Checks the tables that Spark wrote against the known truth of the fleet, and against the tables that pandas wrote.

The tables are read without Spark.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from benchmarks.fleet_shape import Shape
from benchmarks.fleet_truth import WINDOW, Boot, Truth, group_reporters, lag

KEYS = {
    "groups": ["window", "group"],
    "lag": ["window", "group", "topic", "partition"],
    "group_lag": ["window", "group"],
    "rebalances": ["window", "group", "cause", "reason"],
    "refusals": ["window", "group", "policy", "error_code"],
    "audits": ["window", "group", "policy", "error_code"],
    "sidecars": ["window", "sidecar", "boot"],
    "churn": ["window", "group", "change"],
    "metrics": ["window", "metric"],
}
"""The tables that both programs write, and their keys."""


def table(store: Path, name: str) -> pd.DataFrame:
    """Reads a table that Spark wrote, without the columns of its folders."""
    found: pd.DataFrame = pq.read_table(store / name).to_pandas()
    return found.drop(columns=["day", "hour"], errors="ignore")


def differences(store: Path, answers: Path) -> list[str]:
    """Returns the differences between Spark's tables and those of pandas, row by row; empty if they are equal."""
    found: list[str] = []
    for name, keys in KEYS.items():
        found += different(name, table(store, name), pd.read_parquet(answers / f"{name}.parquet"), keys)
    return found


def different(name: str, ours: pd.DataFrame, theirs: pd.DataFrame, keys: list[str]) -> Iterator[str]:
    """Yields the differences between two tables. The rows may be in any order."""
    if len(ours) != len(theirs) or set(ours.columns) != set(theirs.columns):
        yield f"{name}: {len(ours)} rows of {sorted(ours.columns)}, {len(theirs)} of {sorted(theirs.columns)}"
        return
    ours, theirs = _sorted(ours, keys), _sorted(theirs, keys)
    for column in ours.columns:
        unequal = ~_same(ours[column], theirs[column])
        if unequal.any():
            at = int(unequal.argmax())
            pair = f"{ours[column].iloc[at]!r} is not {theirs[column].iloc[at]!r}"
            yield f"{name}.{column}: {int(unequal.sum())} rows, the first: {pair}"


def _sorted(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    plain = frame.assign(
        **{
            column: frame[column].astype(object)
            for column in frame.columns
            if isinstance(frame[column].dtype, pd.CategoricalDtype)
        }
    )
    return plain.sort_values(keys).reset_index(drop=True)


def _same(ours: pd.Series, theirs: pd.Series) -> Any:
    if pd.api.types.is_datetime64_any_dtype(ours):
        moments = (pd.to_datetime(some).dt.tz_localize(None).astype("datetime64[ms]") for some in (ours, theirs))
        one, other = moments
        return ((one == other) | (one.isna() & other.isna())).to_numpy()
    if pd.api.types.is_numeric_dtype(ours) and pd.api.types.is_numeric_dtype(theirs):
        return np.isclose(ours.astype(float), theirs.astype(float), rtol=1e-9, atol=1e-9, equal_nan=True)
    return ((ours == theirs) | (ours.isna() & theirs.isna())).to_numpy()


def wrong(store: Path, shape: Shape, truth: Truth) -> list[str]:
    """Returns the errors in Spark's tables, compared with the fleet that was written; empty if there are none."""
    found = [
        name
        for name, (ours, true) in {
            "quarantine": (Counter(table(store, "quarantine")["fault"]), truth.faults),
            "rebalances": (_sums(store, "rebalances", ["group", "cause"], "rebalances"), truth.rebalances),
            "churn": (_sums(store, "churn", ["group", "change"], "members"), truth.changes),
            "refusals": (_verdicts(store, "refusals"), _of_kind(truth, "refusal")),
            "audits": (_verdicts(store, "audits"), _of_kind(truth, "audit")),
            "boots": (_boots(store), truth.boots),
        }.items()
        if ours != true
    ]
    lost = _sums(store, "rebalances", ["group", "cause"], "lost_consumer_seconds")
    if lost.keys() != truth.lost.keys() or any(abs(lost[why] - seconds) > 1e-6 for why, seconds in truth.lost.items()):
        found.append("lost_consumer_seconds")
    return [*found, *_wrong_windows(store, shape)]


def _sums(store: Path, name: str, keys: list[str], value: str) -> dict[Any, Any]:
    return dict(table(store, name).groupby(keys, observed=True)[value].sum())


def _verdicts(store: Path, name: str) -> dict[Any, Any]:
    return _sums(store, name, ["group", "policy", "error_code"], name)


def _of_kind(truth: Truth, kind: str) -> Counter[tuple[object, ...]]:
    return Counter({key[1:]: times for key, times in truth.verdicts.items() if key[0] == kind})


def _boots(store: Path) -> dict[tuple[str, str], Boot]:
    by = table(store, "sidecars").groupby(["sidecar", "boot"], observed=True)
    found = by.agg({"first_seq": "min", "last_seq": "max", "records": "sum", "heartbeats": "sum"})
    return {key: Boot(*(int(cell) for cell in row)) for key, row in zip(found.index, found.to_numpy(), strict=True)}


def _wrong_windows(store: Path, shape: Shape) -> Iterator[str]:
    """Yields errors in lags and groups, window by window, compared with the shape."""
    lags, groups = table(store, "lag"), table(store, "groups")
    names = pd.Index(shape.groups)
    windows = shape.fleet.length // WINDOW
    if not lags["window"].nunique() == groups["window"].nunique() == windows:
        yield f"lag has {lags['window'].nunique()} windows, groups {groups['window'].nunique()}, not {windows}"
        return
    for (window, found), (_, group_rows) in zip(lags.groupby("window"), groups.groupby("window"), strict=True):
        number = int((pd.Timestamp(window).timestamp() - shape.fleet.begin) * 1000 // WINDOW)
        true = lag(shape, number)
        sums = [len(true.lag), true.committed.sum(), true.log_end[true.known].sum(), true.lag[true.known].sum()]
        if [len(found), *(found[name].sum() for name in ("committed", "log_end", "lag"))] != sums:
            yield f"lag of {window}"
        reporters = group_reporters(shape, number)
        order = names.get_indexer(pd.Index(group_rows["group"].astype(object)))
        holders = np.array(shape.sidecars, object)[reporters.holder[order]]
        if (
            len(group_rows) != len(names)
            or (group_rows["sidecar"] != holders).any()
            or (group_rows["sidecars"] != reporters.speakers[order]).any()
        ):
            yield f"groups of {window}"
