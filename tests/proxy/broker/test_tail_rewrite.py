"""Replaces the addresses at the ends of replies, in replies that are held and in replies that pass."""

from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from group_sidecar.codecs.messages.produce import NodeEndpoint
from group_sidecar.codecs.reply_tail_fields import (
    TAIL_VERSION,
    FetchTail,
    QuorumListener,
    QuorumNode,
    QuorumTail,
    ShareTail,
)
from group_sidecar.codecs.schema import Struct, decode, encode
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.tail_rewrite import MAX_HELD_BYTES, RESERVED_BYTES, fitted, rewrite_tail
from group_sidecar.proxy.dataplane.commands import Close
from group_sidecar.proxy.dataplane.held_request_budget import SMALL_FRAME
from tests.proxy.dataplane.playbook import Line, complete_state, framed, pieces, request, to_client

HOST = "broker-7.internal"
OURS = "gateway"
LONG_HOST = "a-very-long-name-of-a-gateway." * 8
TAIL_APIS = (ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
NEWEST = {ApiKey.FETCH: 18, ApiKey.SHARE_FETCH: 2, ApiKey.SHARE_ACKNOWLEDGE: 2, ApiKey.DESCRIBE_QUORUM: 2}


def endpoints(*ids: int, host: str = HOST, **more: Any) -> tuple[NodeEndpoint, ...]:
    """Returns the addresses of nodes."""
    return tuple(NodeEndpoint(node_id=n, host=host, port=9092, **more) for n in ids)


def tail_of(key: int, found: tuple[NodeEndpoint, ...] = (), **more: Any) -> Struct:
    """Returns the last fields of a reply."""
    return (FetchTail if key == ApiKey.FETCH else ShareTail)(node_endpoints=found, **more)


def line(host: str = OURS, **settings: Any) -> Line:
    """Returns the connection of a client through a gateway."""
    return Line(complete_state(advertise=lambda node, _host, _port: (host, 20_000 + node), **settings))


def reply_of(key: int, records: int, tail: Struct, partitions: int = 1) -> bytes:
    """Returns a reply in the newest version, with `records` bytes of records in each partition."""
    data = b"\xff" * records
    number = len(data) + 1
    sized = b""
    while number > 127:
        sized, number = sized + bytes((number & 127 | 128,)), number >> 7
    data = sized + bytes((number,)) + data
    if key == ApiKey.FETCH:
        partition = bytes(30) + b"\1" + bytes(4) + data + b"\0"
        start = bytes(10)
    elif key == ApiKey.SHARE_FETCH:
        partition = bytes(6) + b"\0" + bytes(2) + b"\0" + bytes(8) + b"\0" + data + b"\1" + b"\0"
        start = bytes(6) + b"\0" + bytes(4)
    elif key == ApiKey.SHARE_ACKNOWLEDGE:
        partition = bytes(6) + data + bytes(8) + b"\0" + b"\0"
        start = bytes(6) + b"\0" + bytes(4)
    else:
        partition = bytes(6) + data + bytes(16) + b"\1\1" + b"\0"
        start = bytes(2) + b"\0"
    topic = (b"\2t" if key == ApiKey.DESCRIBE_QUORUM else bytes(16)) + bytes((partitions + 1,))
    topics = b"\2" + topic + partition * partitions + b"\0"
    return framed((1).to_bytes(4) + b"\0" + start + topics + encode(tail, TAIL_VERSION))


def exchanged(client: Line, key: int, reply: bytes, piece: int = 0) -> bytes:
    """Sends a request and its reply in pieces. Returns what the client gets."""
    client.client(request(key, 1, version=NEWEST[ApiKey(key)], body=b"\0" + bytes(40)))
    return b"".join(to_client(client.upstream(each)) for each in pieces(reply, piece))


def heard(key: int, before: bytes, after: bytes, tail: Struct) -> Any:
    """Returns the last fields that the client gets. Asserts that the bytes before them are unchanged."""
    at = len(before) - len(encode(tail, TAIL_VERSION))
    assert int.from_bytes(after[:4]) == len(after) - 4
    assert after[4:at] == before[4:at]
    return decode(type(tail), TAIL_VERSION, after[at:])


@pytest.mark.parametrize("key", TAIL_APIS)
@pytest.mark.parametrize("piece", [0, 1000, 40_000])
@pytest.mark.parametrize("records", [10, MAX_HELD_BYTES, 300_000])
@pytest.mark.parametrize("host", [OURS, LONG_HOST])
def test_addresses_are_replaced(key: int, piece: int, records: int, host: str) -> None:
    """Each address at the end of a reply is replaced, however long the reply and the new addresses are."""
    tail = tail_of(key, endpoints(1, 2, rack="r"))
    before = reply_of(key, records, tail)
    after = exchanged(line(host), key, before, piece)
    found = [(each.node_id, each.host, each.port, each.rack) for each in heard(key, before, after, tail).node_endpoints]
    assert found == [(n, host, 20_000 + n, "r") for n in (1, 2)]
    assert HOST.encode() not in after


@pytest.mark.parametrize("key", TAIL_APIS)
def test_long_reply_of_small_pieces_passes_as_it_comes(key: int) -> None:
    """All bytes of a long reply except its last fields are forwarded at once, and are not held."""
    tail = tail_of(key, endpoints(1))
    before = reply_of(key, 200_000, tail)
    client = line()
    client.client(request(key, 1, version=NEWEST[ApiKey(key)], body=bytes(41)))
    sent = 0
    for piece in pieces(before, 999)[:-1]:
        sent += len(to_client(client.upstream(piece)))
        assert client.session.partial_reply_bytes < 999
    assert sent > 198_000


@pytest.mark.parametrize("key", TAIL_APIS)
@pytest.mark.parametrize("records", [10, 100_000])
def test_unknown_fields_are_removed(key: int, records: int) -> None:
    """Unknown tagged fields at the end, and in addresses, are removed, because they may carry addresses."""
    tags = ((4711, HOST.encode()),)
    tail = tail_of(key, endpoints(1, unknown_tags=tags), unknown_tags=tags)
    assert HOST.encode() not in exchanged(line(), key, reply_of(key, records, tail), 30_000)


@pytest.mark.parametrize("key", TAIL_APIS)
def test_too_many_addresses_are_left_out(key: int) -> None:
    """If a long reply has no room for all new addresses, the client gets some of them, and no address of a broker."""
    tail = tail_of(key, endpoints(*range(100)))
    before = reply_of(key, 100_000, tail)
    after = exchanged(line(LONG_HOST), key, before, 30_000)
    found = heard(key, before, after, tail).node_endpoints
    assert 0 < len(found) < 100
    assert {each.host for each in found} == {LONG_HOST}
    assert HOST.encode() not in after


@pytest.mark.parametrize("key", TAIL_APIS)
@pytest.mark.parametrize("piece", [0, 1000])
def test_reply_after_a_long_one(key: int, piece: int) -> None:
    """The replies before and after an edited one pass unchanged, even if all arrive together."""
    tail = tail_of(key, endpoints(1))
    client = line()
    for number in (1, 2, 3):
        version = NEWEST[ApiKey(key)] if number == 2 else 2
        api = key if number == 2 else ApiKey.HEARTBEAT
        client.client(request(api, number, version=version, body=bytes(41)))
    first, last = framed((1).to_bytes(4) + bytes(6)), framed((3).to_bytes(4) + bytes(6))
    edited = reply_of(key, 100_000, tail)
    edited = edited[:4] + (2).to_bytes(4) + edited[8:]
    after = b"".join(to_client(client.upstream(each)) for each in pieces(first + edited + last, piece))
    assert after.startswith(first)
    assert after.endswith(last)
    assert OURS.encode() in after
    assert HOST.encode() not in after
    assert client.session.is_idle


def test_reply_without_addresses_is_unchanged() -> None:
    """A Fetch reply without addresses that is held passes unchanged, also without partitions."""
    for frame in (reply_of(ApiKey.FETCH, 500, FetchTail()), framed((1).to_bytes(4) + b"\0" + bytes(10) + b"\1\0")):
        assert exchanged(line(), ApiKey.FETCH, frame) == frame


@pytest.mark.parametrize("records", [10, 100_000])
def test_listeners_of_controllers_are_left_out(records: int) -> None:
    """A client gets the ids of the controllers without their addresses, because it cannot reach them."""
    listener = QuorumListener(name="CONTROLLER", host=HOST, port=9093)
    tail = QuorumTail(nodes=(QuorumNode(node_id=3, listeners=(listener,)), QuorumNode(node_id=4, listeners=())))
    before = reply_of(ApiKey.DESCRIBE_QUORUM, records, tail)
    after = exchanged(line(), ApiKey.DESCRIBE_QUORUM, before, 30_000)
    assert [(n.node_id, n.listeners) for n in heard(ApiKey.DESCRIBE_QUORUM, before, after, tail).nodes] == [
        (3, ()),
        (4, ()),
    ]


def broken(body: bytes, records: int) -> bytes:
    """Returns a Fetch reply that ends with these bytes."""
    frame = reply_of(ApiKey.FETCH, records, FetchTail())
    return framed(frame[4:-1] + body)


LIES = {
    "no end": b"",
    "a field that is longer than the reply": b"\1\0\xff\x7f" + HOST.encode(),
    "very many addresses": b"\1\0\x20\xff\xff\xff\xff\x07" + HOST.encode(),
    "a name that is longer than its field": b"\1\0\x0a\x02\0\0\0\1\x70host",
    "very many fields": b"\xff\xff\xff\xff\x07" + HOST.encode(),
    "a long end": b"\1\x09\xff\xff\x7f" + bytes(80_000) + HOST.encode(),
}


@pytest.mark.parametrize("body", LIES.values(), ids=LIES.keys())
@pytest.mark.parametrize("records", [10, 100_000])
def test_lying_end_closes_the_connection(body: bytes, records: int) -> None:
    """If the end of a reply cannot be read, the connection is closed, and no byte of the end reaches the client."""
    client = line()
    client.client(request(ApiKey.FETCH, 1, version=18, body=bytes(41)))
    commands = [each for piece in pieces(broken(body, records), 30_000) for each in client.upstream(piece)]
    assert commands[-1:] == [Close(CloseReason.UNREADABLE)]
    assert HOST.encode() not in to_client(commands)


def test_reply_without_port_closes_the_connection() -> None:
    """If the gateway has no port for a node, a long reply with the node's address closes the connection."""

    def refuse(node: int, host: str, port: int) -> tuple[str, int]:
        raise ValueError("no port")

    client = Line(complete_state(advertise=refuse))
    client.client(request(ApiKey.FETCH, 1, version=18, body=bytes(41)))
    frame = reply_of(ApiKey.FETCH, 100_000, FetchTail(node_endpoints=endpoints(1)))
    commands = [each for piece in pieces(frame, 30_000) for each in client.upstream(piece)]
    assert commands[-1:] == [Close(CloseReason.UNREADABLE)]


@pytest.mark.parametrize("gap", [*range(40), *range(125, 140), *range(250, 270), 512, 8192, 8193, 16_390, 70_000])
@pytest.mark.parametrize("tail", [FetchTail(), FetchTail(node_endpoints=endpoints(1, 2)), ShareTail(node_endpoints=())])
def test_end_has_the_wanted_size(gap: int, tail: Any) -> None:
    """The end of a reply is filled to any size with fields that a decoder skips."""
    size = len(encode(tail, TAIL_VERSION)) + gap
    if gap == 1 and not tail.node_endpoints:
        with pytest.raises(ValueError, match="does not fit"):
            fitted(tail, size)
        return
    filled = fitted(tail, size)
    assert len(filled) == size
    decoded_tail = decode(type(tail), TAIL_VERSION, filled)
    numbers = [number for number, _ in decoded_tail.unknown_tags]
    assert numbers == sorted(set(numbers))
    assert gap == 1 or decoded_tail.node_endpoints == tail.node_endpoints


def test_shorter_address_needs_no_reserve() -> None:
    """A tail with shorter addresses is decoded without the filling."""
    tail = encode(FetchTail(node_endpoints=endpoints(1)), TAIL_VERSION)
    fields = rewrite_tail(ApiKey.FETCH, tail, lambda node, host, port: ("g", 1))
    decoded_tail = decode(FetchTail, TAIL_VERSION, fitted(fields, len(tail) + RESERVED_BYTES))
    assert decoded_tail.node_endpoints == (NodeEndpoint(node_id=1, host="g", port=1, rack=None),)


@pytest.mark.parametrize("records", [10, 100_000])
def test_rewritten_fetch_is_observed(records: int) -> None:
    """The topics of replies that are rewritten are learned, whether the replies are held or pass."""
    state = complete_state(advertise=lambda node, _host, _port: (OURS, 20_000 + node))
    topic_id = UUID(int=7)
    partition = PartitionData(
        partition_index=3, error_code=0, high_watermark=77, last_stable_offset=77, records=bytes(records)
    )
    response = FetchResponse(responses=(FetchableTopicResponse(topic_id=topic_id, partitions=(partition,)),))
    frame = framed((1).to_bytes(4) + b"\0" + encode(response, 18))
    exchanged(Line(state), ApiKey.FETCH, frame, 30_000)
    assert topic_id in state.topic_names.wanted


@pytest.mark.parametrize("missing", [60_000, 20])
def test_request_behind_an_edited_reply_is_evicted_without_a_close(missing: int) -> None:
    """While a part of an edited reply is missing, also of its end, a kept request may be evicted."""
    client, reply = line(), reply_of(1, 70_000, tail_of(1, endpoints(1, 2)))
    client.client(request(1, 1, version=18, body=bytes(41)))
    client.client(request(12, 2, version=2, body=b"\0\1g" + bytes(SMALL_FRAME + 1_000)))
    client.upstream(reply[:-missing])
    assert client.session.evict_held_request(client.now, CloseReason.REQUEST_TOO_LONG) == []


@pytest.mark.parametrize("key", [1, 78])
def test_held_records_are_no_work(key: int) -> None:
    """A client that fetches records is not read in turns, because the records of a held reply are not decoded."""
    client = line()
    exchanged(client, key, reply_of(key, 30_000, tail_of(key)))
    assert not client.session.takes_turns


def test_address_without_a_node_is_left_out() -> None:
    """An address without a node id would otherwise reach the client as the broker sent it."""
    before = tail_of(1, (*endpoints(1), *endpoints(-1)))
    reply = exchanged(line(), 1, reply_of(1, 1_000, before))
    assert HOST.encode() not in reply
