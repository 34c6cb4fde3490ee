"""The dashboard of one group: its current state and its history."""

from deploy.grafana.choices import CLUSTER, GROUP, JOB, OF_GROUP, OF_LOGS, OF_TOPICS, TOPIC
from deploy.grafana.panels import (
    GREEN,
    RED,
    YELLOW,
    Dashboard,
    Query,
    Row,
    graph,
    heatmap,
    number,
    states,
    step,
    table,
)

NOW = Row(
    "Now",
    (
        number(
            "Members",
            "Members of the group, and how many it may have (group.max.size). None while not all are known.",
            Query(f"max(group:group_sidecar_group_members:latest{{{OF_GROUP}}})", "members"),
            Query(f"max(group_sidecar_group_members_limit{{{OF_GROUP}}})", "limit"),
        ),
        number(
            "Members without partitions",
            "Members of the stable group that have nothing to consume: more members than partitions.",
            Query(f"max(group_sidecar_group_members_unassigned{{{OF_GROUP}}})", "members"),
            steps=(step(None, GREEN), step(1, YELLOW)),
        ),
        number(
            "Lag",
            "Records that wait for the group.",
            Query(f"sum(group:group_sidecar_lag:sum{{{OF_GROUP}}})", "records"),
        ),
        number(
            "Partitions of unknown lag",
            "Partitions with a commit whose log end the coordinator's sidecar has not seen itself. With metrics.detail:"
            " partition the recording rules take it from the other sidecars.",
            Query(f"max(group_sidecar_group_lag_unknown_partitions{{{OF_GROUP}}})", "partitions"),
        ),
        number(
            "Last rebalance",
            "When the last rebalance completed.",
            Query(f"1000 * max(group_sidecar_group_last_rebalance_timestamp_seconds{{{OF_GROUP}}})", "at"),
            unit="dateTimeFromNow",
        ),
        number(
            "Rebalances in 15 minutes",
            "Rebalances completed in the last quarter of an hour. Why: group-sidecar groups why GROUP.",
            Query(f"sum(group_reason:group_sidecar_group_rebalances:increase15m{{{OF_GROUP}}})", "rebalances"),
            steps=(step(None, GREEN), step(4, RED)),
        ),
    ),
)

LIFE = Row(
    "State and rebalances",
    (
        states(
            "State",
            "Kafka's state of the group. What was over between two scrapes is not in it; the sidecar has it.",
            Query(f"max by (state) (group_state:group_sidecar_group_info:latest{{{OF_GROUP}}})", "{{state}}"),
        ),
        heatmap(
            "Rebalances by reason",
            "Rebalances completed, by what caused them: the darker, the more.",
            Query(
                f"sum by (reason) (increase(group_sidecar_group_rebalances_total{{{OF_GROUP}}}[$__rate_interval]))",
                "{{reason}}",
            ),
        ),
        graph(
            "Members and limit",
            "Members of the group, how many it may have, and those without partitions.",
            Query(f"max(group:group_sidecar_group_members:latest{{{OF_GROUP}}})", "members"),
            Query(f"max(group_sidecar_group_members_limit{{{OF_GROUP}}})", "limit"),
            Query(f"max(group_sidecar_group_members_unassigned{{{OF_GROUP}}})", "without partitions"),
        ),
    ),
)

LAG = Row(
    "Lag and progress",
    (
        graph(
            "Lag by topic",
            "Records that wait for the group.",
            Query(f"sum by (topic) (group_topic:group_sidecar_lag:sum{{{OF_TOPICS}}})", "{{topic}}"),
            stacked=True,
        ),
        graph(
            "Most lag by partition",
            "The 25 partitions in which most records wait. One that stands out has a key or a record that stands out.",
            Query(
                f"topk(25, max by (topic, partition) (group_topic_partition:group_sidecar_lag:latest{{{OF_TOPICS}}}))",
                "{{topic}} {{partition}}",
            ),
        ),
        graph(
            "Consumed and produced",
            "How fast committed offsets and log ends move. Where the second stays above the first, the lag grows.",
            Query(
                "sum by (topic) (deriv("
                f"group_topic_partition:group_sidecar_committed_offset:latest{{{OF_TOPICS}}}[$__rate_interval]))",
                "{{topic}} consumed",
            ),
            Query(
                "sum by (topic) (deriv("
                f"topic_partition:group_sidecar_log_end_offset:latest{{{OF_LOGS}}}[$__rate_interval]))",
                "{{topic}} produced",
            ),
            unit="cps",
        ),
        graph(
            "Commits",
            "Partition offsets of the group that the broker accepted.",
            Query(f"sum(rate(group_sidecar_group_offset_commits_total{{{OF_GROUP}}}[$__rate_interval]))", "accepted"),
            unit="ops",
        ),
        graph(
            "Since the last commit",
            "How long ago the group last committed an offset of a topic.",
            Query(f"time() - max by (topic) (group_sidecar_last_commit_timestamp_seconds{{{OF_TOPICS}}})", "{{topic}}"),
            unit="s",
        ),
        graph(
            "Age of the lag",
            "How long ago the log end was seen that is oldest among those of a topic's lag.",
            Query(
                f"time() - max by (topic) (group_sidecar_group_topic_lag_timestamp_seconds{{{OF_TOPICS}}})", "{{topic}}"
            ),
            unit="s",
        ),
        graph(
            "Lag, of what is still there",
            "Records that wait, of all that the worst partition still has. Near 100 % they are deleted first.",
            Query(f"max by (topic) (group_topic_partition:group_sidecar_lag:ratio{{{OF_TOPICS}}})", "{{topic}}"),
            unit="percentunit",
        ),
        graph(
            "Partitions",
            "Partitions that members of the stable group have, and those among them of which nothing was committed.",
            Query(f"max by (topic) (group_sidecar_group_assigned_partitions{{{OF_TOPICS}}})", "{{topic}} assigned"),
            Query(f"max by (topic) (group_sidecar_uncommitted_partitions{{{OF_TOPICS}}})", "{{topic}} uncommitted"),
        ),
        table(
            "Lag by partition",
            "Records that wait in each partition.",
            Query(f"max by (topic, partition) (group_topic_partition:group_sidecar_lag:latest{{{OF_TOPICS}}})"),
            value="Lag",
        ),
        table(
            "Committed offsets",
            "Offsets that the group last committed.",
            Query(
                "max by (topic, partition) "
                f"(group_topic_partition:group_sidecar_committed_offset:latest{{{OF_TOPICS}}})"
            ),
            value="Offset",
            unit="none",
        ),
    ),
)

DASHBOARD = Dashboard(
    "group",
    "Kafka groups: one group",
    "One consumer group: its states, rebalances, members, lag and commits. Needs the recording rules; what is told of"
    " topics and partitions, metrics.detail: partition.",
    (CLUSTER, JOB, GROUP, TOPIC),
    (NOW, LIFE, LAG),
)
