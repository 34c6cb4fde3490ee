"""Runs scenarios with a real broker, directly and through the sidecar, and compares the results."""
