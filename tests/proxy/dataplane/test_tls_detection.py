"""Clients that use TLS on a port without TLS."""

import ssl

import pytest
import trio
import trustme
from structlog.testing import capture_logs

from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters
from group_sidecar.proxy.config.model import DEFAULT_LISTENER
from group_sidecar.proxy.dataplane.commands import Close, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.tls_detection import MAX_HELLO_BYTES
from group_sidecar.proxy.handlers.dispatcher import MAX_REPORTED_TLS_HOSTS
from tests.proxy.dataplane.playbook import Line, broker_state, new_dispatcher
from tests.proxy.fakes import holds, read_to_end, running_proxy

HELLO = bytes.fromhex("16030100c8") + bytes(200)
SERVER_HELLO, ALERT = bytes.fromhex("160303007a") + bytes(122), bytes.fromhex("15030300020228")


def sidecar() -> Line:
    return Line(broker_state())


def gateway() -> Line:
    return Line(broker_state(advertise=lambda node_id, host, port: (host, port)))


@pytest.mark.parametrize("answer", [SERVER_HELLO, SERVER_HELLO[:1], ALERT])
@pytest.mark.parametrize("cut", [1, 3, 4, 100, len(HELLO)])
def test_tls_passes_if_broker_speaks_tls(cut: int, answer: bytes) -> None:
    """A TLS connection passes unparsed in both directions if the broker answers in TLS."""
    line = sidecar()
    commands = [*line.client(HELLO[:cut]), *(line.client(HELLO[cut:]) if cut < len(HELLO) else [])]
    assert b"".join(command.data for command in commands if isinstance(command, ToUpstream)) == HELLO
    assert line.upstream(answer) == [ToClient(answer)]
    for _ in range(3):
        assert line.client(b"anything") == [ToUpstream(b"anything")]
        assert line.upstream(b"whatever") == [ToClient(b"whatever")]
    assert line.session.held_bytes == 0
    assert not line.session.can_use_fast_path
    assert line.counters.tls_passed == 1


def test_plain_reply_to_tls_closes() -> None:
    """A connection closes if the broker does not answer a TLS hello in TLS."""
    line = sidecar()
    line.client(HELLO)
    assert line.upstream(bytes.fromhex("00000004") + bytes(4)) == [Close(CloseReason.BAD_FRAME_LENGTH)]
    line = sidecar()
    line.client(HELLO)
    assert line.upstream_closed() == [Close(CloseReason.BROKER_CLOSED)]


def test_bytes_before_tls_reply_are_bounded() -> None:
    """The client is not read after MAX_HELLO_BYTES until the broker has answered in TLS."""
    line = sidecar()
    line.client(HELLO)
    wanted = [line.session.should_read_client]
    line.client(bytes(MAX_HELLO_BYTES))
    wanted.append(line.session.should_read_client)
    line.upstream(SERVER_HELLO)
    wanted.append(line.session.should_read_client)
    assert wanted == [True, False, True]


def test_gateway_closes_tls_connections(capsys: pytest.CaptureFixture[str]) -> None:
    """A gateway closes and logs a TLS connection, because encrypted replies cannot be rewritten."""
    line = gateway()
    assert line.client(HELLO) == [Close(CloseReason.TLS_TO_GATEWAY)]
    assert line.counters.tls_passed == 1
    assert "closed" in capsys.readouterr().out


def test_tls_is_logged_once_for_each_host() -> None:
    """TLS clients are counted each time and logged once for each host, up to a number of hosts."""
    state = broker_state()
    counters = ListenerCounters(DEFAULT_LISTENER)
    dispatcher = new_dispatcher(state, counters)

    def logged(*hosts: str) -> list[str]:
        """Returns the hosts that the log names after a connection of each of these hosts."""
        with capture_logs() as entries:
            for host in hosts:
                Line(state, client_host=host, dispatcher=dispatcher).client(HELLO)
        return [entry["client"] for entry in entries]

    assert logged("10.0.0.1", "10.0.0.2", "10.0.0.1") == ["10.0.0.1", "10.0.0.2"]
    assert counters.tls_passed == 3
    many = [f"10.1.0.{number}" for number in range(MAX_REPORTED_TLS_HOSTS)]
    assert logged(*many) == many[:-2]


def test_tls_hello_after_request_is_not_tls() -> None:
    """A TLS hello while a reply is pending is a bad frame, not a TLS connection."""
    line = sidecar()
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    line.sends(beat, 3)
    line.client(HELLO)
    assert line.counters.tls_passed == 0
    commands = line.broker_replies(HeartbeatResponse(error_code=0), 3)
    assert commands[-1] == Close(CloseReason.BAD_FRAME_LENGTH)


async def test_a_real_handshake_passes_both_ways() -> None:
    """A real TLS handshake and its data pass in both directions."""
    authority = trustme.CA()
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("broker.test").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)

    async def echo_over_tls(stream: trio.SocketStream) -> None:
        secure = trio.SSLStream(stream, server_side, server_side=True, https_compatible=True)
        while data := await secure.receive_some():
            await secure.send_all(data)

    async with running_proxy(echo_over_tls) as shell:
        stream = trio.SSLStream(
            await shell.connect(), client_side, server_hostname="broker.test", https_compatible=True
        )
        with trio.fail_after(10):
            sent, found = bytes(range(256)) * 4000, bytearray()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.send_all, sent)
                while len(found) < len(sent):
                    found += await stream.receive_some()
            assert found == sent
        await stream.aclose()
        await holds(lambda: shell.connection_manager.connections == 0)


async def test_a_plain_broker_closes_a_tls_client() -> None:
    """A broker that closes on a TLS hello closes the client's connection."""

    async def hangs_up(stream: trio.SocketStream) -> None:
        await stream.receive_some()

    async with running_proxy(hangs_up) as shell, await shell.connect() as client:
        await client.send_all(HELLO)
        assert await read_to_end(client) == b""
        await shell.closed(CloseReason.BROKER_CLOSED)
