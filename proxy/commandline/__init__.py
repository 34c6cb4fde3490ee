"""``group-sidecar groups`` and ``group-sidecar fleet``. Nothing of the proxy itself imports this package.

- `groups`, `options`, `target`: the commands, their flags, and which broker or sidecars they address. These modules
  import little, so that `--help` is fast
- `queries`: runs a command's query against the target and reports errors
- `broker_queries`, `sidecar_queries`: queries over Kafka's protocol, and over the admin ports of sidecars
- `results`: the results, from either source
- `output`, `why`, `tables`, `times`: what is printed
- `top`, `ranking`, `keyboard`: the live view
- `completion`: group names for the shell
- `fleet`: becomes the fleet job, in place of this process
"""
