"""The whole product in the terminal: an embedded cluster, a sidecar before it, a crowd of clients, Spark.

The only room that may import from all others. Nothing imports it.
"""
