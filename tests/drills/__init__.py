"""Restart drills: they measure what real clients notice while sidecars and brokers restart one after the other.

`__main__` is the command line. `clients` runs the client programs of the matrix, `producer` feeds them, and `measures`
evaluates what they report. `restarts` has the kinds of restarts, and `run` puts a drill together.
"""
