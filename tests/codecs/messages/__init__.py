"""Tests of single messages, beyond what all messages have in common."""
