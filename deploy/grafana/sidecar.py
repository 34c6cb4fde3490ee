"""The dashboard of the sidecars: their traffic, their local answers, and their resources."""

from deploy.grafana.choices import CLUSTER, INSTANCE, JOB, OF_SIDECARS, each, quantile, rate
from deploy.grafana.panels import GREEN, RED, YELLOW, Dashboard, Panel, Query, Row, graph, heatmap, number, step


def _good(title: str, description: str, metric: str) -> Panel:
    """A panel with the lowest value of a metric that should be 1."""
    steps = (step(None, RED), step(1, GREEN))
    return number(title, description, Query(f"min({metric}{{{OF_SIDECARS}}})", "lowest"), steps=steps)


NOW = Row(
    "Now",
    (
        number(
            "Up",
            "Sidecars that Prometheus reaches, and their versions.",
            Query(f"count by (version) (group_sidecar_build_info{{{OF_SIDECARS}}})", "{{version}}"),
        ),
        _good(
            "Copy ready", "1 where all have a copy of the group coordinator to work from.", "group_sidecar_mirror_ready"
        ),
        _good(
            "Settings in force",
            "1 where the settings that were last read are in force everywhere.",
            "group_sidecar_config_last_reload_successful",
        ),
        number(
            "Distrusted groups",
            "Groups left to the broker because it was found to say something else of them.",
            Query(f"sum(group_sidecar_mirror_distrusted_groups{{{OF_SIDECARS}}})", "groups"),
            steps=(step(None, GREEN), step(1, RED)),
        ),
        number(
            "Series left out",
            "Series that do not fit metrics.series.",
            Query(f"sum(group_sidecar_series_suppressed{{{OF_SIDECARS}}})", "series"),
            steps=(step(None, GREEN), step(1, YELLOW)),
        ),
        number(
            "Journal last written",
            "The sidecar whose records were last written longest ago.",
            Query(f"time() - min(group_sidecar_records_last_flush_timestamp_seconds{{{OF_SIDECARS}}})", "ago"),
            unit="s",
            steps=(step(None, GREEN), step(300, RED)),
        ),
    ),
)

REQUESTS = Row(
    "Requests",
    (
        graph(
            "Requests by API",
            "Requests done, the sidecar's own answers among them.",
            Query(rate("requests_total", "api"), "{{api}}"),
            unit="reqps",
        ),
        graph(
            "Time of 99 % of requests, by API",
            "From a request's arrival to the start of its reply. A JoinGroup waits for its group, a Fetch for records.",
            Query(quantile(0.99, "request_duration_seconds", "api"), "{{api}}"),
            unit="s",
        ),
        heatmap(
            "Time of requests",
            "Requests a second by how long they took, of all APIs but those that wait on purpose.",
            Query(
                rate("request_duration_seconds_bucket", "le", 'api!~"JoinGroup|SyncGroup|Fetch|ShareFetch"'),
                "{{le}}",
                form="heatmap",
            ),
            unit="s",
        ),
        graph(
            "Errors",
            "What did not decode and was forwarded as it came, what policies refused, and failed attempts to reach the"
            " broker.",
            Query(f"{rate('decode_failures_total', 'api')} > 0", "{{api}} did not decode"),
            Query(rate("policy_rejections_total", "policy, error"), "{{policy}} {{error}}"),
            Query(rate("upstream_connect_failures_total"), "broker not reached"),
            unit="reqps",
        ),
    ),
)

ANSWERS = Row(
    "Its own answers",
    (
        graph(
            "Answers by API",
            "Requests answered from the copy of the group coordinator, and those of them that had been encoded before.",
            Query(rate("mirror_answers_total", "api"), "{{api}}"),
            Query(rate("mirror_answers_remembered_total", "api"), "{{api}} remembered"),
            unit="reqps",
        ),
        graph(
            "Left to the broker, by reason",
            "Requests that the copy could not be used for: docs/operations.md says what each reason means.",
            Query(f"{rate('mirror_fallbacks_total', 'api, reason')} > 0", "{{api}} {{reason}}"),
            unit="reqps",
        ),
        graph(
            "Compared with the broker",
            "Answers that were compared with the broker's own, by what came of it. `different` should not be there.",
            Query(rate("mirror_verifications_total", "result"), "{{result}}"),
            unit="ops",
        ),
        graph(
            "Confirmations",
            "How often a policy judged, and how often the broker was asked about a group before that.",
            Query(rate("policy_evaluations_total", "policy"), "{{policy}} judged"),
            Query(rate("policy_confirmations_total", "policy"), "{{policy}} asked before"),
            unit="ops",
        ),
    ),
)

LOG = Row(
    "The coordinator's log",
    (
        graph(
            "Partitions of __consumer_offsets",
            "Partitions that the brokers lead, by how far they were read. None should stay in loading or failed.",
            Query(each("group_sidecar_offsets_log_partitions", "state"), "{{state}}"),
            stacked=True,
        ),
        graph(
            "Records behind",
            "Records that a sidecar is behind, in the partition furthest behind.",
            Query(f"max by (instance) (group_sidecar_offsets_log_lag{{{OF_SIDECARS}}})", "{{instance}}"),
        ),
        graph(
            "Records read",
            "Records that were read, offsets that the broker removed of itself, and records of an unknown kind.",
            Query(rate("offsets_log_records_total"), "read"),
            Query(rate("offsets_expired_total"), "offsets expired"),
            Query(rate("offsets_log_records_skipped_total", "key_type"), "skipped, key type {{key_type}}"),
            unit="ops",
        ),
        graph(
            "Time to load a partition",
            "The time that 99 % of the partitions loaded in a quarter of an hour took, and how many these were.",
            Query(
                "histogram_quantile(0.99, sum by (le) "
                f"(increase(group_sidecar_offsets_log_load_duration_seconds_bucket{{{OF_SIDECARS}}}[15m])))",
                "time",
            ),
            unit="s",
        ),
    ),
)

CONNECTIONS = Row(
    "Connections and bytes",
    (
        graph(
            "Connections open",
            "Client connections that are open; each has a twin to the broker.",
            Query(each("group_sidecar_client_connections"), "{{instance}}"),
        ),
        graph(
            "Connections opened and closed",
            "Client connections accepted, and those that ended, by why.",
            Query(rate("client_connections_opened_total"), "opened"),
            Query(rate("client_connections_closed_total", "reason"), "{{reason}}"),
            unit="ops",
        ),
        graph(
            "Bytes",
            "Bytes received from clients, and sent to them.",
            Query(rate("received_bytes_total"), "received"),
            Query(rate("sent_bytes_total"), "sent"),
            unit="Bps",
        ),
        graph(
            "Bytes held",
            "Bytes of unfinished frames, of remembered answers, and of the flight recorder. Each has its limit.",
            Query(each("group_sidecar_held_bytes"), "{{instance}} frames"),
            Query(each("group_sidecar_remembered_bytes"), "{{instance}} answers"),
            Query(each("group_sidecar_flight_recorder_bytes"), "{{instance}} flight recorder"),
            unit="bytes",
        ),
    ),
)

OUTLET = Row(
    "The journal",
    (
        graph(
            "Records",
            "Records that the journal wrote, by outlet, and those that it dropped, by why.",
            Query(rate("records_written_total", "outlet"), "written, {{outlet}}"),
            Query(rate("records_dropped_total", "outlet, reason"), "dropped, {{outlet}}, {{reason}}"),
            unit="ops",
        ),
        graph(
            "Since it was last written",
            "How long ago the journal last handed records to the disk, or the broker acknowledged some.",
            Query(
                "time() - max by (instance, outlet) "
                f"(group_sidecar_records_last_flush_timestamp_seconds{{{OF_SIDECARS}}})",
                "{{instance}}, {{outlet}}",
            ),
            unit="s",
        ),
    ),
)

PROCESS = Row(
    "The process",
    (
        graph(
            "CPU",
            "Cores in use. A sidecar uses one at most.",
            Query(
                f"sum by (instance) (rate(process_cpu_seconds_total{{{OF_SIDECARS}}}[$__rate_interval]))",
                "{{instance}}",
            ),
            unit="percentunit",
        ),
        graph("Memory", "Resident memory.", Query(each("process_resident_memory_bytes"), "{{instance}}"), unit="bytes"),
        graph(
            "Descriptors",
            "Open file descriptors, of those allowed: each client connection takes two.",
            Query(
                f"max by (instance) (process_open_fds{{{OF_SIDECARS}}} / process_max_fds{{{OF_SIDECARS}}})",
                "{{instance}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Time to build the metrics",
            "Time that building the families of a scrape took.",
            Query(f"max by (instance) (group_sidecar_collect_duration_seconds{{{OF_SIDECARS}}})", "{{instance}}"),
            unit="s",
        ),
    ),
)

DASHBOARD = Dashboard(
    "sidecar",
    "Kafka groups: sidecars",
    "The sidecars themselves: requests, their own answers, the coordinator's log, the journal, the process.",
    (CLUSTER, JOB, INSTANCE),
    (NOW, REQUESTS, ANSWERS, LOG, CONNECTIONS, OUTLET, PROCESS),
)
