"""The list of targets."""

from tests.fuzzing.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("sessions", is_compiled=True),
        Target("messages"),
        Target("scans", is_compiled=True),
        Target("record_batches"),
        Target("compressed_data", max_bytes=1 << 16),
        Target("offsets_topic"),
        Target("offsets_log", is_compiled=True),
        Target("proxy_headers"),
        Target("client_hellos"),
        Target("tls_records", is_compiled=True),
        Target("configuration"),
        Target("admin_http"),
        Target("journal_lines"),
    )
}
