"""Tests the client: negotiation, requests, and the text of each failure."""

import errno
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.schema import decode_start, encode
from group_sidecar.proxy.broker.broker_errors import (
    BrokerClosed,
    BrokerError,
    BrokerRefused,
    BrokerTimeout,
    BrokerUnreachable,
    NotABroker,
    UnsupportedApi,
)
from group_sidecar.proxy.broker.kafka_client import CLIENT_ID, SLOW_API_VERSIONS_SECONDS, KafkaClient, connect
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.scripted_broker import HangUp, MemoryNetwork, NoReply, RawReply, ScriptedBroker, SkipRequest

BROKER = Address("broker", 9092)
NOBODY = DescribeGroupsResponse(groups=())
GROUPS = ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="g", protocol_type="consumer"),))


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    network = MemoryNetwork(nursery)
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


def lists_groups(**more: Any) -> ScriptedBroker:
    return ScriptedBroker({ListGroupsRequest: GROUPS}, **more)


async def test_highest_common_version_is_used(network: MemoryNetwork) -> None:
    """The client learns the broker's versions and sends requests in the highest common one."""
    broker = lists_groups(versions={ListGroupsRequest: (0, 3), HeartbeatRequest: (2, 99)})
    network.brokers[BROKER] = broker
    async with connect(*BROKER) as client:
        assert client.versions == {18: (0, 5), 3: (0, 13), 16: (0, 3), 12: (2, 99)}
        assert client.address == BROKER
        assert await client.ask(ListGroupsRequest()) == GROUPS
        assert await client.ask(ListGroupsRequest(), version=1) == GROUPS
        assert client.version_for(HeartbeatRequest) == 4
    assert [version for _, version in broker.asked] == [3, 1]
    assert set(broker.clients) == {CLIENT_ID}


@pytest.mark.parametrize(("groups", "here"), [(1, True), (2000, False)])
async def test_long_reply_is_decoded_in_thread(
    groups: int, here: bool, network: MemoryNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long reply is decoded in a thread, because it would delay the data path."""
    listed = tuple(ListedGroup(group_id=f"group-{n}", protocol_type="consumer") for n in range(groups))
    response = ListGroupsResponse(error_code=0, groups=listed)
    network.brokers[BROKER] = ScriptedBroker({ListGroupsRequest: response})
    threads: list[bool] = []

    def decoded(*args: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return decode_start(*args)

    async with connect(*BROKER) as client:
        monkeypatch.setattr("group_sidecar.proxy.broker.kafka_client.decode_start", decoded)
        assert await client.ask(ListGroupsRequest()) == response
    assert threads == [here]


async def test_api_versions_falls_back_to_v0(network: MemoryNetwork) -> None:
    """A broker that does not know ApiVersions version 3 is asked again in version 0."""
    broker = lists_groups(versions={ApiVersionsRequest: (0, 2)})
    network.brokers[BROKER] = broker
    async with connect(*BROKER, client_id="me") as client:
        assert await client.ask(ListGroupsRequest()) == GROUPS
    assert broker.clients == ["me"] * 3


async def test_broker_without_api_versions_is_old(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A broker that ignores ApiVersions and answers the next request counts as Kafka 0.9."""
    broker = lists_groups()
    broker.answers |= {ApiVersionsRequest: SkipRequest(), DescribeGroupsRequest: NOBODY}
    network.brokers[BROKER] = broker
    async with connect(*BROKER) as client:
        assert client.versions is KAFKA_0_9
        assert await client.ask(ListGroupsRequest()) == GROUPS
        await client.ping()
        with pytest.raises(UnsupportedApi):
            client.version_for(HeartbeatRequest, lowest=1)
    requests = [(type(request), version) for request, version in broker.asked]
    assert requests == [(DescribeGroupsRequest, 0), (ListGroupsRequest, 0), (DescribeGroupsRequest, 0)]
    assert len(broker.clients) == 4, "ApiVersions must be sent only once"


async def test_controller_is_no_broker(network: MemoryNetwork) -> None:
    """A port that answers ApiVersions without Metadata is not a broker's, and the error names the likely mix-up."""
    network.brokers[BROKER] = ScriptedBroker({ApiVersionsRequest: ApiVersionsResponse(error_code=0, api_keys=())})
    expected = r"^broker:9092 speaks Kafka without Metadata: is it the listener of a controller\?$"
    with pytest.raises(NotABroker, match=expected):
        async with connect(*BROKER):
            pass


async def test_slow_api_versions_reply_counts(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A slow reply to ApiVersions counts, and the broker is not taken for Kafka 0.9."""
    broker = SlowBroker({ListGroupsRequest: GROUPS, DescribeGroupsRequest: NOBODY})
    network.brokers[BROKER] = broker
    async with connect(*BROKER) as client:
        assert client.versions[ListGroupsRequest.KEY] == (0, 5)
        assert await client.ask(ListGroupsRequest()) == GROUPS
        await client.ping()
    assert [type(request) for request, _ in broker.asked] == [DescribeGroupsRequest, ListGroupsRequest]


class SlowBroker(ScriptedBroker):
    """A broker that delays its reply to ApiVersions."""

    async def _reply(self, frame: bytes) -> bytes:
        if int.from_bytes(frame[:2], "big") == ApiVersionsRequest.KEY:
            await trio.sleep(2 * SLOW_API_VERSIONS_SECONDS)
        return await super()._reply(frame)


async def test_sasl_listener_gets_only_api_versions(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A listener that needs SASL and ignores ApiVersions gets no other request."""

    async def authenticate(client: KafkaClient) -> float:
        raise AssertionError("the client authenticated before it knew the broker's versions")

    network.brokers[BROKER] = broker = ScriptedBroker({ApiVersionsRequest: SkipRequest()})
    with pytest.raises(BrokerTimeout, match=r"did not answer ApiVersions within 3 s$"):
        async with connect(*BROKER, timeout=3, authenticate=authenticate):
            pass
    assert broker.asked == []


async def test_known_versions_skip_api_versions(network: MemoryNetwork) -> None:
    """A client that is given the versions does not ask for them."""
    network.brokers[BROKER] = broker = lists_groups()
    async with connect(*BROKER, versions=KAFKA_0_9) as client:
        assert await client.ask(ListGroupsRequest()) == GROUPS
    assert len(broker.clients) == 1
    assert [version for _, version in broker.asked] == [0]


async def test_connection_is_closed_at_exit(network: MemoryNetwork) -> None:
    """The connection is closed at the end of the block."""
    broker = lists_groups()
    network.brokers[BROKER] = broker
    async with connect(*BROKER):
        pass
    await wait_all_tasks_blocked()
    with pytest.raises(trio.ClosedResourceError):
        await broker.streams[0].receive_some()


async def test_missing_api_or_version_raises(network: MemoryNetwork) -> None:
    """A request in an API or version that the broker lacks raises UnsupportedApi with the supported range."""
    network.brokers[BROKER] = lists_groups(versions={ListGroupsRequest: (0, 3), ApiVersionsRequest: (3, 4)})
    async with connect(*BROKER) as client:
        assert client.speaks(ListGroupsRequest)
        assert not client.speaks(HeartbeatRequest)
        with pytest.raises(UnsupportedApi, match=r"^broker:9092 does not know Heartbeat$"):
            await client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
        with pytest.raises(UnsupportedApi, match=r"^broker:9092 speaks ListGroups v0 to v3, where v4 to v5 is needed$"):
            client.version_for(ListGroupsRequest, lowest=4)
        assert client.version_for(ListGroupsRequest, highest=2) == 2
        assert await client.ask(ListGroupsRequest()) == GROUPS


async def test_refused_connection_is_unreachable(network: MemoryNetwork) -> None:
    """A refused connection raises BrokerUnreachable with its reason."""
    with pytest.raises(BrokerUnreachable, match=r"^broker:9092 cannot be reached: Connection refused$"):
        async with connect(*BROKER):
            pass


async def test_connect_timeout_is_unreachable(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A connection that takes too long raises BrokerUnreachable."""
    network.brokers[BROKER] = None
    with pytest.raises(BrokerUnreachable, match=r"no connection within 3 s$"):
        async with connect(*BROKER, timeout=3):
            pass


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (UnicodeError("label too long"), "label too long"),
        (OverflowError("port must be 0-65535"), "port must be 0-65535"),
        (OSError("no number"), "no number"),
    ],
)
async def test_invalid_address_is_unreachable(failure: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that cannot be resolved or used raises BrokerUnreachable with the reason."""

    async def fail(host: str, port: int) -> None:
        raise failure

    monkeypatch.setattr(trio, "open_tcp_stream", fail)
    with pytest.raises(BrokerUnreachable, match=f"^broker:9092 cannot be reached: {reason}$"):
        async with connect(*BROKER):
            pass


async def test_connect_error_has_system_reason() -> None:
    """The error of a connection contains the system's reason instead of trio's."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # The socket is bound but does not listen: the port refuses connections.
        host, port = unused.getsockname()
        with pytest.raises(BrokerUnreachable, match=rf"^127.0.0.1:{port} cannot be reached: Connection refused$"):
            async with connect(host, port):
                pass


async def test_first_of_several_reasons_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all addresses fail, the error contains the first reason."""

    async def fail(host: str, port: int) -> None:
        reasons = [OSError(errno.EHOSTUNREACH, "to ::1"), OSError(errno.ECONNREFUSED, "to 127.0.0.1")]
        raise OSError("all attempts failed") from ExceptionGroup("all", reasons)

    monkeypatch.setattr(trio, "open_tcp_stream", fail)
    with pytest.raises(BrokerUnreachable, match=r"No route to host$"):
        async with connect(*BROKER):
            pass


async def test_close_at_api_versions_has_hint(network: MemoryNetwork) -> None:
    """A broker that closes the connection at ApiVersions raises BrokerClosed with a hint."""
    network.brokers[BROKER] = ScriptedBroker({ApiVersionsRequest: HangUp()})
    with pytest.raises(
        BrokerClosed, match=r"closed the connection at ApiVersions: it may require TLS, or be older than 0.9$"
    ):
        async with connect(*BROKER):
            pass


async def test_refused_api_versions_raises(network: MemoryNetwork) -> None:
    """An error in the reply to ApiVersions raises BrokerRefused with its code."""
    network.brokers[BROKER] = ScriptedBroker({ApiVersionsRequest: ApiVersionsResponse(error_code=42, api_keys=())})
    with pytest.raises(BrokerRefused, match=r"^broker:9092 answers ApiVersions: error 42$") as raised:
        async with connect(*BROKER):
            pass
    assert raised.value.code == 42


def test_a_refusal_names_the_error() -> None:
    """The text of a refusal contains the error's name, code and message."""
    refusal = BrokerRefused("it", ErrorCode.GROUP_AUTHORIZATION_FAILED, "Not authorized.")
    assert str(refusal) == "it: GROUP_AUTHORIZATION_FAILED (30): Not authorized."


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (HangUp(), BrokerClosed, "closed the connection at ListGroups"),
        (NoReply(), BrokerTimeout, "did not answer ListGroups within 5 s"),
    ],
)
async def test_missing_reply_breaks_connection(
    network: MemoryNetwork, autojump_clock: MockClock, failure: Exception, kind: type[Exception], text: str
) -> None:
    """A missing reply raises an error with a SASL hint only before the first reply. The connection is then unusable."""
    broker = ScriptedBroker({ListGroupsRequest: failure, HeartbeatRequest: HeartbeatResponse(error_code=0)})
    network.brokers[BROKER] = broker
    async with connect(*BROKER, timeout=5) as client:
        with pytest.raises(kind, match=rf"^broker:9092 {text}: it may require SASL$"):
            await client.ask(ListGroupsRequest())
        with pytest.raises(BrokerClosed, match="has failed before ListGroups"):
            await client.ask(ListGroupsRequest())
    async with connect(*BROKER, timeout=5) as client:
        await client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
        # The broker has answered before, so it does not require SASL.
        with pytest.raises(kind, match=rf"^broker:9092 {text}$"):
            await client.ask(ListGroupsRequest())


async def test_cancelled_request_breaks_connection(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A cancelled request leaves the connection unusable."""
    network.brokers[BROKER] = ScriptedBroker({ListGroupsRequest: NoReply()})
    async with connect(*BROKER) as client:
        with trio.move_on_after(1):
            await client.ask(ListGroupsRequest())
        with pytest.raises(BrokerClosed):
            await client.ask(ListGroupsRequest())


def reply_of(correlation: int, body: bytes) -> RawReply:
    return RawReply(correlation.to_bytes(4, "big") + body)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (reply_of(7, b"\0" * 10), "ListGroupsResponse v2: correlation_id: 7, asked with 2"),
        (reply_of(2, b"\0" * 9), "ListGroupsResponse v2: groups: 4 bytes announced, 3 left"),
        (RawReply(b"\0\0"), "ListGroupsResponse: a frame of 2 bytes, where 4 to 1000 are expected"),
        (RawReply(bytes(1001)), "ListGroupsResponse: a frame of 1001 bytes, where 4 to 1000 are expected"),
    ],
)
async def test_invalid_reply_raises(network: MemoryNetwork, reply: RawReply, reason: str) -> None:
    """A reply with a wrong correlation id, length or body raises DecodeError with the reason."""
    network.brokers[BROKER] = ScriptedBroker({ListGroupsRequest: reply}, {ListGroupsRequest: (0, 2)})
    async with connect(*BROKER, largest_reply=1000) as client:
        with pytest.raises(DecodeError) as raised:
            await client.ask(ListGroupsRequest())
        assert str(raised.value) == reason


async def test_trailing_bytes_are_ignored(network: MemoryNetwork) -> None:
    """Bytes after the end of a reply's body are ignored."""
    network.brokers[BROKER] = ScriptedBroker({ListGroupsRequest: reply_of(2, encode(GROUPS, 2) + b"more")})
    async with connect(*BROKER) as client:
        assert await client.ask(ListGroupsRequest(), version=2) == GROUPS


async def test_undecodable_body_keeps_connection(network: MemoryNetwork) -> None:
    """A body that cannot be decoded leaves the connection usable."""
    broker = ScriptedBroker({ListGroupsRequest: reply_of(2, b"junk")})
    network.brokers[BROKER] = broker
    async with connect(*BROKER) as client:
        with pytest.raises(DecodeError):
            await client.ask(ListGroupsRequest(), version=0)
        broker.answers[ListGroupsRequest] = GROUPS
        assert await client.ask(ListGroupsRequest()) == GROUPS


async def over(chunks: list[bytes]) -> KafkaClient:
    """Returns a client whose broker has already sent these chunks."""
    ours, theirs = memory_stream_pair()
    for chunk in chunks:
        await theirs.send_all(chunk)
    await theirs.send_eof()
    return KafkaClient(ours, BROKER, CLIENT_ID, 5.0, 1000)


# ApiVersions v3, then Heartbeat v0: lengths, correlation ids, bodies.
HELLO = bytes.fromhex("0000001a 00000001 0000 03 0003 0000 0000 00 000c 0000 0000 00 00000000 00".replace(" ", ""))
BEAT = bytes.fromhex("00000006 00000002 001b".replace(" ", ""))


@pytest.mark.parametrize(
    "chunks", [[HELLO + BEAT], [HELLO, BEAT], [bytes([byte]) for byte in HELLO + BEAT]], ids=["one", "two", "bytes"]
)
async def test_split_replies_are_reassembled(chunks: list[bytes]) -> None:
    """Replies are read whichever way they are split."""
    client = await over(chunks)
    await client.negotiate()
    reply = await client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    assert reply == HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (bytes.fromhex("15030300020250"), "the broker speaks TLS here"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP; is it an admin port"),
    ],
)
async def test_other_protocol_is_named(reply: bytes, cause: str) -> None:
    """A reply in TLS or HTTP raises DecodeError that names the protocol."""
    client = await over([reply])
    with pytest.raises(DecodeError, match=cause):
        await client.negotiate()


@given(st.lists(st.binary(min_size=1, max_size=12), max_size=4), st.booleans())
def test_random_bytes_raise_only_known_errors(chunks: list[bytes], greets: bool) -> None:
    """Random bytes from the broker cause a reply, a BrokerError or a DecodeError."""

    async def converse() -> None:
        client = await over([HELLO] * greets + chunks)
        with suppress(BrokerError, DecodeError):
            await client.negotiate()
            await client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))

    trio.run(converse)
