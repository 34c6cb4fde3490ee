"""Prometheus metrics, the flight recorder, and the journal's records.

The package only observes. The package does no network I/O, and changes nothing in the coordinator.

- `families`, `metric_family`: every metric family, declared once; docs/metrics.md is generated from them
- `traffic_counters`, `listener_counters`, `admin_counters`: counters of requests, of each listener's connections, and
  of the admin port
- `installed_version`: the version of the sidecar
- `fact_counters`, `log_read_counters`: counters of facts, and of the log's reader
- `collector`, `detail_rows`, `exposition`: a scrape, its rows per group and partition, and its text formats
- `series_limit`: which rows a scrape leaves out at the limit on series
- `group_snapshot`: one walk over all groups, for scrapes, pages and records
- `flight_recorder`, `refusal_totals`, `rebalance_explanation`: the latest facts of each group, and why it rebalanced
- `records`, `array_lines`: the record contract, and lines with many records
- `record_builder`, `journal_segments`: how facts become records, and the files on disk
- `records_schema`: the record contract as a JSON Schema; docs/records.schema.json is generated from it
"""
