"""Tests of framing, sessions, the I/O shell that moves bytes, and the admin port."""
