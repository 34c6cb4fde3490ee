"""Which protocol a port speaks. All ports are real."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.proxy.broker import port_protocol
from group_sidecar.proxy.broker.port_protocol import PortProtocol, protocol_of
from group_sidecar.proxy.runtime.addresses import Address
from tests.certificates import Authority
from tests.proxy.real_ports import admin_port, in_thread, kafka_port, server_context
from tests.proxy.scripted_broker import ScriptedBroker


@pytest.mark.parametrize("wants_certificate", [False, True])
async def test_tls(tmp_path: Path, wants_certificate: bool) -> None:
    """A port of TLS is recognized without a trusted certificate on either side."""
    context = server_context(Authority(tmp_path), "127.0.0.1", wants_certificate=wants_certificate)
    with kafka_port(ScriptedBroker(), context) as port:
        assert await protocol_of(port.addresses[0]) is PortProtocol.TLS


async def test_kafka() -> None:
    """A port of Kafka without TLS is recognized by its reply to ApiVersions."""
    with kafka_port(ScriptedBroker()) as port:
        assert await protocol_of(port.addresses[0]) is PortProtocol.KAFKA


async def test_controller() -> None:
    """A port of a controller, which has no Metadata, is recognized as Kafka."""
    with kafka_port(ScriptedBroker({ApiVersionsRequest: ApiVersionsResponse(error_code=0, api_keys=())})) as port:
        assert await protocol_of(port.addresses[0]) is PortProtocol.KAFKA


async def test_kafka_port_gets_no_client_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port of Kafka gets no ClientHello, because a sidecar would log one and count its address as a TLS client."""
    monkeypatch.setattr(port_protocol, "_client_hello", lambda: pytest.fail("a ClientHello was sent"))
    with kafka_port(ScriptedBroker()) as port:
        assert await protocol_of(port.addresses[0]) is PortProtocol.KAFKA


async def test_http() -> None:
    """A port of HTTP is recognized."""
    with admin_port() as address:
        assert await protocol_of(address) is PortProtocol.HTTP


async def close(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.aclose()


async def stay_silent(_: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def greet(stream: trio.SocketStream) -> None:
    await stream.send_all(b"220 mail.example ESMTP\r\n")


async def close_at_once(stream: trio.SocketStream) -> None:
    await stream.aclose()


async def close_unless_tls(stream: trio.SocketStream) -> None:
    """Stays silent after a ClientHello, as a slow port of TLS does."""
    if (await stream.receive_some()).startswith(b"\x16"):
        await trio.sleep_forever()


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (close, PortProtocol.NOTHING),
        (close_at_once, PortProtocol.NOTHING),
        (close_unless_tls, None),
        (stay_silent, None),
        (greet, None),
    ],
)
async def test_unknown_protocol(
    monkeypatch: pytest.MonkeyPatch,
    behaviour: Callable[[trio.SocketStream], Awaitable[None]],
    expected: PortProtocol | None,
) -> None:
    """A port that closes without an answer is recognized. Another protocol, and silence, have no result."""
    monkeypatch.setattr(port_protocol, "ATTEMPT_SECONDS", 0.2)

    async def start(nursery: trio.Nursery) -> Address:
        listeners = await nursery.start(partial(trio.serve_tcp, behaviour, 0, host="127.0.0.1"))
        return Address(*listeners[0].socket.getsockname())

    with in_thread(start) as address:
        assert await protocol_of(address) is expected


async def test_closed_port() -> None:
    """A port without a listener has no result."""
    assert await protocol_of(Address("127.0.0.1", 1)) is None
