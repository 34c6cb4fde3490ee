"""Tests of the copy of the coordinator: events, exchanges and answers, and a comparison with a simple model."""
