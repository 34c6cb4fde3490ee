"""The successor in a hot restart: the process that takes over the ports of this process.

The successor gets its sockets as a service manager passes them (sd_listen_fds(3)). One more pair of sockets connects
both processes (`predecessor`). Over this connection, the successor reports that it serves clients. When one process
ends, the other process reads the end of the stream.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import trio

from group_sidecar.proxy.listeners.passed_sockets import FIRST_PASSED_FD, PREDECESSOR, PassedSocket
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.os_errors import reason_of

READY_SECONDS = 90.0
"""Seconds that a successor has for its start. A successor accepts clients after a minute at the latest
(`hand_over.LOAD_SECONDS`)."""
END_SECONDS = 5.0
"""Seconds that a successor has to end by itself before it is killed."""
EXEC_WITH_SOCKETS = """
import fcntl, os, signal, sys
for number in signal.SIGHUP, signal.SIGUSR2:
    signal.signal(number, signal.SIG_IGN)
first, passed = int(sys.argv[1]), [int(fd) for fd in sys.argv[2].split(",")]
end = first + len(passed)
moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, end) for fd in passed]
for number, fd in enumerate(moved):
    os.dup2(fd, first + number)
os.closerange(end, max(passed + moved) + 1)
os.environ["LISTEN_PID"] = str(os.getpid())
if "WATCHDOG_PID" in os.environ:
    os.environ["WATCHDOG_PID"] = str(os.getpid())
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""A program that passes sockets to another program. Only the new process knows its process id, which LISTEN_PID must
contain. A program is needed, because a parent with threads cannot safely run Python code between fork and exec. Signals
that would end the new process are ignored until it handles them."""


class SuccessorFailed(Exception):
    """The successor serves no clients. The text completes the log line of `hand_over`, which also counts failures."""


class Successor:
    """A process with the command line of this process."""

    def __init__(self, process: trio.Process, channel: trio.socket.SocketType) -> None:
        self._process = process
        self._channel = channel

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @classmethod
    async def start(cls, sockets: Iterable[PassedSocket]) -> Self:
        """Starts the process, and passes it these listening sockets. Raises SuccessorFailed if the start fails."""
        ours, theirs = socket.socketpair()
        with theirs:
            passed = [*sockets, PassedSocket(PREDECESSOR, theirs)]
            fds = [each.socket.fileno() for each in passed]
            environment = {
                **os.environ,
                "LISTEN_FDS": str(len(passed)),
                "LISTEN_FDNAMES": ":".join(each.name for each in passed),
            }
            arguments = [str(FIRST_PASSED_FD), ",".join(map(str, fds)), *command_line()]
            try:
                process = await trio.lowlevel.open_process(
                    [sys.executable, "-ISc", EXEC_WITH_SOCKETS, *arguments], pass_fds=fds, env=environment
                )
            except OSError as error:
                ours.close()
                raise SuccessorFailed(f"it could not be started: {reason_of(error)}") from None
        return cls(process, trio.socket.from_stdlib_socket(ours))

    async def wait_until_ready(self, seconds: float) -> None:
        """Waits until the process serves clients.

        Raises:
            SuccessorFailed: the process has ended, or does not serve clients within `seconds`.
        """
        with trio.move_on_after(seconds):
            if await self._reported():
                return
            with trio.move_on_after(END_SECONDS):
                status = await self._process.wait()
                raise SuccessorFailed(f"it ended with status {status}")
            raise SuccessorFailed("it closed its connection to this process")
        raise SuccessorFailed(f"it was not ready within {seconds:g} seconds")

    async def _reported(self) -> bool:
        try:
            return bool(await self._channel.recv(1))
        except OSError:
            return False

    async def end(self) -> None:
        """Ends the process, and waits until it has ended. A cancellation does not interrupt this method."""
        with trio.CancelScope(shield=True), self._channel:
            self._process.terminate()
            with trio.move_on_after(END_SECONDS):
                await self._process.wait()
            self._process.kill()
            await self._process.wait()


def command_line() -> list[str]:
    """Returns the command line of this process.

    If this process runs an executable script, the command line begins with the script, without the interpreter. The
    script's first line names the interpreter, and may name another one after an upgrade.
    """
    interpreter, *arguments = sys.orig_argv
    script = Path(arguments[0]) if arguments else Path(interpreter)
    try:
        with script.open("rb") as file:
            is_script = os.access(script, os.X_OK) and file.read(2) == b"#!"
    except OSError:
        is_script = False
    return arguments if is_script else [interpreter, *arguments]


async def start_successor(sockets: Callable[[], list[PassedSocket]], stop: trio.Event) -> Successor | None:
    """Starts a successor, and returns the successor when it serves clients.

    Returns None if `stop` was set before that, and ends the successor.

    Args:
        sockets: returns the sockets to pass. The function may block.
        stop: set when this process stops.

    Raises:
        SuccessorFailed: the successor does not serve clients. The successor was ended.
    """
    ready = failed = None
    async with trio.open_nursery() as nursery:

        async def give_up() -> None:
            await stop.wait()
            log.info("the successor is ended, because this sidecar stops")
            nursery.cancel_scope.cancel()

        nursery.start_soon(give_up)
        try:
            ready = await _ready_successor(await trio.to_thread.run_sync(sockets))
        except SuccessorFailed as error:
            failed = error  # An exception raised inside the nursery would arrive in an exception group.
        nursery.cancel_scope.cancel()
    if failed:
        raise failed
    return ready


async def _ready_successor(sockets: list[PassedSocket]) -> Successor:
    """Starts a successor and waits until it serves clients. Raises SuccessorFailed if it does not."""
    successor = await Successor.start(sockets)
    log.info("a successor was started", pid=successor.pid)
    try:
        await successor.wait_until_ready(READY_SECONDS)
    except BaseException:
        await successor.end()
        raise
    return successor
