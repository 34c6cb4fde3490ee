"""Tests the proxies before a server that returns each message in upper case."""

import random
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from tests.kafka.processes import Address, free_addresses
from tests.linearizability.fault_proxy import FaultProxy, NotingProxy, StaleProxy
from tests.linearizability.history import now

_SECONDS = 10.0
_QUIET_SECONDS = 0.2


class Chosen(random.Random):
    """A random generator that returns the given numbers one after the other."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self._numbers = [*numbers]

    def random(self) -> float:
        """Returns the next number."""
        return self._numbers.pop(0)


@contextmanager
def server(reply: Callable[[bytes], bytes] = bytes.upper) -> Iterator[Address]:
    """Serves one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            # The proxy resets connections that it cuts, before or while the server replies.
            with connection, suppress(ConnectionResetError, BrokenPipeError):
                while chunk := connection.recv(1 << 16):
                    connection.sendall(reply(chunk))

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()
        thread.join()


def test_bytes_pass_both_ways() -> None:
    [at] = free_addresses(1)
    with server() as upstream, FaultProxy(at, upstream, Chosen()), closing(socket.create_connection(at)) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"HELLO"


def test_frozen_bytes_are_forwarded_later() -> None:
    [at] = free_addresses(1)
    with (
        server() as upstream,
        FaultProxy(at, upstream, Chosen()) as proxy,
        closing(socket.create_connection(at, _SECONDS)) as client,
    ):
        with proxy.frozen():
            client.sendall(b"hello")
            assert not select.select([client], [], [], _QUIET_SECONDS)[0]
        assert client.recv(100) == b"HELLO"


def test_message_is_cut_in_the_middle() -> None:
    """The server gets half of the next message, and then both sides lose their connection."""
    [at] = free_addresses(1)
    got: list[bytes] = []

    def noted(chunk: bytes) -> bytes:
        got.append(chunk)
        return chunk.upper()

    with (
        server(noted) as upstream,
        FaultProxy(at, upstream, Chosen(0.0, 0.9)) as proxy,
        closing(socket.create_connection(at, _SECONDS)) as client,
    ):
        client.sendall(b"first")
        assert client.recv(100) == b"FIRST"
        proxy.cut(1.0)
        client.sendall(b"second")
        assert until_lost(client) in (b"", b"S")  # Half of the server's reply to the half message may arrive.
    assert got in ([b"first", b"sec"], [b"first"])  # The reset may reach the server before it reads.


def test_connection_is_cut_at_once() -> None:
    [at] = free_addresses(1)
    with (
        server() as upstream,
        FaultProxy(at, upstream, Chosen(0.0, 0.1)) as proxy,
        closing(socket.create_connection(at, _SECONDS)) as client,
    ):
        client.sendall(b"first")
        assert client.recv(100) == b"FIRST"
        proxy.cut(1.0)
        assert until_lost(client) == b""


def test_server_that_is_down_refuses() -> None:
    at, nobody = free_addresses(2)
    with (
        FaultProxy(at, nobody, Chosen()),
        suppress(ConnectionResetError),  # The reset may come while the client connects.
        closing(socket.create_connection(at, _SECONDS)) as client,
    ):
        assert until_lost(client) == b""


def test_offset_fetches_are_noted() -> None:
    """The proxy notes each OffsetFetch of a chunk, also an incomplete one, and no other request."""
    [at] = free_addresses(1)
    requests = [
        frame(api.to_bytes(2, "big") + b"\0\7\0\0\0\1" + len(client_id).to_bytes(2, "big") + client_id + b"group")
        for api, client_id in ((9, b"one"), (8, b"two"), (9, b"three"))
    ]
    began = now()
    with (
        server() as upstream,
        NotingProxy(at, upstream, Chosen()) as proxy,
        closing(socket.create_connection(at, _SECONDS)) as client,
    ):
        for chunk in (b"".join(requests), requests[0][:-1], b"?"):
            client.sendall(chunk)
            assert client.recv(100) == chunk.upper()
    assert [client_id for client_id, _ in proxy.fetches] == ["one", "three", "one"]
    assert all(began < at < now() for _, at in proxy.fetches)


def test_stale_reply_has_the_correlation_id_of_its_request() -> None:
    """The second reply to the same OffsetFetch is the first reply with the new correlation id."""
    [at] = free_addresses(1)
    bodies = iter([b"old", b"new", b"third"])

    def reply(chunk: bytes) -> bytes:
        return frame(chunk[8:12] + next(bodies))

    with (
        server(reply) as upstream,
        StaleProxy(at, upstream, Chosen(0.0), share=0.5) as proxy,
        closing(socket.create_connection(at, _SECONDS)) as client,
    ):
        found = []
        for number, api, body in ((1, 9, b"group"), (2, 9, b"group"), (3, 8, b"group")):
            header = api.to_bytes(2, "big") + b"\0\7" + number.to_bytes(4, "big") + b"\0\2me"
            client.sendall(frame(header + body))
            found.append(client.recv(100)[4:])
    assert found == [b"\0\0\0\1old", b"\0\0\0\2old", b"\0\0\0\3third"]
    assert proxy.replaced == 1


def frame(content: bytes) -> bytes:
    """Returns the content after its length."""
    return len(content).to_bytes(4, "big") + content


def until_lost(client: socket.socket) -> bytes:
    """Waits until the connection ends. Returns the bytes that arrived."""
    received = b""
    with suppress(ConnectionResetError):
        while chunk := client.recv(100):
            received += chunk
    return received
