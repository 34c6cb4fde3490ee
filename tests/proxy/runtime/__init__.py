"""Tests of `proxy/runtime`."""
