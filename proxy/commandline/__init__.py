"""``group-sidecar groups``: what people and scripts ask about groups, and how it is shown.

- `groups`, `options`, `source`: the commands, their flags, whom these name; light, so that `--help` answers at once
- `brokers`, `sidecars`: who is asked, over Kafka's protocol or a sidecar's admin port; `answers`: what comes of it;
  `asking`: which of both, and what went wrong
- `showing`, `reasons`, `tables`, `moments`: what is printed; `top`, `ranking`, `keyboard`: the live view
- `completing`: names of groups for the shell

``group-sidecar fleet`` is in `fleet`: it becomes the fleet job, another process.

Nothing of the proxy itself imports it.
"""
