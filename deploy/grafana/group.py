"""The dashboard of one group: its current state and its history."""

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
from deploy.grafana.variables import CLUSTER, GROUP, JOB, OF_GROUP, OF_LOGS, OF_TOPICS, TOPIC

NOW = Row(
    "Now",
    (
        number(
            "Members",
            "Members of the group, and their maximum number (group.max.size). Absent while not all members are known.",
            Query(f"max(group:group_sidecar_group_members:latest{{{OF_GROUP}}})", "members"),
            Query(f"max(group_sidecar_group_members_limit{{{OF_GROUP}}})", "limit"),
        ),
        number(
            "Members without partitions",
            "Members of a stable group that have no partition. The group has more members than partitions.",
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
            " partition, the recording rules take the log end from other sidecars.",
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
            "Rebalances completed in the last quarter of an hour. `group-sidecar groups why GROUP` shows their causes.",
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
            "The group's state in Kafka's terms. States that began and ended between two scrapes are missing here."
            " The sidecar's page shows them.",
            Query(f"max by (state) (group_state:group_sidecar_group_info:latest{{{OF_GROUP}}})", "{{state}}"),
        ),
        heatmap(
            "Rebalances by reason",
            "Completed rebalances, by cause. Darker means more.",
            Query(
                f"sum by (reason) (increase(group_sidecar_group_rebalances_total{{{OF_GROUP}}}[$__rate_interval]))",
                "{{reason}}",
            ),
        ),
        graph(
            "Members and limit",
            "Members of the group, their maximum number, and members without partitions.",
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
            "The 25 partitions with the largest lag. If one stands out, look for a frequent key or a record that is"
            " slow to process.",
            Query(
                f"topk(25, max by (topic, partition) (group_topic_partition:group_sidecar_lag:latest{{{OF_TOPICS}}}))",
                "{{topic}} {{partition}}",
            ),
        ),
        graph(
            "Consumed and produced",
            "The speed of committed offsets and of log ends. While log ends move faster, the lag grows.",
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
            "The age of the oldest log end from which a topic's lag was computed.",
            Query(
                f"time() - max by (topic) (group_sidecar_group_topic_lag_timestamp_seconds{{{OF_TOPICS}}})", "{{topic}}"
            ),
            unit="s",
        ),
        graph(
            "Share of the log not consumed yet",
            "Lag as a share of the records that are still in the log, for the worst partition. Near 100 %, records"
            " are deleted before they are consumed.",
            Query(f"max by (topic) (group_topic_partition:group_sidecar_lag:ratio{{{OF_TOPICS}}})", "{{topic}}"),
            unit="percentunit",
        ),
        graph(
            "Partitions",
            "Partitions that are assigned to members of a stable group, and assigned partitions without a committed"
            " offset.",
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
    "One consumer group: its states, rebalances, members, lag and commits. Needs the recording rules. The panels about"
    " topics and partitions need metrics.detail: partition.",
    (CLUSTER, JOB, GROUP, TOPIC),
    (NOW, LIFE, LAG),
)
