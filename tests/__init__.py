"""Tests, with one folder per room. `kafka/` starts real brokers. `conformance/` compares the sidecar with them."""
