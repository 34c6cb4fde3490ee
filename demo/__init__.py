"""A demo of the whole product in the terminal: an embedded cluster, a sidecar, clients and Spark.

Only this package may import all other top-level packages. No other package imports the demo.

- `scenarios`: the steps of the demo; each step queries the running system, and prints and checks the result
- `cluster`, `gateway`, `group_clients`: the embedded cluster, the sidecar, and the clients
- `demo_output`: headings, tables and check marks on the terminal
"""
