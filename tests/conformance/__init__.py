"""Scenarios run against a real broker directly and through the sidecar, and compared."""
