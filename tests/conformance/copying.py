"""A proxy between two sockets that knows nothing of Kafka, for others to look into what passes.

Owns: listening, copying, ending. Must not know: what the bytes mean.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.kafka.processes import Address

_CHUNK = 1 << 16


class CopyingProxy:
    """Listens at an address for the length of a with statement. Whoever derives from it sees each chunk first.

    Args:
        at: where it listens.
        upstream: the broker.
    """

    def __init__(self, at: Address, upstream: Address) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(at)
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def connected(self) -> Any:
        """What belongs to a new connection; `asked` and `answered` are given it."""

    def asked(self, own: Any, chunk: bytes) -> None:
        """Some bytes that are about to go to the broker."""

    def answered(self, own: Any, chunk: bytes) -> bool:
        """Some bytes that are about to come back; False ends the connection in their place."""
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
                broker = socket.create_connection(self._upstream)
            except OSError:  # It is down.
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
    with suppress(OSError):  # It may have ended already.
        one.shutdown(socket.SHUT_RDWR)
