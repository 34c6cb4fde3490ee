"""Passed sockets: which descriptors of this process they are. tests/proxy/test_systemd.py passes them to a process."""

import fcntl
import os
import socket
from contextlib import ExitStack

import pytest

from group_sidecar.proxy.listeners import passed_sockets

UNUSED_FD = 800
"""This descriptor and the next ones are not open in a test run."""


@pytest.mark.parametrize(
    "environment",
    [{}, {"LISTEN_FDS": "1"}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_PID": "x", "LISTEN_FDS": "1"}],
)
def test_sockets_of_other_processes_are_ignored(environment: dict[str, str]) -> None:
    """Nothing is passed if LISTEN_PID is not the id of this process."""
    assert passed_sockets.passed_sockets(environment) == []


def test_too_large_number_ends_at_the_first_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors after the first one that is not open are not tried, however large LISTEN_FDS is."""
    with ExitStack() as stack:
        first = stack.enter_context(socket.socket())
        number = fcntl.fcntl(first.fileno(), fcntl.F_DUPFD, UNUSED_FD)
        os.dup2(first.fileno(), number + 2)
        stack.callback(os.close, number + 2)
        monkeypatch.setattr(passed_sockets, "FIRST_PASSED_FD", number)
        [found] = passed_sockets.passed_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "3"})
        stack.enter_context(found.socket)
        assert found.socket.fileno() == number
