"""What the desk learns of Fetch replies, and what it leaves alone."""

from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.headers import encode_reply
from group_sidecar.codecs.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.coordinator.views import TopicPartition
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import ToClient, ToUpstream
from group_sidecar.proxy.desk import FETCH_PAUSE, LONGEST_FETCH, NOTHING_FETCHED, BrokerDesk
from group_sidecar.proxy.session import FETCH_SECONDS
from tests.codecs.declarations import brought_down
from tests.proxy.playbook import (
    EPOCH,
    Line,
    Playbook,
    broker_copy,
    certain_copy,
    framed,
    pieces,
    reply,
    request,
    settled,
)

TOPIC = UUID(int=5)
ASKED = FetchRequest(max_wait_ms=500, min_bytes=1, topics=())
FETCH = ApiKey.FETCH


def telling(version: int, *ends: int, records: int = 10, topic_id: UUID = TOPIC) -> FetchResponse:
    """A reply that tells the high watermarks of the topic's partitions, and has so many bytes of records of each."""
    partitions = tuple(
        PartitionData(partition_index=index, error_code=0, high_watermark=end, records=bytes(records))
        for index, end in enumerate(ends)
    )
    topic = FetchableTopicResponse(topic="t", topic_id=topic_id, partitions=partitions)
    told: FetchResponse = brought_down(FetchResponse(responses=(topic,) if ends else ()), version)
    return told


def named_copy(**settings: Any) -> BrokerCopy:
    """A copy that knows the topic's name."""
    copy = broker_copy(**settings)
    copy.learn_names({TOPIC: "t"})
    return copy


def ends(copy: BrokerCopy) -> dict[TopicPartition, tuple[int, float]]:
    return dict(copy.manager.log_ends)


@pytest.mark.parametrize("size", [0, 11])
@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
def test_a_short_reply_tells_the_ends_of_all_its_logs(version: int, size: int) -> None:
    copy = named_copy()
    line = Line(copy)
    line.says(ASKED, version)
    told = encode_reply(telling(version, 50, 60), version, 1)
    passed = [command for chunk in pieces(told, size) for command in line.upstream(chunk)]
    assert b"".join(command.data for command in passed if isinstance(command, ToClient)) == told
    at = EPOCH + line.now
    assert ends(copy) == {("t", 0): (50, at), ("t", 1): (60, at)}
    assert copy.traffic.decode_failures == {}


def test_a_topic_that_nobody_has_named_is_left_out_and_its_name_is_wanted() -> None:
    copy = named_copy()
    Line(copy).exchange(ASKED, telling(13, 50, topic_id=UUID(int=6)), 13)
    assert (ends(copy), copy.names_wanted) == ({}, {UUID(int=6)})


@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
def test_a_long_reply_tells_of_what_comes_first_and_is_not_held(version: int) -> None:
    copy = named_copy()
    line = Line(copy)
    line.says(ASKED, version)
    told = encode_reply(telling(version, 50, 60, records=LONGEST_FETCH), version, 1)
    for chunk in pieces(told, 1000):
        assert line.upstream(chunk) == [ToClient(chunk)]
        assert line.session.held_bytes == 0
    assert ends(copy) == {("t", 0): (50, EPOCH + line.now)}
    assert copy.traffic.decode_failures == {}


@pytest.mark.parametrize("size", [8, 9, 20])
def test_a_beginning_that_tells_nothing_yet_is_no_fault(size: int) -> None:
    copy = named_copy()
    line = Line(copy)
    line.says(ASKED, 17)
    told = encode_reply(telling(17, 50, records=LONGEST_FETCH), 17, 1)
    line.upstream(told[:size])
    line.upstream(told[size:])
    assert (ends(copy), copy.traffic.decode_failures) == ({}, {})


def test_replies_longer_than_what_is_inspected_are_not_held() -> None:
    copy = named_copy(limits={"inspected_frame": 1024})
    line = Line(copy)
    line.says(ASKED, 11)
    told = encode_reply(telling(11, 50, records=2000), 11, 1)
    assert line.upstream(told[:500]) == [ToClient(told[:500])]
    assert ends(copy) == {("t", 0): (50, EPOCH + line.now)}


@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
def test_a_reply_without_news_does_not_spend_the_look(version: int) -> None:
    copy = named_copy()
    line = Line(copy)
    nothing = telling(version)
    assert len(encode_reply(nothing, version, 1)) - 4 <= NOTHING_FETCHED < len(encode_reply(telling(version, 1), 5, 1))
    line.exchange(ASKED, nothing, version)
    line.exchange(ASKED, telling(version, 50), version)
    line.exchange(ASKED, telling(version, 51), version)
    assert ends(copy) == {("t", 0): (50, EPOCH + line.now)}
    line.now += FETCH_SECONDS
    line.exchange(ASKED, telling(version, 40), version)
    assert ends(copy) == {("t", 0): (40, EPOCH + line.now)}


def test_many_connections_share_the_desks_time() -> None:
    copy = named_copy()
    desk = BrokerDesk(copy)
    plays = [Playbook(desk, copy.traffic) for _ in range(3)]
    for play, seconds, end in zip([*plays, plays[2]], (0, 0, 0, FETCH_PAUSE), (1, 2, 3, 4), strict=True):
        play.now += seconds
        play.client(request(FETCH, 1, version=11))
        play.upstream(encode_reply(telling(11, end), 11, 1))
        assert ends(copy)["t", 0] == ((4, EPOCH + play.now) if end == 4 else (1, EPOCH + 100))


@pytest.mark.parametrize("version", [3, 11, 17])
def test_a_reply_that_is_not_understood_passes_is_counted_and_harms_no_group(version: int) -> None:
    copy = certain_copy()
    settled(copy, "m1")
    line = Line(copy)
    frame = line.frame(ASKED, version)
    assert line.client(frame) == [ToUpstream(frame)]
    told = framed(encode_reply(telling(version, 50), version, 1)[4:-8])
    assert line.upstream(told) == [ToClient(told)]
    assert copy.traffic.decode_failures == {FETCH: 1}
    assert copy.manager.view("g", EPOCH + line.now).lacking is None
    assert ends(copy) == {}


@pytest.mark.parametrize("version", [-1, FetchResponse.VERSIONS[-1] + 1])
def test_versions_that_are_not_described_pass(version: int) -> None:
    copy = named_copy()
    line = Line(copy)
    line.client(request(FETCH, 1, version=version))
    told = reply(1, bytes(100))
    assert line.upstream(told[:50]) == [ToClient(told[:50])]
    assert line.upstream(told[50:]) == [ToClient(told[50:])]
    assert copy.traffic.decode_failures == {}
