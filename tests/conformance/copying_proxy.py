"""A proxy between two sockets that knows nothing of Kafka. Subclasses inspect the bytes that it copies."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.kafka.processes import Address

_CHUNK = 1 << 16


class CopyingProxy:
    """Listens on an address for the length of a with statement. A subclass sees each chunk before it is forwarded.

    Args:
        at: the address that it listens on.
        upstream: the broker's address.
    """

    def __init__(self, at: Address, upstream: Address) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(at)
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def upstream(self) -> Address:
        """Returns the address for a new connection."""
        return self._upstream

    def connected(self) -> Any:
        """Returns the state of a new connection, which `asked` and `answered` receive."""

    def asked(self, own: Any, chunk: bytes) -> None:
        """Called with bytes before they are sent to the broker."""

    def answered(self, own: Any, chunk: bytes) -> bool:
        """Called with bytes before they are sent to the client.

        If it returns False, the connection is closed instead.
        """
        return True

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for each in self._sockets:
            _end(each)
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._sockets):
            each.close()

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            try:
                broker = socket.create_connection(self.upstream())
            except OSError:  # The broker is down.
                _end(client)
                continue
            self._sockets.append(broker)
            own = self.connected()
            self._start(self._copy_questions, client, broker, own)
            self._start(self._copy_answers, broker, client, own)

    def _copy_questions(self, client: socket.socket, broker: socket.socket, own: Any) -> None:
        with suppress(OSError):
            while chunk := client.recv(_CHUNK):
                self.asked(own, chunk)
                broker.sendall(chunk)
        _end(broker)

    def _copy_answers(self, broker: socket.socket, client: socket.socket, own: Any) -> None:
        with suppress(OSError):
            while (chunk := broker.recv(_CHUNK)) and self.answered(own, chunk):
                client.sendall(chunk)
        _end(client)
        _end(broker)


def _end(one: socket.socket) -> None:
    with suppress(OSError):  # The connection may have ended already.
        one.shutdown(socket.SHUT_RDWR)
