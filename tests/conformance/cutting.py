"""A way to a broker that loses answers: the question gets there, and the connection breaks.

Owns: copying between two sockets, and breaking. Must not know: who asks, nor what; of a request only its API key.
"""

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.kafka.processes import Address

_CHUNK = 1 << 16


class CuttingProxy:
    """Listens at an address for the length of a with statement.

    Args:
        at: where it listens.
        upstream: the broker.
        api_key: of the requests whose answers may be lost.

    Attributes:
        cuts: how many answers were lost.
    """

    def __init__(self, at: Address, upstream: Address, api_key: int) -> None:
        self.cuts = 0
        self._upstream = upstream
        self._api_key = api_key
        self._left = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(at)
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def lose(self, answers: int) -> None:
        """Loses so many answers, the next ones."""
        with self._lock:
            self._left += answers

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
            asked: list[int] = []
            self._start(self._copy_questions, client, broker, asked)
            self._start(self._copy_answers, broker, client, asked)

    def _copy_questions(self, client: socket.socket, broker: socket.socket, asked: list[int]) -> None:
        """`asked`: the API key of the question that waits for its answer; one does at a time."""
        try:
            while chunk := client.recv(_CHUNK):
                if not asked:
                    asked.append(int.from_bytes(chunk[4:6], "big"))
                broker.sendall(chunk)
        except OSError:
            pass
        _end(broker)

    def _copy_answers(self, broker: socket.socket, client: socket.socket, asked: list[int]) -> None:
        try:
            while chunk := broker.recv(_CHUNK):
                if asked == [self._api_key] and self._cuts():
                    break
                asked.clear()
                client.sendall(chunk)
        except OSError:
            pass
        _end(client)
        _end(broker)

    def _cuts(self) -> bool:
        with self._lock:
            if not self._left:
                return False
            self._left -= 1
            self.cuts += 1
            return True


def _end(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # It has ended already.
