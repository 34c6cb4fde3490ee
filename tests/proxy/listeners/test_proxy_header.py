"""The PROXY header at the start of connections to a listener."""

import pytest
import trio

from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane.outcomes import Origin
from tests.proxy.fakes import read_frame, read_to_end, reply_frame, request_frame
from tests.proxy.listeners.tls_shell import Pki, memory_client, proxy

HEADER = b"PROXY TCP4 203.0.113.7 10.0.0.1 5555 9092\r\n"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("cut", [0, 1, 20, len(HEADER)])
async def test_proxy_header_gives_the_clients_host(pki: Pki, tls: bool, cut: int) -> None:
    """The host of the PROXY header is the client's host. What follows the header is served, however it is cut."""
    origins: list[Origin] = []
    settings = {"proxy_protocol": True, **(pki.listener if tls else {})}
    async with proxy(settings, origins=origins) as shell, memory_client(pki, shell) as client:
        await client.stream.send_all(HEADER[:cut])
        if tls:
            await client.stream.send_all(HEADER[cut:])
            await client.stream.send_all(await client.do_handshake())
            await client.stream.send_all(client.encrypt(request_frame(1)))
            assert await read_frame(client) == reply_frame(1)  # type: ignore[arg-type]
        else:
            await trio.lowlevel.checkpoint()
            await client.stream.send_all(HEADER[cut:] + request_frame(1))
            assert await read_frame(client.stream) == reply_frame(1)
    assert [origin.client_host for origin in origins] == ["203.0.113.7"]


@pytest.mark.parametrize("sent", [request_frame(1), b"\x16\x03\x01\x02\x00", b"PROXY TCP9 "], ids=str)
async def test_connection_without_proxy_header_is_closed(sent: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """A connection that does not begin with a PROXY header is closed, because its host would be wrong."""
    async with proxy({"proxy_protocol": True}) as shell, await shell.connect() as client:
        await client.send_all(sent)
        await read_to_end(client)
        await shell.closed(CloseReason.PROXY_HEADER)
        assert shell.broker.connections == 0
    assert "a client sent no PROXY header" in capsys.readouterr().out


async def test_endless_proxy_header_is_closed_in_time() -> None:
    """A connection that does not finish its PROXY header is closed after `limits.handshake_seconds`."""
    async with proxy({"proxy_protocol": True}, seconds=0.2) as shell, await shell.connect() as client:
        await client.send_all(b"PROXY ")
        await read_to_end(client)
        await shell.closed(CloseReason.PROXY_HEADER)
