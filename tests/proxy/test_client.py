"""The client: what it negotiates, how it asks, and what each way of failing is called."""

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
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.client import (
    CLIENT_ID,
    SOON,
    BrokerClosed,
    BrokerError,
    BrokerRefused,
    BrokerSilent,
    BrokerUnreachable,
    KafkaClient,
    UnsupportedApi,
    connect,
)
from tests.proxy.scripted_broker import HangUp, MemoryNetwork, Mute, PassOver, Raw, ScriptedBroker

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


async def test_learns_the_versions_and_asks_in_the_highest_common_one(network: MemoryNetwork) -> None:
    broker = lists_groups(versions={ListGroupsRequest: (0, 3), HeartbeatRequest: (2, 99)})
    network.brokers[BROKER] = broker
    async with connect(*BROKER) as client:
        assert client.versions == {18: (0, 5), 16: (0, 3), 12: (2, 99)}
        assert client.address == BROKER
        assert await client.ask(ListGroupsRequest()) == GROUPS
        assert await client.ask(ListGroupsRequest(), version=1) == GROUPS
        assert client.version_for(HeartbeatRequest) == 4
    assert [version for _, version in broker.asked] == [3, 1]
    assert set(broker.clients) == {CLIENT_ID}


@pytest.mark.parametrize(("groups", "here"), [(1, True), (2000, False)])
async def test_a_long_reply_is_decoded_in_a_thread(
    groups: int, here: bool, network: MemoryNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The description of a group with 5,000 members held up the data path for 20 ms."""
    listed = tuple(ListedGroup(group_id=f"group-{n}", protocol_type="consumer") for n in range(groups))
    told = ListGroupsResponse(error_code=0, groups=listed)
    network.brokers[BROKER] = ScriptedBroker({ListGroupsRequest: told})
    threads: list[bool] = []

    def decoded(*args: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return decode_start(*args)

    async with connect(*BROKER) as client:
        monkeypatch.setattr("group_sidecar.proxy.client.decode_start", decoded)
        assert await client.ask(ListGroupsRequest()) == told
    assert threads == [here]


async def test_asks_for_versions_anew_in_v0_where_v3_is_not_known(network: MemoryNetwork) -> None:
    broker = lists_groups(versions={ApiVersionsRequest: (0, 2)})
    network.brokers[BROKER] = broker
    async with connect(*BROKER, client_id="me") as client:
        assert await client.ask(ListGroupsRequest()) == GROUPS
    assert broker.clients == ["me"] * 3


async def test_a_broker_that_passes_the_question_over_is_kafka_0_9(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    broker = lists_groups()
    broker.answers |= {ApiVersionsRequest: PassOver(), DescribeGroupsRequest: NOBODY}
    network.brokers[BROKER] = broker
    async with connect(*BROKER) as client:
        assert client.versions is KAFKA_0_9
        assert await client.ask(ListGroupsRequest()) == GROUPS
        await client.ping()
        with pytest.raises(UnsupportedApi):
            client.version_for(HeartbeatRequest, lowest=1)
    told = [(type(request), version) for request, version in broker.asked]
    assert told == [(DescribeGroupsRequest, 0), (ListGroupsRequest, 0), (DescribeGroupsRequest, 0)]
    assert len(broker.clients) == 4, "it was asked once"


async def test_a_broker_that_is_slow_to_say_what_it_speaks_is_no_older_for_it(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    broker = SlowBroker({ListGroupsRequest: GROUPS, DescribeGroupsRequest: NOBODY})
    network.brokers[BROKER] = broker
    async with connect(*BROKER) as client:
        assert client.versions[ListGroupsRequest.KEY] == (0, 5)
        assert await client.ask(ListGroupsRequest()) == GROUPS
        await client.ping()
    assert [type(request) for request, _ in broker.asked] == [DescribeGroupsRequest, ListGroupsRequest]


class SlowBroker(ScriptedBroker):
    """Takes its time over ApiVersions."""

    async def _reply(self, frame: bytes) -> bytes:
        if int.from_bytes(frame[:2], "big") == ApiVersionsRequest.KEY:
            await trio.sleep(2 * SOON)
        return await super()._reply(frame)


async def test_a_listener_that_wants_sasl_is_asked_nothing_else(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async def authenticate(client: KafkaClient) -> float:
        raise AssertionError("it has not said what it speaks")

    network.brokers[BROKER] = broker = ScriptedBroker({ApiVersionsRequest: PassOver()})
    with pytest.raises(BrokerSilent, match=r"did not answer ApiVersions within 3 s$"):
        async with connect(*BROKER, timeout=3, authenticate=authenticate):
            pass
    assert broker.asked == []


async def test_a_broker_of_which_it_is_known_what_it_speaks_is_not_asked(network: MemoryNetwork) -> None:
    network.brokers[BROKER] = broker = lists_groups()
    async with connect(*BROKER, versions=KAFKA_0_9) as client:
        assert await client.ask(ListGroupsRequest()) == GROUPS
    assert len(broker.clients) == 1
    assert [version for _, version in broker.asked] == [0]


async def test_closes_the_connection_at_the_end(network: MemoryNetwork) -> None:
    broker = lists_groups()
    network.brokers[BROKER] = broker
    async with connect(*BROKER):
        pass
    await wait_all_tasks_blocked()
    with pytest.raises(trio.ClosedResourceError):
        await broker.streams[0].receive_some()


async def test_an_api_or_version_that_the_broker_lacks(network: MemoryNetwork) -> None:
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


async def test_nobody_listens(network: MemoryNetwork) -> None:
    with pytest.raises(BrokerUnreachable, match=r"^broker:9092 cannot be reached: Connection refused$"):
        async with connect(*BROKER):
            pass


async def test_the_connection_takes_too_long(network: MemoryNetwork, autojump_clock: MockClock) -> None:
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
async def test_an_address_that_cannot_be(failure: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(host: str, port: int) -> None:
        raise failure

    monkeypatch.setattr(trio, "open_tcp_stream", fail)
    with pytest.raises(BrokerUnreachable, match=f"^broker:9092 cannot be reached: {reason}$"):
        async with connect(*BROKER):
            pass


async def test_the_reason_behind_trios_own() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # Bound and not listening: the port refuses.
        host, port = unused.getsockname()
        with pytest.raises(BrokerUnreachable, match=rf"^127.0.0.1:{port} cannot be reached: Connection refused$"):
            async with connect(host, port):
                pass


async def test_the_first_of_many_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(host: str, port: int) -> None:
        reasons = [OSError(errno.EHOSTUNREACH, "to ::1"), OSError(errno.ECONNREFUSED, "to 127.0.0.1")]
        raise OSError("all attempts failed") from ExceptionGroup("all", reasons)

    monkeypatch.setattr(trio, "open_tcp_stream", fail)
    with pytest.raises(BrokerUnreachable, match=r"No route to host$"):
        async with connect(*BROKER):
            pass


async def test_closes_at_api_versions(network: MemoryNetwork) -> None:
    network.brokers[BROKER] = ScriptedBroker({ApiVersionsRequest: HangUp()})
    with pytest.raises(
        BrokerClosed, match=r"closed the connection at ApiVersions: it may want TLS, or be older than 0.9$"
    ):
        async with connect(*BROKER):
            pass


async def test_refuses_api_versions(network: MemoryNetwork) -> None:
    network.brokers[BROKER] = ScriptedBroker({ApiVersionsRequest: ApiVersionsResponse(error_code=42, api_keys=())})
    with pytest.raises(BrokerRefused, match=r"^broker:9092 answers ApiVersions: error 42$") as raised:
        async with connect(*BROKER):
            pass
    assert raised.value.code == 42


def test_a_refusal_names_the_error() -> None:
    refusal = BrokerRefused("it", ErrorCode.GROUP_AUTHORIZATION_FAILED, "Not authorized.")
    assert str(refusal) == "it: GROUP_AUTHORIZATION_FAILED (30): Not authorized."


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (HangUp(), BrokerClosed, "closed the connection at ListGroups"),
        (Mute(), BrokerSilent, "did not answer ListGroups within 5 s"),
    ],
)
async def test_no_answer_to_a_question(
    network: MemoryNetwork, autojump_clock: MockClock, failure: Exception, kind: type[Exception], text: str
) -> None:
    broker = ScriptedBroker({ListGroupsRequest: failure, HeartbeatRequest: HeartbeatResponse(error_code=0)})
    network.brokers[BROKER] = broker
    async with connect(*BROKER, timeout=5) as client:
        with pytest.raises(kind, match=rf"^broker:9092 {text}: it may want SASL$"):
            await client.ask(ListGroupsRequest())
        with pytest.raises(BrokerClosed, match="has failed before ListGroups"):
            await client.ask(ListGroupsRequest())
    async with connect(*BROKER, timeout=5) as client:
        await client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
        with pytest.raises(kind, match=rf"^broker:9092 {text}$"):  # It has answered: it can't want SASL.
            await client.ask(ListGroupsRequest())


async def test_a_question_given_up_midway_leaves_the_connection_unusable(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    network.brokers[BROKER] = ScriptedBroker({ListGroupsRequest: Mute()})
    async with connect(*BROKER) as client:
        with trio.move_on_after(1):
            await client.ask(ListGroupsRequest())
        with pytest.raises(BrokerClosed):
            await client.ask(ListGroupsRequest())


def reply_of(correlation: int, body: bytes) -> Raw:
    return Raw(correlation.to_bytes(4, "big") + body)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (reply_of(7, b"\0" * 10), "ListGroupsResponse v2: correlation_id: 7, asked with 2"),
        (reply_of(2, b"\0" * 9), "ListGroupsResponse v2: groups: 4 bytes announced, 3 left"),
        (Raw(b"\0\0"), "ListGroupsResponse: a frame of 2 bytes, where 4 to 1000 are expected"),
        (Raw(bytes(1001)), "ListGroupsResponse: a frame of 1001 bytes, where 4 to 1000 are expected"),
    ],
)
async def test_a_reply_that_is_none(network: MemoryNetwork, reply: Raw, reason: str) -> None:
    network.brokers[BROKER] = ScriptedBroker({ListGroupsRequest: reply}, {ListGroupsRequest: (0, 2)})
    async with connect(*BROKER, largest_reply=1000) as client:
        with pytest.raises(DecodeError) as raised:
            await client.ask(ListGroupsRequest())
        assert str(raised.value) == reason


async def test_what_follows_a_reply_is_left_unread(network: MemoryNetwork) -> None:
    network.brokers[BROKER] = ScriptedBroker({ListGroupsRequest: reply_of(2, encode(GROUPS, 2) + b"more")})
    async with connect(*BROKER) as client:
        assert await client.ask(ListGroupsRequest(), version=2) == GROUPS


async def test_a_body_that_does_not_decode_leaves_the_connection_usable(network: MemoryNetwork) -> None:
    broker = ScriptedBroker({ListGroupsRequest: reply_of(2, b"junk")})
    network.brokers[BROKER] = broker
    async with connect(*BROKER) as client:
        with pytest.raises(DecodeError):
            await client.ask(ListGroupsRequest(), version=0)
        broker.answers[ListGroupsRequest] = GROUPS
        assert await client.ask(ListGroupsRequest()) == GROUPS


async def over(chunks: list[bytes]) -> KafkaClient:
    """A client whose broker has already sent these chunks."""
    ours, theirs = memory_stream_pair()
    for chunk in chunks:
        await theirs.send_all(chunk)
    await theirs.send_eof()
    return KafkaClient(ours, BROKER, CLIENT_ID, 5.0, 1000)


# ApiVersions v3, then Heartbeat v0: lengths, correlation ids, bodies.
HELLO = bytes.fromhex("00000013 00000001 0000 02 000c 0000 0000 00 00000000 00".replace(" ", ""))
BEAT = bytes.fromhex("00000006 00000002 001b".replace(" ", ""))


@pytest.mark.parametrize(
    "chunks", [[HELLO + BEAT], [HELLO, BEAT], [bytes([byte]) for byte in HELLO + BEAT]], ids=["one", "two", "bytes"]
)
async def test_replies_however_they_are_cut(chunks: list[bytes]) -> None:
    client = await over(chunks)
    await client.negotiate()
    reply = await client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    assert reply == HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (bytes.fromhex("15030300020250"), "the broker speaks TLS here"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP; is it an admin port"),
    ],
)
async def test_says_which_other_protocol_it_is(reply: bytes, said: str) -> None:
    client = await over([reply])
    with pytest.raises(DecodeError, match=said):
        await client.negotiate()


@given(st.lists(st.binary(min_size=1, max_size=12), max_size=4), st.booleans())
def test_any_bytes_are_an_answer_or_an_error(chunks: list[bytes], greets: bool) -> None:
    async def converse() -> None:
        client = await over([HELLO] * greets + chunks)
        with suppress(BrokerError, DecodeError):
            await client.negotiate()
            await client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))

    trio.run(converse)
