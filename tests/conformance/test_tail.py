"""A sidecar that starts late learns from the broker's log of changes before its start and of clients that bypass it.

The sidecar is not `exclusive`, and clients send only questions through it. So its own answers come from the log.
"""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition
from kafka.structs import OffsetAndMetadata

from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.conformance.librdkafka import consume, consumer, create_topic, produce
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS, Address
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import ask

GROUPS = ("consumed", "simple", "python", "committed", "aborted")
VERSION = 7
ZSTD = {"offsets.topic.compression.codec": "4"}


@dataclass(frozen=True)
class Late:
    """A broker with a history, and the sidecar that was started afterwards."""

    broker: KafkaBroker
    sidecar: SidecarProcess
    run: Run

    def wait_until_read(self) -> None:
        """Waits until the sidecar has read all partitions of the log that the broker leads."""
        self.sidecar.process.wait_until(lambda: self.owned() == self.partitions())

    def status(self) -> dict[str, Any]:
        """Returns the sidecar's report about the log."""
        _, body = self.sidecar.get("/readyz")
        [status] = json.loads(body)["offsets_log"].values()
        assert isinstance(status, dict)
        return status

    def owned(self) -> int:
        count: int = self.status()["owned"]["count"]
        return count

    def partitions(self) -> int | None:
        count: int | None = self.status()["partitions"]
        return count

    def answers(self) -> float:
        """Returns how many OffsetFetch requests the sidecar has answered itself."""
        return self.sidecar.metric("group_sidecar_mirror_answers_total", api="OffsetFetch")

    def own(self, group: str) -> OffsetFetchResponse:
        """Asks until the sidecar answers itself. Asserts that its answer equals the broker's answer.

        Until a transaction's marker is written, the sidecar leaves the question to the broker.
        """
        question = OffsetFetchRequest(group_id=self.run.name(group), topics=None)
        before = self.answers()
        own: list[OffsetFetchResponse] = []

        def answered() -> bool:
            own.append(ask(self.sidecar.listen, question, VERSION))
            return self.answers() == before + 1

        self.sidecar.process.wait_until(answered)
        assert in_order(own[-1]) == in_order(ask(self.broker.direct, question, VERSION))
        return own[-1]

    def becomes_own(self, group: str, expected: dict[int, int]) -> None:
        """Waits until broker and sidecar report these offsets, as log and markers have a delay. Then calls `own`."""
        question = OffsetFetchRequest(group_id=self.run.name(group), topics=None)
        for address in (self.broker.direct, self.sidecar.listen):
            self.sidecar.process.wait_until(partial(self._reports, address, question, expected))
        self.own(group)

    def _reports(self, address: Address, question: OffsetFetchRequest, expected: dict[int, int]) -> bool:
        return offsets(ask(address, question, VERSION)) == expected


def in_order(reply: OffsetFetchResponse) -> OffsetFetchResponse:
    """Returns the reply with sorted partitions, because a broker guarantees no order."""
    topics = (
        replace(topic, partitions=tuple(sorted(topic.partitions, key=lambda each: each.partition_index)))
        for topic in reply.topics
    )
    return replace(reply, topics=tuple(sorted(topics, key=lambda topic: topic.name)))


def offsets(reply: OffsetFetchResponse) -> dict[int, int]:
    return {each.partition_index: each.committed_offset for topic in reply.topics for each in topic.partitions}


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Late]:
    """Groups that several clients created before the sidecar was started."""
    folder = tmp_path_factory.mktemp("late")
    with KafkaBroker(folder / "broker", properties=ZSTD) as broker:
        broker.wait_for_coordinator()
        run = Run(Route("direct", broker.direct, broker.direct), f"t{secrets.token_hex(5)}")
        create_topic(run, "topic", 4)
        produce(run, "topic", [str(number) for number in range(20)])
        consume(run, "consumed", ["topic"], 20)
        commit(run, "simple", {1: 5, 2: 6})
        commit(run, "simple", {1: 7})
        commit_by_kafka_python(run, "python", 0, 4)
        commit_in_transaction(run, "committed", 8, commits=True)
        commit(run, "aborted", {0: 2})
        commit_in_transaction(run, "aborted", 9, commits=False)
        with SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client) as sidecar:
            late = Late(broker, sidecar, run)
            late.wait_until_read()
            yield late


def commit(run: Run, group: str, places: dict[int, int]) -> None:
    """Commits offsets by partition, without joining."""
    with consumer(run, group, []) as client:
        wanted = [TopicPartition(run.name("topic"), partition, offset) for partition, offset in places.items()]
        client.commit(offsets=wanted, asynchronous=False)


def commit_by_kafka_python(run: Run, group: str, partition: int, offset: int) -> None:
    client = KafkaConsumer(bootstrap_servers=run.bootstrap, group_id=run.name(group), enable_auto_commit=False)
    try:
        place = PythonTopicPartition(run.name("topic"), partition)
        client.assign([place])
        client.commit({place: OffsetAndMetadata(offset, "a note", -1)})
    finally:
        client.close(autocommit=False)


def commit_in_transaction(run: Run, group: str, offset: int, *, commits: bool) -> None:
    """Commits an offset of partition 0 in a transaction. `commits`: whether the transaction is committed."""
    producer = Producer({"bootstrap.servers": run.bootstrap, "transactional.id": run.name(f"{group}-{offset}")})
    producer.init_transactions(GIVE_UP_SECONDS)
    producer.begin_transaction()
    member = Consumer({"bootstrap.servers": run.bootstrap, "group.id": run.name(group)})
    try:
        place = TopicPartition(run.name("topic"), 0, offset)
        producer.send_offsets_to_transaction([place], member.consumer_group_metadata(), GIVE_UP_SECONDS)
    finally:
        member.close()
    if commits:
        producer.commit_transaction(GIVE_UP_SECONDS)
    else:
        producer.abort_transaction(GIVE_UP_SECONDS)


@pytest.mark.parametrize("group", GROUPS)
def test_earlier_offsets_come_from_log(late: Late, group: str) -> None:
    """The sidecar itself answers questions about offsets from before its start, as the broker does."""
    assert offsets(late.own(group))


def test_unknown_group_is_answered_from_log(late: Late) -> None:
    """The sidecar itself answers questions about a group that never existed, as the broker does."""
    assert late.own("never").topics == ()


def test_bypassing_commits_are_followed(late: Late) -> None:
    """Commits and transactions that bypass the sidecar become visible in its own answers."""
    for offset in range(10, 13):
        commit(late.run, "around", {3: offset})
        late.becomes_own("around", {3: offset})
    commit_in_transaction(late.run, "around", 20, commits=True)
    late.becomes_own("around", {0: 20, 3: 12})


def test_restarted_broker_is_followed(late: Late) -> None:
    """After a broker restart, the sidecar loads the log again and answers as the broker does."""
    loads = late.sidecar.metric("group_sidecar_offsets_log_load_duration_seconds_count")
    before = {group: offsets(late.own(group)) for group in GROUPS}
    late.broker.stop()
    late.sidecar.process.wait_until(lambda: late.owned() == 0)
    assert late.sidecar.metric("group_sidecar_offsets_log_partitions", state="owned") == 0
    late.broker.start()
    late.broker.wait_for_coordinator()
    late.wait_until_read()
    assert late.sidecar.metric("group_sidecar_offsets_log_load_duration_seconds_count") > loads
    for group in GROUPS:
        late.becomes_own(group, before[group])
    commit(late.run, "simple", {3: 9})
    late.becomes_own("simple", {**before["simple"], 3: 9})


def test_log_metrics(late: Late) -> None:
    """The metrics report all partitions as owned, without lag and without skipped records."""
    partitions = late.partitions()
    assert late.sidecar.metric("group_sidecar_offsets_log_partitions", state="owned") == partitions
    assert late.sidecar.metric("group_sidecar_offsets_log_records_total") > len(GROUPS)
    assert late.sidecar.metric("group_sidecar_offsets_log_lag") == 0
    assert late.sidecar.metric("group_sidecar_offsets_log_records_skipped_total") == 0
