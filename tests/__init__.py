"""Tests, room by room; `kafka/` starts real brokers, `conformance/` compares with them."""
