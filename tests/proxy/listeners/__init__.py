"""Tests of `proxy/listeners`."""
