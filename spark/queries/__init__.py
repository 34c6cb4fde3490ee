"""The queries over a fleet's records. Each query takes and returns a DataFrame, and does not access the store.

- `groups_table`, `lag_tables`, `churn_table`, `rebalances_table`: groups, their lag, their members, their rebalances
- `policy_tables`: refusals by policies
- `sidecars_table`, `metrics_table`: the sidecars, and the metrics in their heartbeats
- `windows`: the window of each record, and the newest of several observations
"""
