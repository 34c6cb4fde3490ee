"""Tests of `proxy/broker`."""
