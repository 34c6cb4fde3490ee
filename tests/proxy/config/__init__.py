"""Tests of `proxy/config`."""
