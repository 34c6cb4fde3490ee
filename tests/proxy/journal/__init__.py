"""Tests of `proxy/journal`."""
