"""The list of targets."""

from tests.fuzzing import (
    admin_http,
    client_hellos,
    compressed_data,
    configuration,
    journal_lines,
    messages,
    offsets_log,
    offsets_topic,
    proxy_headers,
    record_batches,
    scans,
    sessions,
    tls_records,
)
from tests.fuzzing.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("sessions", sessions.check, sessions.seeds, is_compiled=True),
        Target("messages", messages.check, messages.seeds),
        Target("scans", scans.check, scans.seeds, is_compiled=True),
        Target("record_batches", record_batches.check, record_batches.seeds),
        Target("compressed_data", compressed_data.check, compressed_data.seeds, max_bytes=1 << 16),
        Target("offsets_topic", offsets_topic.check, offsets_topic.seeds),
        Target("offsets_log", offsets_log.check, offsets_log.seeds, is_compiled=True),
        Target("proxy_headers", proxy_headers.check, proxy_headers.seeds),
        Target("client_hellos", client_hellos.check, client_hellos.seeds),
        Target("tls_records", tls_records.check, tls_records.seeds, is_compiled=True),
        Target("configuration", configuration.check, configuration.seeds, words=configuration.words),
        Target("admin_http", admin_http.check, admin_http.seeds, words=admin_http.words),
        Target("journal_lines", journal_lines.check, journal_lines.seeds),
    )
}
