"""Counters, families and their exposition; the journal and its records."""
