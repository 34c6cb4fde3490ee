"""Tests of `coordinator/state`."""
