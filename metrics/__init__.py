"""What is told: Prometheus metrics, and the journal of records for Spark.

This room listens. The data path bumps `traffic.Traffic`, facts go to `instruments.Instruments`, and
`collector.scrape` walks the groups at each scrape. It does no network I/O and changes nothing in
the coordinator. `families` names every metric once; `docs/metrics.md` is generated from it by
``python -m group_sidecar.metrics``.
"""
