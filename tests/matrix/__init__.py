"""The compatibility matrix: real clients and frameworks against real brokers, directly and through the sidecar.

``python -m tests.matrix`` runs it and writes docs/compatibility.md. The client programs are in `clients`.
"""
