"""Measures what the sidecar costs. Each number is compared with a direct connection in the same run."""
