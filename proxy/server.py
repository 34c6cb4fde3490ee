"""Listens for clients, and brings those to their broker whom `entrance` does not at once.

Owns: ports, connecting where that takes time: looking up names, a broker that is far away, one that does
not answer; what is done where it fails. Must not know: what moves on a connection.
"""

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from select import EPOLLIN

import trio

from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.acceptor import Acceptor, Target, connecting, tune
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.entrance import Entrance, SessionFactory, Waiting
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.pump import Pump
from group_sidecar.proxy.supervision import Supervisor, Task

try:
    from group_sidecar.proxy.acceptor_thread import AcceptorThread

    ACCEPTOR: type[Acceptor | AcceptorThread] = AcceptorThread
except ImportError:  # It was installed where nothing could compile it.
    ACCEPTOR = Acceptor

BACKLOG = 1024
"""Clients the kernel keeps waiting; it cuts it to `net.core.somaxconn`."""
CONNECT_SECONDS = 10.0
EXHAUSTED_SECONDS = 0.2
"""How long to wait where the system has no descriptor or memory for another connection."""
UNREACHABLE = "the broker is unreachable"


class ListenError(Exception):
    """An address cannot be listened on. The text is one line for people."""


def listen(address: Address) -> list[socket.socket]:
    """Opens a port on all addresses that a host name has; port 0 picks one that is free.

    Clients can connect, and wait, from here on.

    Raises:
        ListenError: the address is in use, or not one of this machine.
    """
    sockets: list[socket.socket] = []
    port = address.port
    try:
        found = socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, (host, *_) in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            sockets.append(listener)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tune(listener)  # What it accepts inherits that.
            listener.bind((host, port))
            listener.listen(BACKLOG)
            port = listener.getsockname()[1]
    except OSError as error:
        for listener in sockets:
            listener.close()
        raise ListenError(f"cannot listen on {address}: {_reason(error)}") from error
    return sockets


def port_of(listeners: list[socket.socket]) -> int:
    """The port of what `listen` opened."""
    port: int = listeners[0].getsockname()[1]
    return port


async def connect(address: Address, seconds: float = CONNECT_SECONDS) -> socket.socket:
    """A non-blocking connection to the first address of a host that takes one; the name is resolved each time.

    Raises:
        OSError: there is none to be had, or not in time.
    """
    failure = OSError(errno.EHOSTUNREACH, "has no address")
    with trio.move_on_after(seconds):
        for family, _, _, _, target in await trio.socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            try:
                return await _connected(connecting(Target(family, target)))
            except OSError as error:
                failure = error
        raise failure
    raise OSError(errno.ETIMEDOUT, f"no connection within {seconds:g} seconds")


async def _connected(peer: socket.socket) -> socket.socket:
    """The same when it has been made. Raises OSError where it has not, and closes it."""
    try:
        await trio.lowlevel.wait_writable(peer)
        if failed := peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(failed, os.strerror(failed))
    except BaseException:
        peer.close()
        raise
    return peer


class Server:
    """Brings clients to their brokers.

    Args:
        pump: carries the connections.
        traffic: is told of connections, and of those that were not to be.
        most_connections: client connections at a time.
        supervisor: is told of unexpected failures.
        changed: is told of a broker that cannot be connected to, and of one that can again.
    """

    def __init__(
        self,
        pump: Pump,
        traffic: Traffic,
        most_connections: int,
        supervisor: Supervisor | None = None,
        changed: Callable[[Address], None] = lambda _: None,
    ) -> None:
        self._poller = pump.poller
        self._traffic = traffic
        self._supervisor = supervisor or Supervisor()
        self._changed = changed
        self._entrance = Entrance(pump, traffic, most_connections)

    async def serve(
        self, listeners: list[socket.socket], upstream: Callable[[], Address], new_session: SessionFactory
    ) -> None:
        """Accepts until cancelled, then closes the listeners. `upstream`: where the broker is by now."""
        acceptors: list[Acceptor | AcceptorThread] = []
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    acceptor = ACCEPTOR(listener)
                    acceptors.append(acceptor)
                    ready = partial(self._arrived, acceptor, upstream, new_session, nursery)
                    self._poller.watch(acceptor.fileno(), EPOLLIN, ready)
                try:
                    await trio.sleep_forever()
                finally:  # Here the nursery is open still: nobody may be let in when it is not.
                    for acceptor in acceptors:
                        self._poller.forget(acceptor.fileno())
        finally:
            for acceptor in acceptors:
                acceptor.close()
            for listener in listeners:
                listener.close()

    def _arrived(
        self,
        acceptor: "Acceptor | AcceptorThread",
        upstream: Callable[[], Address],
        new_session: SessionFactory,
        nursery: trio.Nursery,
        events: int,
    ) -> None:
        """Lets those in who have come."""
        address = upstream()
        target = self._entrance.target(address)
        try:
            for arrival in acceptor.take(target):
                waiting = self._entrance.let_in(arrival, address, target, new_session)
                if waiting is not None:
                    nursery.start_soon(self._bring, waiting, new_session)
        except OSError as error:
            self._entrance.warn("no connection can be accepted", _reason(error))
            self._poller.pause(acceptor.fileno())
            nursery.start_soon(self._rest, acceptor.fileno())

    async def _rest(self, fd: int) -> None:
        await trio.sleep(EXHAUSTED_SECONDS)
        self._poller.resume(fd, EPOLLIN)

    async def _bring(self, waiting: Waiting, new_session: SessionFactory) -> None:
        entrance, (client, host, address, attempt) = self._entrance, waiting
        try:
            upstream = await self._connect(address, attempt)
            target = entrance.connected(address, upstream)
        except OSError as error:
            # The client sees a connection closed at once, and tries again later, as where it is refused.
            self._traffic.upstream_connect_failures += 1
            entrance.refuse(client, CloseReason.UPSTREAM_UNREACHABLE)
            entrance.warn(UNREACHABLE, _reason(error), address=str(address))
            self._changed(address)
            return
        except Exception as error:  # noqa: BLE001  A broker may have returned an impossible host name.
            self._traffic.upstream_connect_failures += 1
            entrance.refuse(client, CloseReason.UPSTREAM_UNREACHABLE)
            self._supervisor.failed(Task.CONNECTIONS, error, str(address))
            return
        except BaseException:
            entrance.refuse(client, CloseReason.SHUTDOWN)
            raise
        if entrance.recurring.ended(UNREACHABLE, str(address)):
            log.info("the broker is reachable again", address=str(address))
            self._changed(address)
        entrance.join(client, host, upstream.detach(), target, new_session)

    async def _connect(self, address: Address, attempt: socket.socket | None) -> socket.socket:
        """The attempt, when it is made; where it fails the name may have another address by now."""
        if attempt is not None:
            with trio.move_on_after(CONNECT_SECONDS), suppress(OSError):
                return await _connected(attempt)
            self._entrance.forget(address)
        return await connect(address)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
