"""Tests of `proxy/offsets_log`."""
