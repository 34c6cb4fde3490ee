"""The queries over a fleet's records. Each takes and returns a DataFrame, and knows no storage.

- `groups_table`, `lag_tables`, `churn_table`, `rebalances_table`: groups, their lag, their members, their rebalances
- `policy_tables`: refusals by policies
- `sidecars_table`, `metrics_table`: the sidecars, and what Prometheus scrapes from them
- `windows`: windows of time, and the newest of several observations
"""
