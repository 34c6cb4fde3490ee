"""Tests of the policies: each rule as a table of cases, and its consequences as properties."""
