"""Tests of the `groups` command."""
