"""Tests of `coordinator/wire`."""
