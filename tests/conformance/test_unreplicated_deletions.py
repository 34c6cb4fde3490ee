"""Before Kafka 4.0, the broker deletes an offset before the tombstone is replicated. The sidecar must agree with it."""

import os
import signal
import time
from pathlib import Path

import pytest

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.kafka.broker import KafkaBroker
from tests.kafka.cluster import kafka_cluster
from tests.kafka.dialect import until
from tests.kafka.processes import Address
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic
from tests.kafka.wire import ask

VERSION = 7
ANSWERED = "group_sidecar_mirror_answers_total"
PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "replica.lag.time.max.ms": "60000",
    "broker.session.timeout.ms": "60000",
}
"""Properties with which a stopped follower counts as in sync for a minute."""
SECONDS = 5.0
"""Seconds during which the sidecar must report the same as the broker."""


def commit(address: Address, group: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = (OffsetCommitRequestTopic(name="topic", partitions=(partition,)),)
    reply = ask(address, OffsetCommitRequest(group_id=group, topics=topics), 8)
    return int(reply.topics[0].partitions[0].error_code)


def delete(address: Address, group: str) -> None:
    partitions = (OffsetDeleteRequestPartition(partition_index=0),)
    topics = (OffsetDeleteRequestTopic(name="topic", partitions=partitions),)
    reply = ask(address, OffsetDeleteRequest(group_id=group, topics=topics), 0)
    assert (reply.error_code, reply.topics[0].partitions[0].error_code) == (0, 0)


def told(address: Address, group: str) -> int:
    topics = (OffsetFetchRequestTopic(name="topic", partition_indexes=(0,)),)
    reply = ask(address, OffsetFetchRequest(group_id=group, topics=topics), VERSION)
    return int(reply.topics[0].partitions[0].committed_offset)


def group_of(broker: KafkaBroker) -> str:
    """Returns a group that this broker coordinates."""
    names = tuple(f"group-{number}" for number in range(20))
    described = ask(broker.direct, DescribeGroupsRequest(groups=names), 0).groups
    return next(str(group.group_id) for group in described if not group.error_code)


@pytest.mark.long
def test_deleted_offset_stays_deleted_under_lag(tmp_path: Path) -> None:
    """While a follower lags, a deleted offset stays deleted in the sidecar's replies."""
    with kafka_cluster(tmp_path / "brokers", properties=PROPERTIES, version="3.9.1") as (leader, _, follower):
        make_topic(leader, "topic")
        group = group_of(leader)
        with SidecarProcess(tmp_path, listen=leader.sidecar, upstream=leader.client) as sidecar:
            sidecar.wait_for_log()

            def own(expected: int) -> bool:
                before = sidecar.metric(ANSWERED)
                return told(sidecar.listen, group) == expected and sidecar.metric(ANSWERED) > before

            assert commit(sidecar.listen, group, 5) == 0
            until(lambda: own(5), "the sidecar answers")
            os.kill(follower.pid, signal.SIGSTOP)
            try:
                delete(sidecar.listen, group)
                assert told(leader.direct, group) == -1
                ends = time.monotonic() + SECONDS
                while time.monotonic() < ends:
                    assert told(sidecar.listen, group) == -1
            finally:
                os.kill(follower.pid, signal.SIGCONT)
            until(lambda: own(-1), "the tombstone was read")
