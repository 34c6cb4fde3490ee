"""Tests of `coordinator/log`."""
