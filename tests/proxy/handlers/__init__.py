"""Tests of `proxy/handlers`."""
