"""Reports to systemd over real datagram sockets."""

import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.proxy.runtime.service_manager import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Yields systemd's socket, and its name for NOTIFY_SOCKET."""
    abstract = request.param == "abstract"
    name = f"@{secrets.token_hex(8)}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.bind(f"\0{name[1:]}" if abstract else name)
        yield sock, name


def reports(sock: socket.socket) -> list[list[str]]:
    """Returns the lines of each report that has arrived."""
    found = []
    try:
        while True:
            found.append(sock.recv(4096).decode().split("\n"))
    except BlockingIOError:
        return found


def test_states_are_reported(systemd: tuple[socket.socket, str]) -> None:
    """Each state is one datagram. A reload has the time at which it began."""
    sock, name = systemd
    manager = ServiceManager({"NOTIFY_SOCKET": name})
    before = time.monotonic_ns() // 1000
    manager.ready("serving")
    manager.reloading()
    manager.stopping("stopping")
    ready, (reloading, began), stopping = reports(sock)
    assert ready == ["READY=1", "STATUS=serving"]
    assert reloading == "RELOADING=1"
    assert before <= int(began.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
    assert stopping == ["STOPPING=1", "STATUS=stopping"]


@pytest.mark.parametrize("process", [None, os.getpid()])
async def test_watchdog_is_fed_at_half_its_interval(
    systemd: tuple[socket.socket, str], process: int | None, autojump_clock: MockClock
) -> None:
    """The watchdog is fed at once, and then twice in each interval."""
    sock, name = systemd
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000"}
    if process is not None:
        environment["WATCHDOG_PID"] = str(process)
    with trio.move_on_after(44):
        await ServiceManager(environment).feed_watchdog()
    assert reports(sock) == 3 * [["WATCHDOG=1"]]


async def test_hung_loop_feeds_no_watchdog(systemd: tuple[socket.socket, str]) -> None:
    """While a task blocks the event loop, the watchdog is not fed."""
    sock, name = systemd
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000"}).feed_watchdog)
        await wait_all_tasks_blocked()
        assert reports(sock) != []
        time.sleep(0.2)  # noqa: ASYNC251  The event loop hangs.
        assert reports(sock) == []
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}],
)
async def test_no_watchdog(environment: dict[str, str], systemd: tuple[socket.socket, str]) -> None:
    """Without a watchdog for this process, none is fed."""
    sock, name = systemd
    with trio.fail_after(10):
        await ServiceManager({"NOTIFY_SOCKET": name, **environment}).feed_watchdog()
    assert reports(sock) == []


def test_nothing_is_reported_without_socket() -> None:
    """Without NOTIFY_SOCKET, a report does nothing."""
    with capture_logs() as lines:
        ServiceManager({}).ready("serving")
    assert lines == []


def test_missing_socket_is_logged_once(tmp_path: Path) -> None:
    """If systemd cannot be reached, one line is logged."""
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    with capture_logs() as lines:
        manager.ready("serving")
        manager.ready("serving")
    assert [line["event"] for line in lines] == ["the service manager cannot be reached"]
