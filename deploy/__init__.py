"""What is deployed beside the sidecar: rules for Prometheus, dashboards for Grafana."""
