"""The dashboard of the sidecars: their traffic, their local answers, and their resources."""

from deploy.grafana.panels import GREEN, RED, YELLOW, Dashboard, Panel, Query, Row, graph, heatmap, number, step
from deploy.grafana.variables import CLUSTER, INSTANCE, JOB, OF_SIDECARS, each, quantile, rate


def _good(title: str, description: str, metric: str) -> Panel:
    """Returns a panel with the lowest value of a metric that should be 1."""
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
            "Copy ready", "1 if every sidecar has a usable copy of the group coordinator.", "group_sidecar_mirror_ready"
        ),
        _good(
            "Settings in force",
            "1 if every sidecar has put the settings that it last read into force.",
            "group_sidecar_config_last_reload_successful",
        ),
        number(
            "Distrusted groups",
            "Groups that are left to the broker because a local answer differed from the broker's answer.",
            Query(f"sum(group_sidecar_mirror_distrusted_groups{{{OF_SIDECARS}}})", "groups"),
            steps=(step(None, GREEN), step(1, RED)),
        ),
        number(
            "Series left out",
            "Series that were left out because of the limit metrics.series.",
            Query(f"sum(group_sidecar_series_suppressed{{{OF_SIDECARS}}})", "series"),
            steps=(step(None, GREEN), step(1, YELLOW)),
        ),
        number(
            "Journal last written",
            "Time since the last write of the journal, at the sidecar with the oldest last write.",
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
            "Completed requests, including those that the sidecar answered itself.",
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
            "Requests per second by duration, for all APIs except those that wait on purpose.",
            Query(
                rate("request_duration_seconds_bucket", "le", 'api!~"JoinGroup|SyncGroup|Fetch|ShareFetch"'),
                "{{le}}",
                form="heatmap",
            ),
            unit="s",
        ),
        graph(
            "Errors",
            "Messages that could not be decoded and were forwarded unchanged, requests that policies refused, and"
            " failed attempts to reach the broker.",
            Query(f"{rate('decode_failures_total', 'api')} > 0", "{{api}} did not decode"),
            Query(rate("policy_rejections_total", "policy, error"), "{{policy}} {{error}}"),
            Query(rate("upstream_connect_failures_total"), "broker not reached"),
            unit="reqps",
        ),
    ),
)

ANSWERS = Row(
    "Local answers",
    (
        graph(
            "Answers by API",
            "Requests that the sidecar answered from its copy of the group coordinator. `remembered`: the answer was"
            " already encoded.",
            Query(rate("mirror_answers_total", "api"), "{{api}}"),
            Query(rate("mirror_answers_remembered_total", "api"), "{{api}} remembered"),
            unit="reqps",
        ),
        graph(
            "Left to the broker, by reason",
            "Requests that could not be answered from the copy. docs/operations.md explains each reason.",
            Query(f"{rate('mirror_fallbacks_total', 'api, reason')} > 0", "{{api}} {{reason}}"),
            unit="reqps",
        ),
        graph(
            "Compared with the broker",
            "Local answers that were compared with the broker's answer, by result. `different` should not occur.",
            Query(rate("mirror_verifications_total", "result"), "{{result}}"),
            unit="ops",
        ),
        graph(
            "Confirmations",
            "Requests that a policy judged, and how often the sidecar asked the broker about a group before a policy "
            "judged.",
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
            "Partitions that the brokers lead, by the state of reading. None should stay in `loading` or `failed`.",
            Query(each("group_sidecar_offsets_log_partitions", "state"), "{{state}}"),
            stacked=True,
        ),
        graph(
            "Records behind",
            "The largest number of unread records in one partition.",
            Query(f"max by (instance) (group_sidecar_offsets_log_lag{{{OF_SIDECARS}}})", "{{instance}}"),
        ),
        graph(
            "Records read",
            "Records that were read, offsets that the broker removed without a client's request, and skipped records"
            " of an unknown kind.",
            Query(rate("offsets_log_records_total"), "read"),
            Query(rate("offsets_expired_total"), "offsets expired"),
            Query(rate("offsets_log_records_skipped_total", "key_type"), "skipped, key type {{key_type}}"),
            unit="ops",
        ),
        graph(
            "Time to load a partition",
            "The 99th percentile of the load times of the partitions that were loaded in the last quarter of an hour.",
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
            "Open client connections. Each has its own connection to the broker.",
            Query(each("group_sidecar_client_connections"), "{{instance}}"),
        ),
        graph(
            "Connections opened and closed",
            "Accepted client connections, and closed ones by reason.",
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
            "Bytes of incomplete frames, of remembered answers, and of the flight recorder. Each has a limit.",
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
            "Records that the journal wrote, by outlet, and those that it dropped, by reason.",
            Query(rate("records_written_total", "outlet"), "written, {{outlet}}"),
            Query(rate("records_dropped_total", "outlet, reason"), "dropped, {{outlet}}, {{reason}}"),
            unit="ops",
        ),
        graph(
            "Time since the last write",
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
            "Cores in use. A sidecar uses at most one.",
            Query(
                f"sum by (instance) (rate(process_cpu_seconds_total{{{OF_SIDECARS}}}[$__rate_interval]))",
                "{{instance}}",
            ),
            unit="percentunit",
        ),
        graph("Memory", "Resident memory.", Query(each("process_resident_memory_bytes"), "{{instance}}"), unit="bytes"),
        graph(
            "Descriptors",
            "Share of the allowed file descriptors that are open. Each client connection takes two.",
            Query(
                f"max by (instance) (process_open_fds{{{OF_SIDECARS}}} / process_max_fds{{{OF_SIDECARS}}})",
                "{{instance}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Time to build the metrics",
            "Time taken to build the metrics of a scrape.",
            Query(f"max by (instance) (group_sidecar_collect_duration_seconds{{{OF_SIDECARS}}})", "{{instance}}"),
            unit="s",
        ),
    ),
)

DASHBOARD = Dashboard(
    "sidecar",
    "Kafka groups: sidecars",
    "The sidecars themselves: requests, local answers, the coordinator's log, the journal, the process.",
    (CLUSTER, JOB, INSTANCE),
    (NOW, REQUESTS, ANSWERS, LOG, CONNECTIONS, OUTLET, PROCESS),
)
