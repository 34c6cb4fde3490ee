"""Grafana's dashboards. The JSON files are what is imported; `python -m deploy.grafana` writes them."""
