"""Tests of counters, families and their exposition, and of the journal and its records."""
