"""Servers on real ports, each in a thread of its own: brokers with and without TLS, and an admin port."""

import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import trio

from group_sidecar.codecs.messages.metadata import MetadataRequest
from group_sidecar.proxy.admin.http_server import serve_admin
from group_sidecar.proxy.listeners.ports import listen
from group_sidecar.proxy.runtime.addresses import Address
from tests.certificates import Authority
from tests.proxy.admin.served_app import admin
from tests.proxy.commandline.groups_shell import Shell
from tests.proxy.fakes import ANY_PORT
from tests.proxy.scripted_broker import ScriptedBroker


@contextmanager
def in_thread(start: Callable[[trio.Nursery], Awaitable[Address]]) -> Iterator[Address]:
    """Runs a server in another thread until the block ends. Yields its address."""
    ready = threading.Event()
    found: list[Address] = []
    ends: list[Callable[[], None]] = []

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            ends.append(partial(trio.lowlevel.current_trio_token().run_sync_soon, nursery.cancel_scope.cancel))
            found.append(await start(nursery))
            ready.set()

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield found[0]
    finally:
        ends[0]()
        thread.join(10)


@contextmanager
def kafka_port(
    broker: ScriptedBroker, context: ssl.SSLContext | None = None, *, keep_metadata: bool = False
) -> Iterator[Shell]:
    """A broker on a real port, with TLS if there is a context. Yields a shell with the broker as bootstrap address.

    `keep_metadata`: whether the broker's own answer to Metadata is kept. Otherwise the shell answers.
    """

    async def serve(stream: trio.SocketStream) -> None:
        secured = context and trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        await broker.serve(secured or stream)

    async def start(nursery: trio.Nursery) -> Address:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        return Address(*listeners[0].socket.getsockname())

    shell = Shell()
    if not keep_metadata:
        broker.answers[MetadataRequest] = shell.metadata
    shell.brokers = [broker]
    with in_thread(start) as address:
        shell.addresses = [address]
        yield shell


@contextmanager
def admin_port() -> Iterator[Address]:
    async def start(nursery: trio.Nursery) -> Address:
        return Address(*await nursery.start(serve_admin, admin(), listen(ANY_PORT)[0]))

    with in_thread(start) as address:
        yield address


def server_context(authority: Authority, *names: str, wants_certificate: bool = False) -> ssl.SSLContext:
    certificate = authority.issue(*names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate_file, certificate.key_file)
    if wants_certificate:
        context.load_verify_locations(authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
