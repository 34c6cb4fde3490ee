"""Clients that speak TLS to a port where plain Kafka is expected."""

import ssl

import pytest
import trio
import trustme

from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.commands import Close, ToClient, ToUpstream
from group_sidecar.proxy.desk import BrokerDesk
from group_sidecar.proxy.tls_start import MOST_HELLO
from tests.proxy.fakes import carried, holds, read_to_end
from tests.proxy.playbook import Line, broker_copy

HELLO = bytes.fromhex("16030100c8") + bytes(200)
SERVER_HELLO, ALERT = bytes.fromhex("160303007a") + bytes(122), bytes.fromhex("15030300020228")


def sidecar() -> Line:
    return Line(broker_copy())


def gateway() -> Line:
    return Line(broker_copy(advertise=lambda node_id, host, port: (host, port)))


@pytest.mark.parametrize("answer", [SERVER_HELLO, SERVER_HELLO[:1], ALERT])
@pytest.mark.parametrize("cut", [1, 3, 4, 100, len(HELLO)])
def test_a_tls_client_passes_unread_where_the_broker_speaks_tls(cut: int, answer: bytes) -> None:
    line = sidecar()
    said = [*line.client(HELLO[:cut]), *(line.client(HELLO[cut:]) if cut < len(HELLO) else [])]
    assert b"".join(command.data for command in said if isinstance(command, ToUpstream)) == HELLO
    assert line.upstream(answer) == [ToClient(answer)]
    for _ in range(3):
        assert line.client(b"anything") == [ToUpstream(b"anything")]
        assert line.upstream(b"whatever") == [ToClient(b"whatever")]
    assert line.session.held_bytes == 0
    assert not line.session.at_ease
    assert line.traffic.tls_connections == 1


def test_a_broker_that_does_not_speak_tls_ends_the_connection() -> None:
    line = sidecar()
    line.client(HELLO)
    assert line.upstream(bytes.fromhex("00000004") + bytes(4)) == [Close(CloseReason.BAD_FRAME_LENGTH)]
    line = sidecar()
    line.client(HELLO)
    assert line.upstream_closed() == [Close(CloseReason.BROKER_CLOSED)]


def test_only_so_much_goes_to_a_broker_that_has_not_spoken_tls() -> None:
    line = sidecar()
    line.client(HELLO)
    wanted = [line.session.wants_client]
    line.client(bytes(MOST_HELLO))
    wanted.append(line.session.wants_client)
    line.upstream(SERVER_HELLO)
    wanted.append(line.session.wants_client)
    assert wanted == [True, False, True]


def test_a_gateway_closes_what_it_cannot_rewrite(capsys: pytest.CaptureFixture[str]) -> None:
    line = gateway()
    assert line.client(HELLO) == [Close(CloseReason.TLS_TO_GATEWAY)]
    assert line.traffic.tls_connections == 1
    assert "closed" in capsys.readouterr().out


def test_it_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    copy = broker_copy()
    desk = BrokerDesk(copy)
    for _ in range(3):
        Line(copy, desk=desk).client(HELLO)
    assert copy.traffic.tls_connections == 3
    assert capsys.readouterr().out.count("a client speaks TLS") == 1


def test_a_client_that_is_owed_a_reply_does_not_begin_with_tls() -> None:
    line = sidecar()
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    line.says(beat, 3)
    line.client(HELLO)
    assert line.traffic.tls_connections == 0
    commands = line.broker_says(HeartbeatResponse(error_code=0), 3)
    assert commands[-1] == Close(CloseReason.BAD_FRAME_LENGTH)


async def test_a_real_handshake_passes_both_ways() -> None:
    authority = trustme.CA()
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("broker.test").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)

    async def echo_over_tls(stream: trio.SocketStream) -> None:
        secure = trio.SSLStream(stream, server_side, server_side=True, https_compatible=True)
        while data := await secure.receive_some():
            await secure.send_all(data)

    async with carried(echo_over_tls) as shell:
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
        await holds(lambda: shell.pump.connections == 0)


async def test_a_plain_broker_closes_a_tls_client() -> None:
    async def hangs_up(stream: trio.SocketStream) -> None:
        await stream.receive_some()

    async with carried(hangs_up) as shell, await shell.connect() as client:
        await client.send_all(HELLO)
        assert await read_to_end(client) == b""
        await shell.closed(CloseReason.BROKER_CLOSED)
