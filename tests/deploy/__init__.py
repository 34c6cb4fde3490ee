"""The rules and dashboards in deploy/: by promtool, and by a Prometheus that scrapes a sidecar."""
