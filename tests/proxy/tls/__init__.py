"""Tests of `proxy/tls`."""
