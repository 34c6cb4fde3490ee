"""Tests of what the benchmarks make of their figures; none of them measures."""
