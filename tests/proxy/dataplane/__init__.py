"""Tests of `proxy/dataplane`."""
