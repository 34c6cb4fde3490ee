"""A broker whose compacted log has many commits, deletions and transactions."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
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
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect
from tests.kafka.processes import Address, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import TOPICS, kafka_tool
from tests.kafka.transactions import Transaction
from tests.kafka.wire import Wire, ask

GROUPS = tuple(f"group-{number}" for number in range(30))
PARTITIONS = 40
COMMITS = 5000
VERSION = 7
SEGMENT = 1 << 20
PROPERTIES = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": str(SEGMENT),
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker with a long history."""
    with KafkaBroker(tmp_path_factory.mktemp("history") / "broker", properties=PROPERTIES) as broker:
        broker.wait_for_coordinator()
        create = ("--create", "--topic", "t", "--partitions", str(PARTITIONS), "--replication-factor", "1")
        kafka_tool(TOPICS, "--bootstrap-server", host_port(broker.direct), *create)
        chance = random.Random(7)
        transactions = [
            Transaction(Client(broker.direct, Dialect.of(broker.direct)), f"producer-{number}") for number in range(4)
        ]
        for transaction in transactions:
            transaction.begin()
        with Wire(broker.direct) as wire:
            for number in range(COMMITS):
                live(wire, chance, number)
                if number % 100 == 0:
                    transaction = chance.choice(transactions[1:])
                    transaction.commit_offsets(
                        chance.choice(GROUPS), "t", {chance.randrange(PARTITIONS): 7_000_000 + number}
                    )
                    transaction.end(commit=chance.random() < 0.5)
        with transactions[0] as left_open:
            left_open.commit_offsets(GROUPS[0], "t", {0: 8_000_000})
            yield broker


def live(wire: Wire, chance: random.Random, number: int) -> None:
    """Commits or deletes offsets of a random group, or deletes the group."""
    group, what = chance.choice(GROUPS), chance.random()
    some = chance.sample(range(PARTITIONS), chance.randrange(1, PARTITIONS))
    if what < 0.95:
        partitions = tuple(
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=number, committed_metadata="m" * (index % 3)
            )
            for index in some
        )
        topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
        wire.ask(OffsetCommitRequest(group_id=group, topics=(topic,)), 7)
    elif what < 0.98:
        gone = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in some)
        wire.ask(OffsetDeleteRequest(group_id=group, topics=(OffsetDeleteRequestTopic(name="t", partitions=gone),)), 0)
    else:
        wire.ask(DeleteGroupsRequest(groups_names=(group,)), 1)


def segments(broker: KafkaBroker) -> list[Path]:
    """Returns the closed segment files of the log, the largest last."""
    folders = (broker.folder / "data").glob("__consumer_offsets-*")
    closed = [file for folder in folders for file in sorted(folder.glob("*.log"))[:-1]]
    return sorted(closed, key=lambda file: file.stat().st_size)


def fetched(at: Address, group: str) -> OffsetFetchResponse:
    """Returns all offsets of a group, sorted."""
    reply = ask(at, OffsetFetchRequest(group_id=group, topics=None), VERSION)
    assert isinstance(reply, OffsetFetchResponse)
    topics = (
        replace(topic, partitions=tuple(sorted(topic.partitions, key=lambda each: each.partition_index)))
        for topic in reply.topics
    )
    return replace(reply, topics=tuple(topics))


def test_late_sidecar_reads_all_offsets(broker: KafkaBroker, tmp_path: Path) -> None:
    """A sidecar before a broker with a long, compacted log answers all groups' offsets itself, except those with an
    open transaction.
    """
    settings = {"answers": {"verify": 0}}
    with SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client, settings=settings) as sidecar:
        # The cleaner has run: a closed segment that is not cleaned has about the maximum size.
        sidecar.process.wait_until(lambda: segments(broker)[0].stat().st_size < SEGMENT / 2)
        sidecar.wait_for_log()
        for group in GROUPS:
            assert fetched(sidecar.listen, group) == fetched(broker.direct, group), group
        answered = sidecar.metric("group_sidecar_mirror_answers_total", api="OffsetFetch")
        assert answered == len(GROUPS) - 1, "only the group with an open transaction is left to the broker"
        unstable = sidecar.metric("group_sidecar_mirror_fallbacks_total", api="OffsetFetch", reason="unstable")
        assert unstable == 1
