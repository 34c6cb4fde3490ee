"""The commands ``group-sidecar groups``, ``fleet`` and ``healthcheck``. The proxy itself does not import this package.

- `groups`, `options`, `target`: the commands, their flags, and the broker or the sidecars that they query. These
  modules import little, so that `--help` is fast
- `client_properties`, `java_properties`: the file of `--command-config`, and its syntax
- `queries`: runs a command's query against the target
- `exit_codes`: prints the problems of a command, and ends the program with the exit code for them
- `broker_queries`, `sidecar_queries`: queries over Kafka's protocol, and over the admin ports of sidecars
- `broker_connections`: connects to brokers, and reports a port of another protocol
- `results`: the results of both kinds of queries
- `output`, `why`, `tables`, `times`: print results
- `top`, `ranking`, `keyboard`: the live view
- `completion`: group names for the shell
- `fleet`: replaces this process by the fleet job
- `healthcheck`: asks the admin port of this machine's sidecar whether the sidecar works
"""
