"""Tests of `proxy/admin`."""
