"""Framing, sessions, the shell that moves bytes, and the admin port."""
