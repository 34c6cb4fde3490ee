"""Tests the rules and dashboards in deploy/ with promtool, and with a Prometheus that scrapes a sidecar."""
