"""Manifests for Kubernetes. `python -m deploy.kubernetes` writes the PrometheusRule from deploy/prometheus.

All other manifests are written by hand.
"""
