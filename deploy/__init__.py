"""Files for installing: Prometheus rules, Grafana dashboards, Kubernetes manifests, the Debian package and others."""
