"""A demo of the whole product in the terminal: an embedded cluster, a sidecar, clients and Spark.

Only this package may import from all other rooms. Nothing imports it.

- `scenarios`: the steps of the demo; each queries the running system, prints the result and checks it
- `cluster`, `gateway`, `group_clients`: the embedded cluster, the sidecar, and the clients
- `demo_output`: headings, tables and check marks on the terminal
"""
