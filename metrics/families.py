"""Declares every metric family of the sidecar: name, type, labels, HELP and level of detail.

Rules from Prometheus' naming and instrumentation guides: base units, the unit before ``_total``, ``_total`` for
counters only. No label contains a client id, a member id or a host. There is no broker label either: each sidecar
belongs to one broker, so the broker is a label of the scrape target.

The module has more than 400 lines because it is the one list of all families.
"""

from group_sidecar.metrics.metric_family import Detail, Family, MetricType


def _counter(name: str, help: str, *labels: str, detail: Detail = Detail.NONE) -> Family:
    return Family(name, MetricType.COUNTER, help, labels, detail)


def _gauge(name: str, help: str, *labels: str, detail: Detail = Detail.NONE) -> Family:
    return Family(name, MetricType.GAUGE, help, labels, detail)


def _histogram(name: str, help: str, *labels: str) -> Family:
    return Family(name, MetricType.HISTOGRAM, help, labels)


# Groups.
GROUPS = _gauge("groups", "Groups known, by protocol and state (Kafka: group-count).", "protocol", "state")
GROUP_MAX_SIZE = _gauge(
    "group_max_size",
    "Most members that a group may have where nothing else is set for it (Kafka: group.max.size); none without limit.",
)
GROUPS_NEAR_LIMIT = _gauge(
    "groups_near_limit",
    "Groups that have 90 % or more of the members they may have, and no more than that (Kafka: group.max.size).",
)
GROUPS_OVER_LIMIT = _gauge(
    "groups_over_limit", "Groups that have more members than they may have (Kafka: group.max.size)."
)
REBALANCES = _counter(
    "rebalances_total", "Rebalances completed (Kafka: group-completed-rebalance-count), by what caused them.", "reason"
)
REBALANCES_STARTED = _counter(
    "rebalances_started_total", "Times a group entered PreparingRebalance, by what caused it.", "reason"
)
REBALANCE_DURATION = _histogram(
    "rebalance_duration_seconds", "Time from a rebalance's first JoinGroup to the last SyncGroup reply it needed."
)
MEMBERS_JOINED = _counter("members_joined_total", "Members that were new to their group (Kafka: JoinGroup).")
MEMBERS_REMOVED = _counter(
    "members_removed_total", "Members that went, by how (Kafka: LeaveGroup, session expiry, fencing).", "reason"
)
OFFSET_COMMITS = _counter(
    "offset_commits_total", "Partition offsets that the broker accepted (Kafka: offset-commit-count)."
)
OFFSET_COMMIT_FAILURES = _counter(
    "offset_commit_failures_total", "Partition offsets that the broker refused (Kafka: OffsetCommit errors).", "error"
)

# One series or more per group.
GROUP_INFO = Family(
    "group_info",
    MetricType.INFO,
    "What a group is now (Kafka: DescribeGroups); to be joined with its other series.",
    ("group", "protocol", "state", "protocol_type", "assignor"),
    Detail.GROUP,
)
GROUP_MEMBERS = _gauge(
    "group_members",
    "Members of a group; none while not all of them are known (Kafka: DescribeGroups).",
    "group",
    detail=Detail.GROUP,
)
GROUP_MEMBERS_LIMIT = _gauge(
    "group_members_limit",
    "Most members that a group may have; none without limit (Kafka: group.max.size, group.consumer.max.size).",
    "group",
    detail=Detail.GROUP,
)
GROUP_MEMBERS_UNASSIGNED = _gauge(
    "group_members_unassigned",
    "Members of a stable group that have no partition (Kafka: ConsumerProtocolAssignment).",
    "group",
    detail=Detail.GROUP,
)
GROUP_LAST_REBALANCE = _gauge(
    "group_last_rebalance_timestamp_seconds",
    "When a group's last rebalance completed, seconds since the epoch; none before the first one seen.",
    "group",
    detail=Detail.GROUP,
)
GROUP_REBALANCES = _counter(
    "group_rebalances_total",
    "Rebalances completed by a group (Kafka: group-completed-rebalance-count), by what caused them.",
    "group",
    "reason",
    detail=Detail.GROUP,
)
GROUP_OFFSET_COMMITS = _counter(
    "group_offset_commits_total",
    "Partition offsets of a group that the broker accepted (Kafka: offset-commit-count).",
    "group",
    detail=Detail.GROUP,
)
GROUP_LAG = _gauge(
    "group_lag",
    "Sum of a group's lag over the partitions where a commit and a log end were seen (Kafka: records-lag).",
    "group",
    detail=Detail.GROUP,
)
GROUP_LAG_SEEN = _gauge(
    "group_lag_timestamp_seconds",
    "When the log ends that group_lag tells of were seen, the oldest of them (Kafka: LogEndOffset), seconds since the "
    "epoch.",
    "group",
    detail=Detail.GROUP,
)
GROUP_LAG_UNKNOWN = _gauge(
    "group_lag_unknown_partitions",
    "Partitions with a commit of a group whose log end was not seen; group_lag leaves them out (Kafka: ListOffsets).",
    "group",
    detail=Detail.GROUP,
)
GROUP_TOPIC_LAG = _gauge(
    "group_topic_lag",
    "Sum of a group's lag over the partitions of a topic (Kafka: records-lag).",
    "group",
    "topic",
    detail=Detail.TOPIC,
)
GROUP_TOPIC_LAG_SEEN = _gauge(
    "group_topic_lag_timestamp_seconds",
    "When the log ends that group_topic_lag tells of were seen, the oldest of them (Kafka: LogEndOffset), seconds "
    "since the epoch.",
    "group",
    "topic",
    detail=Detail.TOPIC,
)
LAST_COMMIT = _gauge(
    "last_commit_timestamp_seconds",
    "When a group last committed an offset of a topic (Kafka: OffsetCommit), seconds since the epoch.",
    "group",
    "topic",
    detail=Detail.TOPIC,
)
GROUP_ASSIGNED_PARTITIONS = _gauge(
    "group_assigned_partitions",
    "Partitions of a topic that the members of a stable group have (Kafka: ConsumerProtocolAssignment).",
    "group",
    "topic",
    detail=Detail.TOPIC,
)
UNCOMMITTED_PARTITIONS = _gauge(
    "uncommitted_partitions",
    "Partitions among those assigned for which the group has committed nothing (Kafka: OffsetFetch's -1).",
    "group",
    "topic",
    detail=Detail.TOPIC,
)
GROUP_PARTITION_LAG = _gauge(
    "group_partition_lag",
    "Log end less committed offset, never below 0; none where either is unknown (Kafka: records-lag).",
    "group",
    "topic",
    "partition",
    detail=Detail.PARTITION,
)
COMMITTED_OFFSET = _gauge(
    "committed_offset",
    "Offset that a group last committed (Kafka: OffsetFetch).",
    "group",
    "topic",
    "partition",
    detail=Detail.PARTITION,
)
LOG_END_OFFSET = _gauge(
    "log_end_offset",
    "Log end of a partition as last seen passing by (Kafka: LogEndOffset).",
    "topic",
    "partition",
    detail=Detail.PARTITION,
)
LOG_END_SEEN = _gauge(
    "log_end_offset_timestamp_seconds",
    "When the log end of a partition was seen (Kafka: LogEndOffset), seconds since the epoch.",
    "topic",
    "partition",
    detail=Detail.PARTITION,
)
LOG_START_OFFSET = _gauge(
    "log_start_offset",
    "Log start of a partition as last seen: what is before it was deleted (Kafka: LogStartOffset).",
    "topic",
    "partition",
    detail=Detail.PARTITION,
)

# The copy of the coordinator.
MIRROR_ANSWERS = _counter(
    "mirror_answers_total", "Requests answered from the sidecar's own copy of the group coordinator.", "api"
)
MIRROR_ANSWERS_REMEMBERED = _counter(
    "mirror_answers_remembered_total", "Of these answers, how many had been encoded before and still held.", "api"
)
REMEMBERED_RIGHTS = _gauge("remembered_rights", "What brokers' authorizers have granted lately, by user and resource.")
REMEMBERED_BYTES = _gauge("remembered_bytes", "Bytes of questions and of encoded answers that are kept.")
MIRROR_VERIFICATIONS = _counter(
    "mirror_verifications_total",
    "Of these answers, those compared with the broker's, by what came of it.",
    "api",
    "result",
)
MIRROR_DIVERGENCES = _counter(
    "mirror_divergences_total",
    "Of the answers compared, those of which the broker said something else of a group that had not changed.",
    "api",
)
MIRROR_DISTRUSTED = _gauge(
    "mirror_distrusted_groups", "Groups left to the broker because it was found to say something else of them."
)
MIRROR_FALLBACKS = _counter(
    "mirror_fallbacks_total", "Requests left to the broker because the copy could not be used.", "api", "reason"
)
MIRROR_RELAYS = _counter(
    "mirror_relays_total",
    "Of these requests, those in a version that the broker lacks: it was asked in versions that it has.",
    "api",
)
BYPASSING_RECORDS = _counter(
    "bypassing_records_total",
    "Commits and members in __consumer_offsets whose requests did not pass, although answers.exclusive is true.",
    "kind",
)
MIRROR_READY = _gauge("mirror_ready", "1 while the copy of the group coordinator is ready to answer, else 0.")
REFUSING_BROKERS = _gauge(
    "refusing_brokers",
    "Brokers that are reached and refuse the sidecar's own connection: its TLS, its credentials, its questions, or the "
    "right to read __consumer_offsets.",
)

# Reading the coordinator's log.
OFFSETS_LOG_PARTITIONS = _gauge(
    "offsets_log_partitions",
    "Partitions of __consumer_offsets that the broker leads, by state (Kafka: num-partitions).",
    "state",
)
OFFSETS_LOG_LOAD_DURATION = _histogram(
    "offsets_log_load_duration_seconds",
    "Time that a partition of __consumer_offsets took to load (Kafka: partition-load-time-max).",
)
OFFSETS_LOG_LAG = _gauge(
    "offsets_log_lag",
    "Records that the sidecar is behind in __consumer_offsets, in the partition furthest behind (Kafka: records-lag).",
)
OFFSETS_LOG_RECORDS = _counter(
    "offsets_log_records_total", "Records read from __consumer_offsets (Kafka: records-consumed-total)."
)
OFFSETS_LOG_RECORDS_SKIPPED = _counter(
    "offsets_log_records_skipped_total",
    "Records of __consumer_offsets whose key is of a type that the sidecar does not know.",
    "key_type",
)
OFFSETS_EXPIRED = _counter(
    "offsets_expired_total", "Offsets that the broker removed of itself (Kafka: offset-expiration-count)."
)

# Policies.
POLICY_EVALUATIONS = _counter("policy_evaluations_total", "Requests that a policy judged.", "policy")
POLICY_REJECTIONS = _counter(
    "policy_rejections_total", "Requests that a policy refused, by Kafka error.", "policy", "error"
)
POLICY_AUDITED_REJECTIONS = _counter(
    "policy_audited_rejections_total",
    "Requests that a policy in audit mode let pass and would have refused, by Kafka error.",
    "policy",
    "error",
)
POLICY_BROKER_REJECTIONS = _counter(
    "policy_broker_rejections_total",
    "Requests that the broker itself refused, wholly or in part, by the same rule as a policy, in force or not, "
    "by Kafka error.",
    "policy",
    "error",
)
POLICY_CONFIRMATIONS = _counter(
    "policy_confirmations_total",
    "Times that the broker was asked about a group before a policy's verdict (Kafka: DescribeGroups).",
    "policy",
)

# Traffic.
CLIENT_CONNECTIONS = _gauge("client_connections", "Client connections open (Kafka: connection-count).", "listener")
CONNECTIONS_OPENED = _counter(
    "client_connections_opened_total", "Client connections accepted (Kafka: connection-creation-total).", "listener"
)
CONNECTIONS_CLOSED = _counter(
    "client_connections_closed_total",
    "Client connections ended, by why (Kafka: connection-close-total).",
    "listener",
    "reason",
)
ACCEPT_THROTTLED = _counter(
    "accept_throttled_seconds_total",
    "Seconds without accepting, for limits.accept_rate (Kafka: connection-accept-throttle-time).",
    "listener",
)
READ_PAUSES = _counter(
    "client_read_pauses_total", "Times that a limit stopped the reading of a client.", "listener", "limit"
)
UPSTREAM_CONNECT_FAILURES = _counter(
    "upstream_connect_failures_total", "Failed attempts to connect to the broker for a client.", "listener"
)
TLS_CONNECTIONS = _counter(
    "tls_connections_total",
    "Client connections that began with TLS where plain Kafka is expected: a sidecar passes them unread, a gateway "
    "closes them.",
    "listener",
)
TLS_HANDSHAKES = _counter(
    "tls_handshakes_total",
    "TLS handshakes done, with clients and with the broker (Kafka: successful-authentication-total).",
    "listener",
    "side",
)
TLS_HANDSHAKE_FAILURES = _counter(
    "tls_handshake_failures_total",
    "TLS handshakes that failed, with clients and with the broker, by reason (Kafka: failed-authentication-total).",
    "listener",
    "side",
    "reason",
)
CERTIFICATE_NOT_AFTER = _gauge(
    "certificate_not_after_timestamp_seconds",
    "The earliest expiry, in seconds since the epoch, of the certificates and their chains that a listener presents to "
    "clients (client) or to the broker (upstream), or that the sidecar presents at its admin port (admin_access) or on "
    "its own connection (own_connection).",
    "listener",
    "side",
)
RECEIVED_BYTES = _counter(
    "received_bytes_total", "Bytes received from clients (Kafka: incoming-byte-total).", "listener"
)
SENT_BYTES = _counter("sent_bytes_total", "Bytes sent to clients (Kafka: outgoing-byte-total).", "listener")
HELD_BYTES = _gauge("held_bytes", "Bytes held for connections: unfinished frames, and requests until their replies.")
TABLE_ENTRIES = _gauge("table_entries", "Entries of a table that grows with what clients send, by table.", "table")
TABLE_BYTES = _gauge(
    "table_bytes", "Bytes, roughly, of a table that grows with what clients send, by table; each has a bound.", "table"
)
RECORDED_BYTES = _gauge("flight_recorder_bytes", "Bytes, roughly, of what is kept of each group's past.")
REQUESTS = _counter("requests_total", "Requests done, by API (Kafka: RequestMetrics).", "api")
REQUEST_DURATION = _histogram(
    "request_duration_seconds",
    "Time from a request's arrival to the start of its reply, by API (Kafka: RequestMetrics TotalTimeMs).",
    "api",
)
DECODE_FAILURES = _counter(
    "decode_failures_total", "Requests or replies that did not decode and were forwarded as they came.", "api"
)

# The outlet of records.
RECORDS_WRITTEN = _counter(
    "records_written_total", "Records that the journal wrote for Spark, by outlet: folder or topic.", "outlet"
)
RECORDS_DROPPED = _counter(
    "records_dropped_total", "Records that an outlet of the journal dropped, by why.", "outlet", "reason"
)
RECORDS_WRITE_FAILURES = _counter(
    "records_write_failures_total",
    "Failed attempts of an outlet of the journal to write; what it holds is written later.",
    "outlet",
)
RECORDS_LAST_FLUSH = _gauge(
    "records_last_flush_timestamp_seconds",
    "When an outlet of the journal last handed records to the disk, or the broker acknowledged some, seconds since the "
    "epoch; none before the first time.",
    "outlet",
)

# The admin port.
ADMIN_TOKEN_REFUSALS = _counter(
    "admin_token_refusals_total", "Requests to the admin port refused because of their token, by reason.", "reason"
)

# The background tasks.
TASK_FAILURES = _counter(
    "task_failures_total",
    "Failures of a background task of the sidecar, and failed successors (hand_over); the log has the cause.",
    "task",
)

# The settings.
CONFIG_LAST_RELOAD_SUCCESSFUL = _gauge(
    "config_last_reload_successful",
    "1 while the settings that were last read are in force, else 0 (Prometheus: config_last_reload_successful).",
)
CONFIG_LAST_RELOAD_SUCCESS = _gauge(
    "config_last_reload_success_timestamp_seconds",
    "When settings were last read and put into force, seconds since the epoch.",
)

# The metrics themselves.
BUILD_INFO = Family("build_info", MetricType.INFO, "Version of the sidecar.", ("version",))
SERIES_SUPPRESSED = _gauge("series_suppressed", "Series left out of this scrape because the series limit was reached.")
COLLECT_DURATION = _gauge(
    "collect_duration_seconds", "Time that collecting this scrape took, with what was forwarded in between."
)

FAMILIES: tuple[Family, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Family))
"""All of them, in the order of this file."""
