"""`group-sidecar run` as a service of systemd: its reports, and sockets that it is passed."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.proxy.listeners.ports import listen
from group_sidecar.proxy.runtime.addresses import Address
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.kafka.sidecar_process import COMMAND
from tests.proxy.fakes import ANY_PORT, request_frame
from tests.proxy.scripted_broker import ScriptedBroker, listening

AS_SYSTEMD = """
import os, sys
fds = [os.dup(int(fd)) for fd in sys.argv[1].split(",") if fd]
for fd in fds:
    os.dup2(fd, 100 + fd)
for number, fd in enumerate(fds):
    os.dup2(100 + fd, 3 + number)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(fds))}
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Passes descriptors to a program as systemd does: from 3 on, with the program's process id."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Address]:
    """A scripted broker in another thread."""
    with listening(ScriptedBroker({ListGroupsRequest: ListGroupsResponse(error_code=0, groups=())})) as [address]:
        yield address


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which systemd gets reports."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(GIVE_UP_SECONDS)
        yield sock


@contextmanager
def service(
    folder: Path, upstream: Address, listen: str, passed: dict[str, socket.socket], **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a sidecar with passed sockets, by the names in LISTEN_FDNAMES. Its log is the file `log`."""
    fds = [sock.fileno() for sock in passed.values()]
    file = folder / "sidecar.yaml"
    file.write_text(yaml.safe_dump({"listen": listen, "upstream": str(upstream), "limits": {"drain_seconds": 1}}))
    wrapper = [sys.executable, "-c", AS_SYSTEMD, ",".join(map(str, fds))]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*wrapper, str(COMMAND), "run", "--config", str(file)],
            pass_fds=fds,
            stderr=log,
            env={
                **os.environ,
                "NOTIFY_SOCKET": str(folder / "notify"),
                "LISTEN_FDNAMES": ":".join(passed),
                **environment,
            },
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(GIVE_UP_SECONDS)


def next_report(sock: socket.socket, *, watchdog: bool = False) -> list[str]:
    """Returns the lines of the next report. Leaves out the reports for the watchdog, or returns one of these."""
    while True:
        lines = sock.recv(4096).decode().split("\n")
        if (lines == ["WATCHDOG=1"]) == watchdog:
            return lines


def test_states_are_reported(tmp_path: Path, upstream: Address, systemd: socket.socket) -> None:
    """systemd learns when the sidecar serves clients, reloads and stops, and that its event loop runs."""
    with service(tmp_path, upstream, "127.0.0.1:0", {}, WATCHDOG_USEC="200000") as process:
        assert next_report(systemd)[0] == "READY=1"
        for _ in range(3):
            next_report(systemd, watchdog=True)
        process.send_signal(signal.SIGHUP)
        reloading, began = next_report(systemd)
        assert (reloading, began.partition("=")[0]) == ("RELOADING=1", "MONOTONIC_USEC")
        assert next_report(systemd) == [
            "READY=1",
            f"STATUS=serving clients at 127.0.0.1:0 for the broker at {upstream}",
        ]
        process.terminate()
        assert next_report(systemd) == ["STOPPING=1", "STATUS=stopping: closing 0 connections"]
        assert process.wait(GIVE_UP_SECONDS) == 0


ASK = request_frame(7, b"\0\0", api_key=ApiKey.API_VERSIONS)


def correlation(client: socket.socket) -> bytes:
    """Returns the correlation id of the next reply, empty at the end of the stream."""
    client.settimeout(GIVE_UP_SECONDS)
    with client.makefile("rb") as stream:
        size = int.from_bytes(stream.read(4), "big")
        return stream.read(size)[:4]


@pytest.mark.parametrize("name", ["default", "group-sidecar.socket"])
def test_restart_refuses_no_client(tmp_path: Path, upstream: Address, systemd: socket.socket, name: str) -> None:
    """With a passed socket, clients that connect while no sidecar runs are served by the next one."""
    [listener], [other] = listen(ANY_PORT), listen(ANY_PORT)
    with listener, other:
        address = listener.getsockname()
        sockets = {name: listener, "other": other}
        for _ in range(2):
            with service(tmp_path, upstream, f"127.0.0.1:{address[1]}", sockets) as process:
                with socket.create_connection(address) as early:  # Nobody accepts yet.
                    early.sendall(ASK)
                    assert next_report(systemd)[0] == "READY=1"
                    assert correlation(early) == b"\0\0\0\7"
                    process.terminate()
                    assert next_report(systemd)[0] == "STOPPING=1"
                    assert correlation(early) == b""
                assert process.wait(GIVE_UP_SECONDS) == 0
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), (
            "the sidecar must not shut down the passed socket"
        )
    log = (tmp_path / "log").read_text()
    assert log.count("a passed socket is not used") == 2
