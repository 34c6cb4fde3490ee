"""Grafana dashboards. Users import the JSON files, which `python -m deploy.grafana` writes."""
