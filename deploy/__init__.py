"""What is deployed with the sidecar: rules for Prometheus, dashboards for Grafana, manifests for Kubernetes."""
