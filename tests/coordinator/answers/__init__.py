"""Tests of `coordinator/answers`."""
