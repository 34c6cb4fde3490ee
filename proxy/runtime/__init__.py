"""Parts that every package of the proxy may use. These parts import no other package of the proxy.

- `addresses`: HOST:PORT, and which local port belongs to which broker of a gateway
- `backoff`: computes when a failed attempt is repeated
- `supervision`: restarts, counts and logs background tasks that fail
- `service_manager`: reports the state of the process to systemd
- `logging`, `log_throttle`, `event_log`: the log on standard error, its repeated lines, and the lines about groups
- `os_errors`: the reasons of errors of the operating system, as text
- `scrape`, `shared_snapshot`: long walks over all groups, in slices between frames and shared by several callers
- `garbage_collection`: keeps Python's collector from pausing the data path
- `compiled_modules`: reports modules that run uncompiled
- `token_bucket`: limits how often something happens
- `wall_clock`: converts the copy's monotonic times to the system's clock
"""
