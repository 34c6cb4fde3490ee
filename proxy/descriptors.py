"""How many files and sockets the process may have open.

Owns: that they suffice for all connections, as far as the system allows. Must not know: what a connection is.
"""

import resource

from group_sidecar.proxy.logs import log

OWN = 64
"""Descriptors beside those of connections, each of which takes two."""


def raise_descriptor_limit(connections: int) -> None:
    """Raises the limit where it is too low for so many connections; says so where that cannot be."""
    needed = 2 * connections + OWN
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            log.warning("too few descriptors for all connections", have=soft, need=needed, hint="raise ulimit -Hn")
