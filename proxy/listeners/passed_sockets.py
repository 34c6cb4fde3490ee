"""The sockets that a service manager or a predecessor has passed to this process.

The command line uses this module before it imports the rest of the sidecar, so this module imports little.
"""

import errno
import os
import socket
from collections.abc import Mapping
from typing import NamedTuple

from group_sidecar.proxy.listeners.acceptor import tune

PREDECESSOR = "predecessor"
"""The name of the passed socket that is connected to the predecessor (module `predecessor`)."""
FIRST_PASSED_FD = 3
"""The first descriptor that a service manager passes (sd_listen_fds(3))."""


class PassedSocket(NamedTuple):
    """A socket that one process passes to another. `name`: as in LISTEN_FDNAMES, empty if there is none."""

    name: str
    socket: socket.socket


def passed_sockets(environment: Mapping[str, str]) -> list[PassedSocket]:
    """Returns the sockets that a service manager has passed to this process (sd_listen_fds(3))."""
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = environment.get("LISTEN_FDS", "")
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    found = []
    for index in range(int(count) if count.isdecimal() else 0):
        try:
            passed = socket.socket(fileno=FIRST_PASSED_FD + index)
        except OSError as error:
            if error.errno == errno.EBADF:
                break  # Passed descriptors follow each other without a gap, so LISTEN_FDS is too large.
            continue  # The descriptor is no socket.
        passed.set_inheritable(False)
        passed.setblocking(False)
        if is_listening(passed):
            tune(passed)  # Accepted sockets inherit the options.
        found.append(PassedSocket(names[index] if index < len(names) else "", passed))
    return found


def take_predecessor(passed: list[PassedSocket]) -> socket.socket | None:
    """Removes the socket that leads to the predecessor from the passed sockets. Returns None if there is none."""
    for each in passed:
        if each.name == PREDECESSOR and each.socket.family == socket.AF_UNIX:
            passed.remove(each)
            return each.socket
    return None


def is_listening(sock: socket.socket) -> bool:
    """Whether a socket listens for TCP connections."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
        return False
    try:
        return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False
