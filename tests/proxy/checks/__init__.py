"""Tests of `proxy/checks`."""
