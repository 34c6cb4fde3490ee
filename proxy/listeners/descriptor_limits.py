"""Raises the process's limit on open files, and computes how many client connections the limit allows."""

import resource

from group_sidecar.proxy.config.limits_section import Limits
from group_sidecar.proxy.runtime.logging import log

OTHER_DESCRIPTORS = 256
"""The number of descriptors for purposes other than client connections: the admin port, the sidecar's own connections,
files and a gateway's listeners."""
PER_CONNECTION = 2
"""Descriptors of each client connection: the client's socket and the broker's socket."""


def allowed_connections(limits: Limits) -> int:
    """Raises the limit on descriptors if the limit is too low, and returns how many client connections the limit
    allows.

    The result is at most `limits.connections`. If the system allows fewer connections than an operator has configured,
    a warning is logged. No warning is logged for the default of `limits.connections`.
    """
    needed = PER_CONNECTION * limits.connections + OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limits.connections
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft >= needed:
        return limits.connections
    allowed = max(1, (soft - OTHER_DESCRIPTORS) // PER_CONNECTION)
    if "connections" in limits.model_fields_set:
        log.warning(
            "too few descriptors for all connections",
            connections=allowed,
            have=soft,
            need=needed,
            hint="raise ulimit -Hn",
        )
    return allowed
