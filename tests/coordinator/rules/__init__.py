"""Tests of `coordinator/rules`."""
