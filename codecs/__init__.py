"""What the bytes mean.

This room imports nothing of the project, does no I/O, reads no clock and writes no log. It turns
bytes into immutable messages and back, for the APIs and versions that `registry` lists.
"""
