"""Runs a sidecar as a process: hosts trio in the poller, and handles the signals."""

import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.dataplane.event_loop import host
from group_sidecar.proxy.dataplane.poller import Poller
from group_sidecar.proxy.listeners.descriptor_limits import allowed_connections
from group_sidecar.proxy.listeners.ports import ListenError, OpenPorts
from group_sidecar.proxy.listeners.predecessor import Predecessor
from group_sidecar.proxy.runtime import garbage_collection
from group_sidecar.proxy.runtime.service_manager import ServiceManager
from group_sidecar.proxy.runtime.supervision import first_error
from group_sidecar.proxy.sidecar import Addresses, Sidecar

THREAD_SWITCH_SECONDS = 0.0005
"""Seconds for which another thread may hold Python's GIL while the data path waits for it. In Python's default of 5 ms,
the data path could send a hundred answers."""


async def run_sidecar(
    config: Config,
    *,
    read: Callable[[], Config] | None = None,
    stop: trio.Event | None = None,
    task_status: "trio.TaskStatus[Addresses]" = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs a sidecar until `stop` is set or the task is cancelled.

    When `stop` is set, the sidecar first finishes the requests in flight, for at most `limits.drain_seconds`. When
    the task is cancelled, the sidecar ends at once. Port 0 in an address stands for any free port.

    Args:
        config: the settings.
        read: reads the settings again for a reload, and may block. None if there is no file to read.
        stop: ends the sidecar.
        task_status: gets the addresses when the sidecar listens.

    Raises:
        ListenError: an address cannot be listened on.
    """
    with _unwrap_listen_errors():
        await Sidecar(config, read).run(trio.Event() if stop is None else stop, task_status)


def run_until_signalled(
    config: Config,
    read: Callable[[], Config] | None = None,
    ports: OpenPorts | None = None,
    predecessor: socket.socket | None = None,
) -> None:
    """Runs a sidecar until SIGTERM or SIGINT. A second signal ends it at once. At SIGHUP it reads its settings again.
    At SIGUSR2 it starts a successor, and ends when the successor serves clients.

    Nothing else may run in the process, because trio runs as a guest of the poller.

    Args:
        config: see `run_sidecar`.
        read: see `run_sidecar`.
        ports: the listening sockets, or None to open them.
        predecessor: the socket that leads to the predecessor, or None if there is none.

    Raises:
        ListenError: see `run_sidecar`.
    """
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    garbage_collection.keep_collections_short()
    poller = Poller()
    service_manager = ServiceManager(os.environ)
    connections = allowed_connections(config.limits)
    sidecar = Sidecar(
        config, read, poller, connections, ports, service_manager, Predecessor(predecessor) if predecessor else None
    )
    host(poller, _run_until_signalled, sidecar)


async def _run_until_signalled(sidecar: Sidecar) -> None:
    stop = trio.Event()
    with (
        _unwrap_listen_errors(),
        trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2) as signals,
    ):
        async with trio.open_nursery() as nursery:

            async def handle_signals() -> None:
                was_stopped = False
                async for number in signals:
                    if number == signal.SIGHUP:
                        nursery.start_soon(sidecar.reload_if_possible)
                    elif number == signal.SIGUSR2:
                        nursery.start_soon(sidecar.hand_over.start_successor, stop)
                    elif was_stopped or sidecar.hand_over.is_waiting:
                        nursery.cancel_scope.cancel()
                    else:
                        was_stopped = True
                        stop.set()

            nursery.start_soon(handle_signals)
            async with trio.open_nursery() as running:
                await running.start(sidecar.run, stop)
                gc.freeze()  # The collector need not scan the objects of the start-up, which live until the end.
            nursery.cancel_scope.cancel()


@contextmanager
def _unwrap_listen_errors() -> Iterator[None]:
    """Raises a ListenError without the exception groups that nurseries put around it."""
    try:
        yield
    except BaseExceptionGroup as group:
        refused, others = group.split(ListenError)
        if refused is None or others is not None:
            raise
        raise first_error(refused) from None
