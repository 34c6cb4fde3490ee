"""The dashboard of all sidecars and groups: current problems, with links to details."""

from deploy.grafana.panels import GREEN, RED, YELLOW, Dashboard, Query, Row, graph, number, step, table
from deploy.grafana.variables import CLUSTER, IN_FLEET, INSTANCE, JOB, OF_SIDECARS, REBALANCING, quantile, rate

TO_GROUP = (
    "/d/group-sidecar-group?${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}&${job:queryparam}"
    "&var-group=${__data.fields.group:percentencode}"
)

REBALANCES = f"group_reason:group_sidecar_group_rebalances:increase15m{{{IN_FLEET}}}"

NOW = Row(
    "Now",
    (
        number(
            "Sidecars up",
            "Sidecars that Prometheus reaches.",
            Query(f"sum(up{{{OF_SIDECARS}}})", "up"),
        ),
        number(
            "Sidecars down",
            "Sidecars that Prometheus does not reach. Clients may be unable to reach the broker behind such a sidecar.",
            Query(f"count(up{{{OF_SIDECARS}}} == 0) or vector(0)", "down"),
            steps=(step(None, GREEN), step(1, RED)),
        ),
        number(
            "Groups", "Groups that the sidecars know.", Query(f"sum(group_sidecar_groups{{{OF_SIDECARS}}})", "groups")
        ),
        number(
            "Rebalancing",
            "Groups that are in a rebalance now.",
            Query(f"sum(group_sidecar_groups{{{OF_SIDECARS}, {REBALANCING}}})", "groups"),
            steps=(step(None, GREEN), step(10, YELLOW)),
        ),
        number(
            "Near or over their limit",
            "Groups with at least 90 % of their maximum number of members (group.max.size).",
            Query(f"sum(group_sidecar_groups_near_limit{{{OF_SIDECARS}}})", "near"),
            Query(f"sum(group_sidecar_groups_over_limit{{{OF_SIDECARS}}})", "over"),
            steps=(step(None, GREEN), step(1, YELLOW)),
        ),
        number(
            "Lag",
            "Records that wait for any group. A recording rule combines commits and log ends of several sidecars.",
            Query(f"sum(group:group_sidecar_lag:sum{{{IN_FLEET}}})", "records"),
        ),
    ),
)

GROUPS = Row(
    "Groups",
    (
        graph(
            "Groups by state",
            "Groups by state, in Kafka's terms. If many are in PreparingRebalance at once, the likely cause is a"
            " broker or a deployment.",
            Query(f"sum by (state) (group_sidecar_groups{{{OF_SIDECARS}}})", "{{state}}"),
            stacked=True,
        ),
        graph(
            "Rebalances by reason",
            "Completed rebalances, by cause.",
            Query(rate("rebalances_total", "reason"), "{{reason}}"),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Duration of rebalances",
            "From the first JoinGroup of a rebalance to the first SyncGroup reply of the generation.",
            *(
                Query(quantile(share, "rebalance_duration_seconds"), name)
                for share, name in ((0.5, "half of them"), (0.95, "95 %"), (0.99, "99 %"))
            ),
            unit="s",
        ),
        graph(
            "Members that joined and left",
            "Members that were new to their group, and members that left or were removed, by reason.",
            Query(rate("members_joined_total"), "joined"),
            Query(rate("members_removed_total", "reason"), "{{reason}}"),
            unit="ops",
        ),
        table(
            "Most rebalances",
            "Groups with the most rebalances in the last quarter of an hour. `group-sidecar groups why GROUP` shows"
            " the causes.",
            Query(f"topk(25, sum without (reason) ({REBALANCES}))"),
            value="Rebalances",
            link=TO_GROUP,
        ),
        table(
            "Fullest groups",
            "Groups with the most members, as a share of their maximum (group.max.size).",
            Query(f"topk(25, group:group_sidecar_group_members:ratio{{{IN_FLEET}}})"),
            value="Share of the maximum",
            unit="percentunit",
            link=TO_GROUP,
        ),
    ),
)

LAG = Row(
    "Lag",
    (
        table(
            "Most lag",
            "The 25 groups with the largest lag.",
            Query(f"topk(25, group:group_sidecar_lag:sum{{{IN_FLEET}}})"),
            value="Lag",
            link=TO_GROUP,
        ),
        graph(
            "Most lag over time",
            "The 25 groups with the largest lag, at each moment.",
            Query(f"topk(25, group:group_sidecar_lag:sum{{{IN_FLEET}}})", "{{group}}"),
        ),
    ),
)

REFUSED = Row(
    "Refused",
    (
        graph(
            "Rejections",
            "Requests that a policy refused, that the broker refused by the same rule, and that a policy in audit mode"
            " would have refused.",
            Query(rate("policy_rejections_total", "policy, error"), "{{policy}} {{error}}"),
            Query(
                rate("policy_broker_rejections_total", "policy, error"),
                "{{policy}} {{error}}, by the broker",
            ),
            Query(
                rate("policy_audited_rejections_total", "policy, error"),
                "{{policy}} {{error}}, only reported",
            ),
            unit="reqps",
        ),
        graph(
            "Commits",
            "Partition offsets that brokers accepted, and those that they refused, by error.",
            Query(rate("offset_commits_total"), "accepted"),
            Query(f"{rate('offset_commit_failures_total', 'error')} > 0", "{{error}}"),
            unit="ops",
        ),
    ),
)

DASHBOARD = Dashboard(
    "fleet",
    "Kafka groups: fleet",
    "All consumer groups that the sidecars see: states, lag, rebalances, refusals. Needs the recording rules.",
    (CLUSTER, JOB, INSTANCE),
    (NOW, GROUPS, LAG, REFUSED),
)
