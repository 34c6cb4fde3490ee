"""All ways of forwarding do the same through TLS, and keep the order of TLS records."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from select import EPOLLIN
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import example, given, settings

from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane.connection import CONTROL_RECORD_COST
from group_sidecar.proxy.dataplane.endpoint_socket import MAX_READ_BYTES, EndpointSocket, SplicePipe
from group_sidecar.proxy.dataplane.session import DEFERRED_COST, FORGOTTEN_WORK_PER_SECOND, MAX_UNCOUNTED_WORK
from group_sidecar.proxy.dataplane.tls_endpoint import MAX_RECORDS, TlsEndpoint, TlsState
from tests.certificates import Authority
from tests.proxy.dataplane.playbook import reply

# As in test_fast_path, and before the import of it, which fails without the compiled module.
fast_path = pytest.importorskip("group_sidecar.proxy.dataplane.fast_path")

from tests.proxy.dataplane.test_fast_path import (  # noqa: E402 - see above
    PASSED,
    SHOWN,
    Step,
    World,
    play,
    request_frame,
    steps,
)

TOGETHER = fast_path.Outbox(True)
ONE_BY_ONE = fast_path.Outbox(False)
HOST = "localhost"
HANDSHAKE, APPLICATION_DATA, KEY_UPDATE = 22, 23, 24
"""The types of RFC 8446, 4 and 5.1."""
COSTLY_RECORDS = MAX_UNCOUNTED_WORK // CONTROL_RECORD_COST + 1
"""The number of control records in a chunk from which on a connection is read in turns."""


class TlsPeer:
    """A peer of the sidecar, with as much of a socket's interface as `World` uses.

    Attributes:
        socket: the socket, which carries encrypted bytes.
    """

    def __init__(self, sock: socket.socket, state: TlsState) -> None:
        self.socket = sock
        self._state = state
        self.close, self.fileno, self.shutdown = sock.close, sock.fileno, sock.shutdown

    def sendall(self, data: bytes) -> None:
        self._state.tls.write(data)
        self.socket.sendall(self._state.outgoing.read())

    def recv(self, most: int) -> bytes:
        self._state.incoming.write(self.socket.recv(most))
        try:
            return self._state.tls.read(most)
        except ssl.SSLError:
            return b""


class Contexts:
    """The contexts of a client and a server that trust each other. `secrets`: the file to which OpenSSL appends
    the secrets of sessions.
    """

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder / "ca")
        certificate = authority.issue(HOST)
        self.secrets = folder / "secrets"
        self.client = ssl.create_default_context(cafile=authority.file)
        self.client.keylog_filename = str(self.secrets)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(certificate.certificate_file, certificate.key_file)

    def connected(self) -> tuple[TlsState, TlsState]:
        """Returns the states of a client and a server after a handshake in memory."""
        client, server = self._side(self.client, server_hostname=HOST), self._side(self.server, server_side=True)
        for own, other in ((client, server), (server, client)) * 2:
            try:
                own.tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            other.incoming.write(own.outgoing.read())
        return client, server

    def _side(self, context: ssl.SSLContext, **options: Any) -> TlsState:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        return TlsState(context.wrap_bio(incoming, outgoing, **options), incoming, outgoing)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts(tmp_path_factory.mktemp("tls"))


@contextmanager
def tls_world(contexts: Contexts, outbox: Any, *, walks: bool = False) -> Iterator[World]:
    """Yields a world with TLS on both connections."""
    splice_pipe = SplicePipe()
    client, near = contexts.connected()
    far, broker = contexts.connected()
    states = iter([near, far])

    def endpoint(fd: int) -> EndpointSocket:
        return TlsEndpoint(fd, next(states))

    world = World(outbox, splice_pipe, socket.socketpair, walks=walks, endpoint=endpoint)
    world.client, world.broker = TlsPeer(world.client, client), TlsPeer(world.broker, broker)  # type: ignore[assignment]
    try:
        yield world
    finally:
        world.close()
        splice_pipe.close()


@given(script=steps)
@settings(max_examples=30)
@example(
    script=[
        ("client", request_frame(SHOWN, 1, 5)),
        ("broker", 8),
        ("client", request_frame(PASSED, 2, 600)),
        ("broker", 600),
    ]
)
@example(script=[("client", request_frame(PASSED, 1, 5)), ("client ends", None), ("broker", 8)])
@example(script=[("client", request_frame(PASSED, 1, 5)), ("broker goes", None)])
def test_all_ways_behave_alike(contexts: Contexts, script: list[Step]) -> None:
    """After any script of steps, all four ways of forwarding show the same state and plain bytes."""
    with ExitStack() as stack:
        every = [
            stack.enter_context(tls_world(contexts, outbox, walks=walks))
            for outbox, walks in ((TOGETHER, False), (ONE_BY_ONE, False), (None, False), (None, True))
        ]
        play(script, every)


class PeerKeys:
    """The keys with which a peer encrypts its data, from the secrets that OpenSSL writes down (RFC 8446, 7.1).

    `records`: how many records the peer has sent with these keys.
    """

    def __init__(self, secret: bytes, records: int = 0) -> None:
        self._secret, self._records = secret, records

    def record(self, kind: int, content: bytes) -> bytes:
        """Returns the next record (RFC 8446, 5.2)."""
        plain = content + bytes([kind])
        head = bytes([APPLICATION_DATA, 3, 3]) + (len(plain) + 16).to_bytes(2, "big")
        nonce = int.from_bytes(self._derived(b"iv", 12), "big") ^ self._records
        self._records += 1
        return head + AESGCM(self._derived(b"key", 32)).encrypt(nonce.to_bytes(12, "big"), plain, head)

    def updated(self) -> "PeerKeys":
        """Returns the keys after a key update (RFC 8446, 7.2)."""
        return PeerKeys(self._derived(b"traffic upd", 48))

    def _derived(self, label: bytes, size: int) -> bytes:
        name = b"tls13 " + label
        info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
        return HKDFExpand(SHA384(), size, info).derive(self._secret)


@pytest.mark.parametrize("outbox", [TOGETHER, ONE_BY_ONE, None], ids=["together", "one by one", "not compiled"])
def test_key_update_is_answered_in_order(contexts: Contexts, outbox: Any) -> None:
    """A key update between two requests, in the round of a reply, breaks neither side's order of records."""
    with tls_world(contexts, outbox) as world:
        assert world.connection.client._tls.cipher()[0] == "TLS_AES_256_GCM_SHA384"  # type: ignore[attr-defined]
        keys = client_keys(contexts)
        peer: Any = world.client
        peer.socket.sendall(keys.record(APPLICATION_DATA, request_frame(PASSED, 1, 5)))
        world.go()
        world.broker.sendall(world.owed(8))
        world.way.upstream_ready(EPOLLIN)
        peer.socket.sendall(keys.record(HANDSHAKE, bytes([KEY_UPDATE, 0, 0, 1, 1])))
        world.way.client_ready(EPOLLIN)
        world.leave()
        peer.socket.sendall(keys.updated().record(APPLICATION_DATA, request_frame(PASSED, 2, 5)))
        world.go()
        world.broker.sendall(world.owed(8))
        world.go()
        assert bytes(world.to_client) == reply(1, b"t" * 8) + reply(2, b"t" * 8)


def client_keys(contexts: Contexts) -> PeerKeys:
    """Returns the keys of the client in the last world that was made."""
    to_sidecar, _ = secrets(contexts, "CLIENT_TRAFFIC_SECRET_0")
    return PeerKeys(to_sidecar)


def broker_keys(contexts: Contexts) -> PeerKeys:
    """Returns the keys of the broker in the last world that was made."""
    _, to_sidecar = secrets(contexts, "SERVER_TRAFFIC_SECRET_0")
    return PeerKeys(to_sidecar, contexts.server.num_tickets)


def secrets(contexts: Contexts, label: str) -> list[bytes]:
    """Returns the secrets of the last two connections."""
    lines = map(str.split, contexts.secrets.read_text().splitlines())
    return [bytes.fromhex(line[2]) for line in lines if line[0] == label][-2:]


def key_updates(keys: PeerKeys, count: int, *, demands_reply: bool) -> tuple[bytes, PeerKeys]:
    """Returns the records of `count` key updates, and the keys after them."""
    sent = bytearray()
    for _ in range(count):
        sent += keys.record(HANDSHAKE, bytes([KEY_UPDATE, 0, 0, 1, demands_reply]))
        keys = keys.updated()
    return bytes(sent), keys


@pytest.mark.parametrize("outbox", [TOGETHER, None], ids=["compiled", "not compiled"])
def test_a_flood_of_key_updates_is_read_in_turns(contexts: Contexts, outbox: Any) -> None:
    """A client with many key updates in one chunk waits for turns, and is served after them."""
    with tls_world(contexts, outbox) as world:
        sent, keys = key_updates(client_keys(contexts), 4 * MAX_RECORDS, demands_reply=False)
        peer: Any = world.client
        peer.socket.sendall(sent + keys.record(APPLICATION_DATA, request_frame(PASSED, 1, 5)))
        world.connection.client.read_size = MAX_READ_BYTES
        world.way.client_ready(EPOLLIN)
        assert world.connection.client.read_ahead_bytes > 0
        assert world.connection.session.takes_turns
        world.go()
        assert bytes(world.to_broker) == request_frame(PASSED, 1, 5)


@pytest.mark.parametrize("outbox", [TOGETHER, None], ids=["compiled", "not compiled"])
def test_a_client_that_demands_many_key_updates_is_closed(contexts: Contexts, outbox: Any) -> None:
    """The replies of TLS itself to a client do not grow without a bound."""
    with tls_world(contexts, outbox) as world:
        sent, _ = key_updates(client_keys(contexts), 100, demands_reply=True)
        peer: Any = world.client
        peer.socket.sendall(sent)
        world.go()
        assert world.counters.connections_closed[CloseReason.TLS_FAILED] == 1


@pytest.mark.parametrize("outbox", [TOGETHER, ONE_BY_ONE, None], ids=["together", "one by one", "not compiled"])
def test_client_with_control_records_is_read_in_turns(contexts: Contexts, outbox: Any) -> None:
    """A client that sends many control records before a request is read in turns, and its request is forwarded."""
    with tls_world(contexts, outbox) as world:
        sent, keys = key_updates(client_keys(contexts), COSTLY_RECORDS, demands_reply=False)
        peer: Any = world.client
        peer.socket.sendall(sent + keys.record(APPLICATION_DATA, request_frame(PASSED, 1, 5)))
        world.way.client_ready(EPOLLIN)
        world.leave()
        assert world.connection.session.takes_turns
        assert not world.connection.session.can_use_fast_path
        world.go()
        assert bytes(world.to_broker) == request_frame(PASSED, 1, 5)


@pytest.mark.parametrize("outbox", [TOGETHER, ONE_BY_ONE, None], ids=["together", "one by one", "not compiled"])
def test_reply_after_control_records_counts_as_work(contexts: Contexts, outbox: Any) -> None:
    """A broker that sends many control records before a reply has caused the work of both.

    The work of the records alone would be forgotten when the client asks again.
    """
    with tls_world(contexts, outbox) as world:
        world.client.sendall(request_frame(SHOWN, 1, 5))
        world.go()
        sent, keys = key_updates(broker_keys(contexts), COSTLY_RECORDS, demands_reply=False)
        peer: Any = world.broker
        peer.socket.sendall(sent + keys.record(APPLICATION_DATA, world.owed(100)))
        world.way.upstream_ready(EPOLLIN)
        world.leave()
        too_much = COSTLY_RECORDS * CONTROL_RECORD_COST - MAX_UNCOUNTED_WORK
        world.rounds.now += (too_much + DEFERRED_COST // 2) / FORGOTTEN_WORK_PER_SECOND
        world.client.sendall(request_frame(PASSED, 2, 5))
        world.way.client_ready(EPOLLIN)
        world.rounds.take_turns()
        assert world.connection.session.takes_turns
        world.go()
        assert bytes(world.to_client) == reply(1, b"t" * 100)
