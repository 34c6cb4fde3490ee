"""Tests the log ends that the copy learns from Fetch replies, and which replies the dispatcher does not read."""

from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.headers import encode_reply
from group_sidecar.codecs.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import ToClient, ToUpstream
from group_sidecar.proxy.dataplane.session import FETCH_INSPECTION_SECONDS
from group_sidecar.proxy.handlers.fetches import EMPTY_FETCH_BYTES, FETCH_INSPECTION_INTERVAL, MAX_WHOLE_FETCH_BYTES
from tests.codecs.declarations import limited_to
from tests.proxy.dataplane.playbook import (
    EPOCH,
    Line,
    SessionDriver,
    broker_state,
    complete_state,
    framed,
    new_dispatcher,
    pieces,
    reply,
    request,
    stable_group,
)

TOPIC = UUID(int=5)
ASKED = FetchRequest(max_wait_ms=500, min_bytes=1, topics=())
FETCH = ApiKey.FETCH


def telling(version: int, *ends: int, records: int = 10, topic_id: UUID = TOPIC) -> FetchResponse:
    """Returns a reply with these high watermarks of partitions 0, 1 and so on. `records`: bytes of records in each."""
    partitions = tuple(
        PartitionData(partition_index=index, error_code=0, high_watermark=end, records=bytes(records))
        for index, end in enumerate(ends)
    )
    topic = FetchableTopicResponse(topic="t", topic_id=topic_id, partitions=partitions)
    response: FetchResponse = limited_to(FetchResponse(responses=(topic,) if ends else ()), version)
    return response


def named_copy(**settings: Any) -> BrokerState:
    """Returns the state of a broker whose topic name is known."""
    state = broker_state(**settings)
    state.topic_names.learn({TOPIC: "t"})
    return state


def ends(state: BrokerState) -> dict[TopicPartition, tuple[int, float]]:
    return dict(state.copy.manager.log_ends)


@pytest.mark.parametrize("size", [0, 11])
@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
def test_short_fetch_reply_teaches_log_ends(version: int, size: int) -> None:
    """A short Fetch reply passes unchanged and teaches the copy the log ends of all its partitions."""
    state = named_copy()
    line = Line(state)
    line.sends(ASKED, version)
    reply_frame = encode_reply(telling(version, 50, 60), version, 1)
    passed = [command for chunk in pieces(reply_frame, size) for command in line.upstream(chunk)]
    assert b"".join(command.data for command in passed if isinstance(command, ToClient)) == reply_frame
    at = EPOCH + line.now
    assert ends(state) == {("t", 0): (50, at), ("t", 1): (60, at)}
    assert state.traffic.decode_failures == {}


def test_unknown_topic_id_is_requested() -> None:
    """A topic id without a known name yields no log end, and the copy requests its name."""
    state = named_copy()
    Line(state).exchange(ASKED, telling(13, 50, topic_id=UUID(int=6)), 13)
    assert (ends(state), state.topic_names.wanted) == ({}, {UUID(int=6)})


@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
def test_long_fetch_reply_teaches_first_log_end(version: int) -> None:
    """A long Fetch reply streams unheld and teaches the copy the log end of its first partition."""
    state = named_copy()
    line = Line(state)
    line.sends(ASKED, version)
    reply_frame = encode_reply(telling(version, 50, 60, records=MAX_WHOLE_FETCH_BYTES), version, 1)
    for chunk in pieces(reply_frame, 1000):
        assert line.upstream(chunk) == [ToClient(chunk)]
        assert line.session.held_bytes == 0
    assert ends(state) == {("t", 0): (50, EPOCH + line.now)}
    assert state.traffic.decode_failures == {}


@pytest.mark.parametrize("size", [8, 9, 20])
def test_fetch_reply_with_short_first_chunk(size: int) -> None:
    """A long Fetch reply whose first chunk contains no high watermark is not a decode failure."""
    state = named_copy()
    line = Line(state)
    line.sends(ASKED, 17)
    reply_frame = encode_reply(telling(17, 50, records=MAX_WHOLE_FETCH_BYTES), 17, 1)
    line.upstream(reply_frame[:size])
    line.upstream(reply_frame[size:])
    assert (ends(state), state.traffic.decode_failures) == ({}, {})


def test_fetch_reply_beyond_inspected_frame() -> None:
    """A Fetch reply longer than limits.inspected_frame streams unheld and still teaches the copy a log end."""
    state = named_copy(limits={"inspected_frame": 1024})
    line = Line(state)
    line.sends(ASKED, 11)
    reply_frame = encode_reply(telling(11, 50, records=2000), 11, 1)
    assert line.upstream(reply_frame[:500]) == [ToClient(reply_frame[:500])]
    assert ends(state) == {("t", 0): (50, EPOCH + line.now)}


@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
def test_empty_fetch_reply_keeps_inspection(version: int) -> None:
    """An empty Fetch reply does not use up the connection's periodic inspection."""
    state = named_copy()
    line = Line(state)
    nothing = telling(version)
    assert (
        len(encode_reply(nothing, version, 1)) - 4 <= EMPTY_FETCH_BYTES < len(encode_reply(telling(version, 1), 5, 1))
    )
    line.exchange(ASKED, nothing, version)
    line.exchange(ASKED, telling(version, 50), version)
    line.exchange(ASKED, telling(version, 51), version)
    assert ends(state) == {("t", 0): (50, EPOCH + line.now)}
    line.now += FETCH_INSPECTION_SECONDS
    line.exchange(ASKED, telling(version, 40), version)
    assert ends(state) == {("t", 0): (40, EPOCH + line.now)}


def test_connections_share_fetch_inspections() -> None:
    """All connections of a broker share one inspected Fetch reply per FETCH_INSPECTION_INTERVAL."""
    state = named_copy()
    dispatcher = new_dispatcher(state)
    plays = [SessionDriver(dispatcher, state.traffic) for _ in range(3)]
    for play, seconds, end in zip([*plays, plays[2]], (0, 0, 0, FETCH_INSPECTION_INTERVAL), (1, 2, 3, 4), strict=True):
        play.now += seconds
        play.client(request(FETCH, 1, version=11))
        play.upstream(encode_reply(telling(11, end), 11, 1))
        assert ends(state)["t", 0] == ((4, EPOCH + play.now) if end == 4 else (1, EPOCH + 100))


@pytest.mark.parametrize("version", [3, 11, 17])
def test_unreadable_fetch_reply_passes(version: int) -> None:
    """An unreadable Fetch reply passes unchanged, counts as a decode failure, and marks no group."""
    state = complete_state()
    stable_group(state, "m1")
    line = Line(state)
    frame = line.frame(ASKED, version)
    assert line.client(frame) == [ToUpstream(frame)]
    reply_frame = framed(encode_reply(telling(version, 50), version, 1)[4:-8])
    assert line.upstream(reply_frame) == [ToClient(reply_frame)]
    assert state.traffic.decode_failures == {FETCH: 1}
    assert state.copy.manager.view("g", EPOCH + line.now).fallback_reason is None
    assert ends(state) == {}


@pytest.mark.parametrize("version", [-1, FetchResponse.VERSIONS[-1] + 1])
def test_unknown_fetch_versions_pass(version: int) -> None:
    """Fetch replies in unknown versions stream through and do not count as decode failures."""
    state = named_copy()
    line = Line(state)
    line.client(request(FETCH, 1, version=version))
    reply_frame = reply(1, bytes(100))
    assert line.upstream(reply_frame[:50]) == [ToClient(reply_frame[:50])]
    assert line.upstream(reply_frame[50:]) == [ToClient(reply_frame[50:])]
    assert state.traffic.decode_failures == {}
