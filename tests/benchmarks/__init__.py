"""Tests of how the benchmarks process their figures. No test measures anything."""
