"""Which Produce requests get a reply."""

from collections.abc import Iterator

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.proxy.dataplane.commands import ToClient, ToUpstream
from group_sidecar.proxy.dataplane.produce_acks import ACKS_SEARCH_BYTES
from tests.proxy.dataplane.playbook import ScriptedDispatcher, SessionDriver, pieces, reply, request, to_upstream

PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
LONG_ID = "long" * 200
LONGEST_ID = "x" * 32_767
HEADER_TAGS = b"\x02" + b"\x00\x03abc" + b"\x05\x80\x01" + bytes(128)


def uvarint(value: int) -> bytes:
    """Encodes an unsigned varint."""
    return bytes((value,)) if value < 0x80 else bytes((value & 0x7F | 0x80,)) + uvarint(value >> 7)


def produce(
    version: int,
    correlation: int,
    acks: int,
    *,
    client_id: str = "c",
    transaction: str | None = None,
    tags: bytes = b"\0",
) -> bytes:
    """Returns a Produce request up to acks, followed by some bytes."""
    body = b""
    if version >= 9:
        text = b"\0" if transaction is None else uvarint(len(transaction) + 1) + transaction.encode()
        body = tags + text
    elif version >= 3:
        body = b"\xff\xff" if transaction is None else len(transaction).to_bytes(2, "big") + transaction.encode()
    body += acks.to_bytes(2, "big", signed=True) + b"records" * 9
    return request(PRODUCE, correlation, version=version, client_id=client_id, body=body)


def shapes(acks: int) -> Iterator[object]:
    """Yields Produce requests in every version, and in the most unusual forms."""
    for version in range(14):
        yield pytest.param(produce(version, 1, acks), id=f"v{version}")
    for version in (2, 8, 13):
        yield pytest.param(produce(version, 1, acks, client_id=LONG_ID), id=f"v{version}-long-client")
        yield pytest.param(produce(version, 1, acks, transaction=LONG_ID), id=f"v{version}-long-transaction")
    for version in (9, 99):
        yield pytest.param(produce(version, 1, acks, tags=HEADER_TAGS), id=f"v{version}-header-tags")
    for version in (8, 9):
        longest = produce(version, 1, acks, client_id=LONGEST_ID, transaction=LONGEST_ID)
        yield pytest.param(longest, id=f"v{version}-longest")


@pytest.mark.parametrize("frame", [*shapes(acks=0)])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_without_acks_no_reply_is_expected(frame: bytes, size: int) -> None:
    """A Produce request with acks 0 expects no reply, in every version and layout."""
    if size and len(frame) > 9000:
        size *= 1000
    play = SessionDriver(ScriptedDispatcher())
    sent = [command for piece in pieces(frame, size) for command in play.client(piece)]
    assert to_upstream(sent) == frame
    assert play.client(request(FETCH, 2)) == [ToUpstream(request(FETCH, 2))]
    assert play.upstream(reply(2)) == [ToClient(reply(2))]
    assert play.traffic.unanswered == {PRODUCE: 1}
    assert list(play.traffic.durations) == [FETCH]


@pytest.mark.parametrize("frame", [*shapes(acks=1), *shapes(acks=-1)])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_with_acks_a_reply_is_expected(frame: bytes, size: int) -> None:
    """A Produce request with acks 1 or -1 expects a reply, in every version and layout."""
    if size and len(frame) > 9000:
        size *= 1000
    play = SessionDriver(ScriptedDispatcher())
    sent = [command for piece in pieces(frame, size) for command in play.client(piece)]
    assert to_upstream(sent) == frame
    assert play.upstream(reply(1)) == [ToClient(reply(1))]
    assert list(play.traffic.durations) == [PRODUCE]
    assert play.traffic.unanswered == {}


@pytest.mark.parametrize("version", [2, 7, 9])
def test_acks_are_read_at_any_split(version: int) -> None:
    """The acks of mixed Produce requests are read correctly wherever the bytes are split."""
    data = b"".join(produce(version, number, number % 2, transaction="t") for number in range(4))
    for cut in range(1, len(data)):
        play = SessionDriver(ScriptedDispatcher())
        assert to_upstream(play.client(data[:cut]) + play.client(data[cut:])) == data
        assert play.upstream(reply(1), reply(3)) == [ToClient(reply(1) + reply(3))]
        assert play.traffic.unanswered == {PRODUCE: 2}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff", id="half a length"),
        pytest.param(b"\x7f\xff" + bytes(50), id="a transactional id longer than the frame"),
    ],
)
def test_unreadable_acks_expect_reply(body: bytes) -> None:
    """A Produce request whose acks cannot be read expects a reply."""
    play, frame = SessionDriver(ScriptedDispatcher()), request(PRODUCE, 1, version=7, body=body)
    assert play.client(frame) == [ToUpstream(frame)]
    assert play.upstream(reply(1)) == [ToClient(reply(1))]


def test_negative_transactional_id_is_null() -> None:
    """A transactional id of any negative length is null, and the acks follow it."""
    play, frame = SessionDriver(ScriptedDispatcher()), request(PRODUCE, 1, version=7, body=b"\xff\xfe\0\0")
    assert play.client(frame) == [ToUpstream(frame)]
    assert play.traffic.unanswered == {PRODUCE: 1}


def test_acks_are_not_read_from_next_frame() -> None:
    """The acks of a truncated Produce request are not read from the next frame."""
    play, cut = SessionDriver(ScriptedDispatcher()), request(PRODUCE, 1, version=7, body=b"\xff\xff")
    assert play.client(cut, request(FETCH, 2)) == [ToUpstream(cut + request(FETCH, 2))]
    assert request(FETCH, 2)[:2] == b"\0\0"  # Read as acks, these bytes would be 0.
    assert play.upstream(reply(1), reply(2)) == [ToClient(reply(1) + reply(2))]


def test_acks_search_is_bounded() -> None:
    """The search for acks after long tagged fields holds less than ACKS_SEARCH_BYTES. Then a reply is expected."""
    tags = b"\x01" + b"\x00" + uvarint(400_000) + bytes(400_000)
    play, frame = SessionDriver(ScriptedDispatcher()), produce(9, 1, 0, tags=tags)
    held, sent = 0, b""
    for piece in pieces(frame, 10_000):
        sent += to_upstream(play.client(piece))
        held = max(held, play.session.held_bytes)
    assert sent == frame
    assert held < ACKS_SEARCH_BYTES
    assert play.traffic.unanswered == {}


def test_dispatcher_may_get_produce_reply() -> None:
    """The dispatcher gets the reply to a Produce request with acks if the dispatcher noted the request."""
    dispatcher = ScriptedDispatcher()
    dispatcher.notes[PRODUCE] = "produce"
    play = SessionDriver(dispatcher)
    play.client(produce(13, 1, 0), produce(13, 2, -1))
    play.upstream(reply(2))
    assert dispatcher.shown == [("produce", reply(2)[4:])]
