"""How many files and sockets the process may have open, and how many client connections that allows.

Owns: raising the soft limit of the process as far as it is needed and allowed. It does not know what a connection is.
"""

import resource

from group_sidecar.proxy.logs import log
from group_sidecar.proxy.sections import Limits

OWN = 256
"""Descriptors beside those of client connections: those of the admin port, of the sidecar's own connections, of files
and of a gateway's listeners."""
PER_CONNECTION = 2
"""A client's socket and the broker's."""


def allowed_connections(limits: Limits) -> int:
    """Raises the limit of descriptors where it is too low, and returns how many client connections fit into it.

    These are `limits.connections` at most. Where the system allows fewer, an operator who has asked for more is warned;
    the default is as many as there can be.
    """
    needed = PER_CONNECTION * limits.connections + OWN
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limits.connections
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft >= needed:
        return limits.connections
    allowed = max(1, (soft - OWN) // PER_CONNECTION)
    if "connections" in limits.model_fields_set:
        log.warning(
            "too few descriptors for all connections",
            connections=allowed,
            have=soft,
            need=needed,
            hint="raise ulimit -Hn",
        )
    return allowed
