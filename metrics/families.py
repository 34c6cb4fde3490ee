"""Declares every metric family of the sidecar: name, type, labels, HELP and level of detail.

Rules from Prometheus' naming and instrumentation guides: base units, the unit before ``_total``, ``_total`` for
counters only. No label contains a client id, a member id or a host. There is no broker label either: a sidecar beside
one broker gets the broker as a label of the scrape target, and the metrics of a gateway are totals over its brokers.

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
GROUPS = _gauge("groups", "Known groups, by protocol and state (Kafka: group-count).", "protocol", "state")
GROUP_MAX_SIZE = _gauge(
    "group_max_size",
    "The maximum number of members of a group without an override (Kafka: group.max.size); absent if there is no "
    "limit.",
)
GROUPS_NEAR_LIMIT = _gauge(
    "groups_near_limit",
    "Groups with at least 90 % of their maximum number of members, but not more than the maximum (Kafka: "
    "group.max.size).",
)
GROUPS_OVER_LIMIT = _gauge("groups_over_limit", "Groups with more members than their maximum (Kafka: group.max.size).")
REBALANCES = _counter(
    "rebalances_total", "Completed rebalances, by reason (Kafka: group-completed-rebalance-count).", "reason"
)
REBALANCES_STARTED = _counter(
    "rebalances_started_total",
    "Times that a group entered PreparingRebalance, by the reason that was known then.",
    "reason",
)
REBALANCE_DURATION = _histogram(
    "rebalance_duration_seconds",
    "Time from a rebalance's first JoinGroup to the first SyncGroup reply of its generation; of a KIP-848 group, from "
    "the new epoch until each member owns its target assignment.",
)
MEMBERS_JOINED = _counter("members_joined_total", "Members that were new to their group (Kafka: JoinGroup).")
MEMBERS_REMOVED = _counter(
    "members_removed_total",
    "Members that left their group or were removed from it, by reason (Kafka: LeaveGroup, session expiry, fencing).",
    "reason",
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
    "The current protocol, state and assignor of a group (Kafka: DescribeGroups), to be joined with its other series.",
    ("group", "protocol", "state", "protocol_type", "assignor"),
    Detail.GROUP,
)
GROUP_MEMBERS = _gauge(
    "group_members",
    "Members of a group; absent while not all of them are known (Kafka: DescribeGroups).",
    "group",
    detail=Detail.GROUP,
)
GROUP_MEMBERS_LIMIT = _gauge(
    "group_members_limit",
    "The maximum number of members of a group (Kafka: group.max.size, group.consumer.max.size); absent if there "
    "is no limit.",
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
    "Time at which a group's last rebalance completed, in seconds since the epoch; absent before the first "
    "observed rebalance.",
    "group",
    detail=Detail.GROUP,
)
GROUP_REBALANCES = _counter(
    "group_rebalances_total",
    "Completed rebalances of a group, by reason (Kafka: group-completed-rebalance-count).",
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
    "Sum of a group's lag over the partitions with a known committed offset and a known log end (Kafka: records-lag).",
    "group",
    detail=Detail.GROUP,
)
GROUP_LAG_SEEN = _gauge(
    "group_lag_timestamp_seconds",
    "Time at which the oldest log end in group_lag was seen (Kafka: LogEndOffset), in seconds since the epoch.",
    "group",
    detail=Detail.GROUP,
)
GROUP_LAG_UNKNOWN = _gauge(
    "group_lag_unknown_partitions",
    "Partitions with an offset committed by a group, but no known log end; group_lag leaves them out (Kafka: "
    "ListOffsets).",
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
    "Time at which the oldest log end in group_topic_lag was seen (Kafka: LogEndOffset), in seconds since the epoch.",
    "group",
    "topic",
    detail=Detail.TOPIC,
)
LAST_COMMIT = _gauge(
    "last_commit_timestamp_seconds",
    "Time at which a group last committed an offset of a topic (Kafka: OffsetCommit), in seconds since the epoch.",
    "group",
    "topic",
    detail=Detail.TOPIC,
)
GROUP_ASSIGNED_PARTITIONS = _gauge(
    "group_assigned_partitions",
    "Partitions of a topic that are assigned to members of a stable group (Kafka: ConsumerProtocolAssignment).",
    "group",
    "topic",
    detail=Detail.TOPIC,
)
UNCOMMITTED_PARTITIONS = _gauge(
    "uncommitted_partitions",
    "Assigned partitions for which the group has not committed an offset (Kafka: OffsetFetch's -1).",
    "group",
    "topic",
    detail=Detail.TOPIC,
)
GROUP_PARTITION_LAG = _gauge(
    "group_partition_lag",
    "Log end minus committed offset, at least 0 (Kafka: records-lag); absent if one of them is unknown.",
    "group",
    "topic",
    "partition",
    detail=Detail.PARTITION,
)
COMMITTED_OFFSET = _gauge(
    "committed_offset",
    "The offset that a group last committed (Kafka: OffsetFetch).",
    "group",
    "topic",
    "partition",
    detail=Detail.PARTITION,
)
LOG_END_OFFSET = _gauge(
    "log_end_offset",
    "The last observed log end of a partition (Kafka: LogEndOffset).",
    "topic",
    "partition",
    detail=Detail.PARTITION,
)
LOG_END_SEEN = _gauge(
    "log_end_offset_timestamp_seconds",
    "Time at which the log end of a partition was last observed (Kafka: LogEndOffset), in seconds since the epoch.",
    "topic",
    "partition",
    detail=Detail.PARTITION,
)
LOG_START_OFFSET = _gauge(
    "log_start_offset",
    "The last observed log start of a partition (Kafka: LogStartOffset); the records before it were deleted.",
    "topic",
    "partition",
    detail=Detail.PARTITION,
)

# The copy of the coordinator.
MIRROR_ANSWERS = _counter(
    "mirror_answers_total", "Requests that the sidecar answered from its own copy of the group coordinator.", "api"
)
MIRROR_ANSWERS_REMEMBERED = _counter(
    "mirror_answers_remembered_total",
    "Local answers (mirror_answers) that were already encoded and still valid.",
    "api",
)
REMEMBERED_RIGHTS = _gauge(
    "remembered_rights", "Grants of the brokers' authorizers that are remembered, by user and resource."
)
REMEMBERED_BYTES = _gauge("remembered_bytes", "Bytes of encoded answers and their questions that are remembered.")
MIRROR_VERIFICATIONS = _counter(
    "mirror_verifications_total",
    "Local answers (mirror_answers) that were compared with the broker's answer, by result.",
    "api",
    "result",
)
MIRROR_DIVERGENCES = _counter(
    "mirror_divergences_total",
    "Verified local answers that differed from the broker's answer about a group that had not changed meanwhile.",
    "api",
)
MIRROR_DISTRUSTED = _gauge(
    "mirror_distrusted_groups",
    "Groups that are left to the broker because a local answer about them differed from the broker's answer.",
)
MIRROR_FALLBACKS = _counter(
    "mirror_fallbacks_total",
    "Requests that were left to the broker because the copy could not be used, by reason.",
    "api",
    "reason",
)
MIRROR_RELAYS = _counter(
    "mirror_relays_total",
    "Fallbacks (mirror_fallbacks) in a version that the broker lacks, answered by asking the broker in other versions.",
    "api",
)
BYPASSING_RECORDS = _counter(
    "bypassing_records_total",
    "Commits and members in __consumer_offsets whose requests did not pass through the sidecar, although "
    "answers.exclusive is true.",
    "kind",
)
MIRROR_READY = _gauge("mirror_ready", "1 while the copy of the group coordinator is ready to answer, else 0.")
REFUSING_BROKERS = _gauge(
    "refusing_brokers",
    "Brokers that can be reached but refuse the sidecar's own connection: its TLS, its credentials, its "
    "requests, or the right to read __consumer_offsets.",
)

# Reading the coordinator's log.
OFFSETS_LOG_PARTITIONS = _gauge(
    "offsets_log_partitions",
    "Partitions of __consumer_offsets that the broker leads, by state (Kafka: num-partitions).",
    "state",
)
OFFSETS_LOG_LOAD_DURATION = _histogram(
    "offsets_log_load_duration_seconds",
    "Time taken to load a partition of __consumer_offsets (Kafka: partition-load-time-max).",
)
OFFSETS_LOG_LAG = _gauge(
    "offsets_log_lag",
    "The largest number of unread records in one partition of __consumer_offsets (Kafka: records-lag).",
)
OFFSETS_LOG_RECORDS = _counter(
    "offsets_log_records_total", "Records read from __consumer_offsets (Kafka: records-consumed-total)."
)
OFFSETS_LOG_RECORDS_SKIPPED = _counter(
    "offsets_log_records_skipped_total",
    "Records of __consumer_offsets that were skipped because the type of their key is unknown.",
    "key_type",
)
OFFSETS_EXPIRED = _counter(
    "offsets_expired_total",
    "Offsets that the broker removed without a client's request (Kafka: offset-expiration-count).",
)

# Policies.
POLICY_EVALUATIONS = _counter("policy_evaluations_total", "Requests that a policy judged.", "policy")
POLICY_REJECTIONS = _counter(
    "policy_rejections_total", "Requests that a policy refused, by Kafka error.", "policy", "error"
)
POLICY_AUDITED_REJECTIONS = _counter(
    "policy_audited_rejections_total",
    "Requests that passed a policy in audit mode and would have been refused in enforce mode, by Kafka error.",
    "policy",
    "error",
)
POLICY_BROKER_REJECTIONS = _counter(
    "policy_broker_rejections_total",
    "Requests that the broker itself refused, wholly or partly, under the rule that a policy also applies, even if the"
    " policy is off, by Kafka error.",
    "policy",
    "error",
)
POLICY_CONFIRMATIONS = _counter(
    "policy_confirmations_total",
    "Times that the broker was asked about a group before a policy's verdict (Kafka: DescribeGroups).",
    "policy",
)

# Traffic.
CLIENT_CONNECTIONS = _gauge("client_connections", "Open client connections (Kafka: connection-count).", "listener")
CONNECTIONS_OPENED = _counter(
    "client_connections_opened_total", "Accepted client connections (Kafka: connection-creation-total).", "listener"
)
CONNECTIONS_CLOSED = _counter(
    "client_connections_closed_total",
    "Closed client connections, by reason (Kafka: connection-close-total).",
    "listener",
    "reason",
)
ACCEPT_THROTTLED = _counter(
    "accept_throttled_seconds_total",
    "Seconds in which limits.accept_rate stopped the sidecar from accepting clients (Kafka: "
    "connection-accept-throttle-time).",
    "listener",
)
READ_PAUSES = _counter(
    "client_read_pauses_total", "Times that a limit stopped the sidecar from reading a client.", "listener", "limit"
)
UPSTREAM_CONNECT_FAILURES = _counter(
    "upstream_connect_failures_total", "Failed attempts to connect to the broker for a client.", "listener"
)
TLS_CONNECTIONS = _counter(
    "tls_connections_total",
    "Client connections that began with TLS at a listener without TLS: a sidecar forwards their bytes, a gateway "
    "closes them.",
    "listener",
)
TLS_HANDSHAKES = _counter(
    "tls_handshakes_total",
    "Successful TLS handshakes, with clients and with the broker (Kafka: successful-authentication-total).",
    "listener",
    "side",
)
TLS_HANDSHAKE_FAILURES = _counter(
    "tls_handshake_failures_total",
    "Failed TLS handshakes, with clients and with the broker, by reason (Kafka: failed-authentication-total).",
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
HELD_BYTES = _gauge("held_bytes", "Bytes held for connections: incomplete frames, and requests until their replies.")
TABLE_ENTRIES = _gauge("table_entries", "Entries of the tables that grow with what clients send, by table.", "table")
TABLE_BYTES = _gauge(
    "table_bytes",
    "Approximate bytes of the tables that grow with what clients send, by table; each table has a limit.",
    "table",
)
RECORDED_BYTES = _gauge("flight_recorder_bytes", "Approximate bytes of the history of all groups.")
REQUESTS = _counter("requests_total", "Completed requests, by API (Kafka: RequestMetrics).", "api")
REQUEST_DURATION = _histogram(
    "request_duration_seconds",
    "Time from a request's arrival to the start of its reply, by API (Kafka: RequestMetrics TotalTimeMs).",
    "api",
)
DECODE_FAILURES = _counter(
    "decode_failures_total",
    "Requests or replies that could not be decoded and were forwarded unchanged, by API.",
    "api",
)

# The journal's outlets: its folder and its topic.
RECORDS_WRITTEN = _counter(
    "records_written_total", "Records that the journal wrote for Spark, by outlet: its folder or its topic.", "outlet"
)
RECORDS_DROPPED = _counter(
    "records_dropped_total",
    "Records that the journal dropped, by outlet (folder or topic) and reason.",
    "outlet",
    "reason",
)
RECORDS_WRITE_FAILURES = _counter(
    "records_write_failures_total",
    "Failed attempts of the journal to write, by outlet (folder or topic); the records are written later.",
    "outlet",
)
RECORDS_LAST_FLUSH = _gauge(
    "records_last_flush_timestamp_seconds",
    "Time at which the journal last handed records to the disk (outlet folder), or at which the broker last "
    "acknowledged records (outlet topic), in seconds since the epoch; absent before the first time.",
    "outlet",
)

# The admin port.
ADMIN_TOKEN_REFUSALS = _counter(
    "admin_token_refusals_total", "Requests that the admin port refused because of their token, by reason.", "reason"
)

# The background tasks.
TASK_FAILURES = _counter(
    "task_failures_total",
    "Failures of the sidecar's background tasks, and failed successors (hand_over); the log has the cause.",
    "task",
)

# The settings.
CONFIG_LAST_RELOAD_SUCCESSFUL = _gauge(
    "config_last_reload_successful",
    "1 if the settings that were last read are in force, else 0 (Prometheus: config_last_reload_successful).",
)
CONFIG_LAST_RELOAD_SUCCESS = _gauge(
    "config_last_reload_success_timestamp_seconds",
    "Time at which settings were last read and put into force, in seconds since the epoch.",
)

# The metrics themselves.
BUILD_INFO = Family("build_info", MetricType.INFO, "The sidecar's version.", ("version",))
SERIES_SUPPRESSED = _gauge("series_suppressed", "Series that this scrape left out because of the limit metrics.series.")
COLLECT_DURATION = _gauge(
    "collect_duration_seconds",
    "Time taken to collect this scrape, including the time for frames that were forwarded in between.",
)

FAMILIES: tuple[Family, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Family))
"""All families, in the order of this file."""
