"""Shows Kafka's own stale answers, without a sidecar. They are the reason why `failovers` leaves some reads out."""

import os
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.cluster import kafka_cluster
from tests.kafka.dialect import until
from tests.kafka.group_members import offsets_to_commit
from tests.kafka.processes import GIVE_UP_SECONDS, host_port
from tests.kafka.wire import ask
from tests.linearizability import failovers
from tests.linearizability.admin_requests import move_leaders, replicas
from tests.linearizability.history import Operation, key_of, now
from tests.linearizability.installation import PROPERTIES

LOG, GROUP, TOPIC = "__consumer_offsets", "group", "t"


def commit(broker: KafkaBroker, offset: int, group: str = GROUP) -> bool:
    """Commits an offset. Returns whether the broker acknowledged it."""
    request = OffsetCommitRequest(group_id=group, topics=offsets_to_commit(TOPIC, {0: offset}))
    return bool(ask(broker.direct, request, 8).topics[0].partitions[0].error_code == 0)


def committed(broker: KafkaBroker) -> int:
    """Returns the group's offset, -1 if it has none, or -2 if the broker returns an error."""
    reply = ask(broker.direct, OffsetFetchRequest(group_id=GROUP, topics=None), 7)
    if reply.error_code:
        return -2
    return int(reply.topics[0].partitions[0].committed_offset) if reply.topics else -1


@pytest.mark.long
@pytest.mark.timeout(600)
def test_new_leader_answers_from_its_old_high_watermark(tmp_path: Path) -> None:
    """An acknowledged commit is missing in a new coordinator's answers while too few replicas are in sync, and
    `failovers` finds this from the brokers' logs.
    """
    properties = {**PROPERTIES, "offsets.topic.num.partitions": "1", "replica.fetch.wait.max.ms": "2000"}
    with kafka_cluster(tmp_path, properties=properties) as (first, second, third):
        admin = AdminClient({"bootstrap.servers": host_port(first.direct)})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(GIVE_UP_SECONDS)
        move_leaders(first.direct, LOG, {0: 3})
        until(lambda: replicas(first.direct, LOG)[0][0] == 3, "broker 3 leads")
        until(lambda: commit(third, 1), "the first commit is acknowledged")
        until(lambda: committed(third) == 1, "the first commit is visible")
        assert commit(third, 1, "other")  # With this record, the followers get the high watermark of the first commit.
        os.kill(second.pid, signal.SIGSTOP)
        try:
            until(lambda: commit(third, 2), "the second commit is acknowledged without broker 2")
            third.kill()
            until(lambda: committed(first) in (1, 2), "broker 1 coordinates the group")
            began = now()
            assert committed(first) == 1
            stale = Operation(key_of(GROUP, 0), "client", "read", began, now(), 1)
        finally:
            os.kill(second.pid, signal.SIGCONT)
        until(lambda: committed(first) == 2, "the second commit is visible")
    clock_offset = time.time_ns() - time.monotonic_ns()
    lags = [*failovers.lags(tmp_path.glob("*/broker.log"), clock_offset)]
    assert failovers.unexplained([stale], lags, partitions=1, forwarded=None) == []
