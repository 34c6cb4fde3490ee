"""offset.metadata.max.bytes: compares a broker with this limit and a broker behind a sidecar with the policy."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, errors, structs

from group_sidecar.codecs.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from group_sidecar.codecs.messages.end_txn import EndTxnRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from group_sidecar.codecs.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from group_sidecar.codecs.schema import Struct
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import ClassicMember, ConsumerMember
from tests.kafka.processes import GIVE_UP_SECONDS, Address, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.transactions import Transaction
from tests.kafka.wire import ask

LIMIT = 10
SHORT, LONG = "x" * LIMIT, "x" * (LIMIT + 1)
TOPICS = ("a", "b", "c")
NOBODY = UUID(int=77)
Asked = Sequence[tuple[str, Sequence[tuple[int, str | None]]]]
"""Topics with their partitions and the metadata of each."""
Told = list[tuple[str, list[tuple[int, int]]]]
"""Topics with their partitions and the error of each."""

MIXED: Asked = [("b", [(2, SHORT), (0, LONG), (1, None)]), ("a", [(0, LONG)]), ("c", [(3, ""), (1, LONG), (2, SHORT)])]
REFUSED: Told = [("b", [(2, 0), (0, 12), (1, 0)]), ("a", [(0, 12)]), ("c", [(3, 0), (1, 12), (2, 0)])]
ASKED: dict[str, Asked] = {
    "mixed": MIXED,
    "all short": [("a", [(0, SHORT), (1, None)])],
    "all long": [("a", [(0, LONG), (1, LONG)]), ("b", [(2, LONG)])],
    "surrogate pairs": [("a", [(0, "😀" * 5), (1, "😀" * 6), (2, "é" * 10), (3, "é" * 11)])],
    "a topic in two places": [("a", [(0, SHORT)]), ("b", [(0, LONG), (1, SHORT)]), ("a", [(1, LONG), (2, SHORT)])],
    "a topic that is not there": [("a", [(0, LONG), (1, SHORT)]), ("z", [(0, SHORT), (1, LONG)]), ("b", [(0, SHORT)])],
    "none that is there": [("z", [(0, SHORT), (1, LONG)])],
}
STORED_IN_TRANSACTION = [
    ("a", 1, 1, SHORT),
    ("b", 0, 0, SHORT),
    ("b", 1, 2, ""),
    ("b", 2, 0, SHORT),
    ("c", 2, 2, SHORT),
    ("c", 3, 0, ""),
]
"""The offsets after MIXED and another commit."""


class Way:
    """A broker with topics, and its address for clients. The broker has the limit, or a sidecar has the policy."""

    def __init__(self, address: Address) -> None:
        self.client = Client(address, Dialect.of(address))
        admin = AdminClient({"bootstrap.servers": host_port(address)})
        for made in admin.create_topics([NewTopic(topic, 4, 1) for topic in TOPICS]).values():
            made.result(GIVE_UP_SECONDS)
        request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=topic) for topic in TOPICS))
        self.ids = {topic.name: topic.topic_id for topic in self.client.ask(request).topics}

    def commit(self, group: str, requested: Asked, version: int | None = None, **fields: Any) -> Told:
        """Commits. Returns the outcome of each partition. The default version is the last one with topic names."""
        version = self.client.dialect.newest(OffsetCommitRequest.KEY, 9) if version is None else version
        topics = tuple(
            OffsetCommitRequestTopic(
                name=name,
                topic_id=self.ids.get(name, NOBODY),
                partitions=tuple(
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=at, committed_metadata=note)
                    for at, (index, note) in enumerate(partitions)
                ),
            )
            for name, partitions in requested
        )
        return self.listing(
            ask(self.client.address, OffsetCommitRequest(group_id=group, topics=topics, **fields), version)
        )

    def listing(self, reply: Any) -> Told:
        """Returns the partitions and error codes of a reply."""
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return [
            (
                topic.name or names.get(topic.topic_id, "z"),
                [(p.partition_index, p.error_code) for p in topic.partitions],
            )
            for topic in reply.topics
        ]

    def offsets(self, group: str, version: int | None = None) -> list[Any]:
        """Returns the committed offsets. The default version is the last one with a single group."""
        topics = tuple(OffsetFetchRequestTopic(name=topic, partition_indexes=(0, 1, 2, 3)) for topic in TOPICS)
        version = self.client.dialect.newest(OffsetFetchRequest.KEY, 7) if version is None else version
        reply = ask(self.client.address, OffsetFetchRequest(group_id=group, topics=topics), version)
        return sorted(
            (topic.name, p.partition_index, p.committed_offset, p.metadata)
            for topic in reply.topics
            for p in topic.partitions
            if p.committed_offset >= 0
        )


@dataclass
class Stage:
    """Both ways to one release of Kafka. `ordered`: whether its replies are in the order of requests."""

    limited: Way
    through: Way
    sidecar: SidecarProcess
    ordered: bool

    def compare(self, scenario: Callable[[Way, str], tuple[Told, Any]]) -> tuple[Told, Any]:
        """Runs a scenario on both ways and asserts that the results are equal. Returns the result.

        A scenario gets the name of its own group. It returns the outcome of a commit, and further observations.
        """
        group = f"g{secrets.token_hex(4)}"
        (results, seen), (told_through, seen_through) = scenario(self.limited, group), scenario(self.through, group)
        assert self.in_order(told_through) == self.in_order(results)
        assert seen_through == seen
        return results, seen

    def in_order(self, results: Told) -> Any:
        """Returns an outcome, sorted if the broker is old, because old brokers build replies from a hash map."""
        return (
            results if self.ordered else sorted((topic, *each) for topic, partitions in results for each in partitions)
        )

    def refusals(self) -> float:
        """Returns how many commits the sidecar has refused, in part or as a whole."""
        return self.sidecar.metric("group_sidecar_policy_rejections_total", policy="offset_metadata_max_bytes")


@pytest.fixture(scope="module", params=["4.4.0", pytest.param("1.1.1", marks=pytest.mark.long)])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A broker with the limit, and a broker without a limit behind a sidecar."""
    folder = tmp_path_factory.mktemp("metadata")
    with ExitStack() as stack:

        def broker(name: str, limit: int) -> KafkaBroker:
            properties = {"offset.metadata.max.bytes": str(limit)}
            broker = stack.enter_context(KafkaBroker(folder / name, version=request.param, properties=properties))
            broker.wait_for_coordinator()
            return broker

        limited, unlimited = broker("limited", LIMIT), broker("unlimited", 0x7FFFFFFF)
        sidecar = stack.enter_context(
            SidecarProcess(
                folder / "sidecar",
                listen=unlimited.sidecar,
                upstream=unlimited.client,
                settings={"policies": {"offset_metadata_max_bytes": {"limit": LIMIT}}},
            )
        )
        yield Stage(Way(limited.direct), Way(unlimited.sidecar), sidecar, ordered=request.param == "4.4.0")


def versions(stage: Stage, request: type[Struct]) -> range:
    return stage.limited.client.dialect.versions(request.KEY)


def test_each_commit_version(stage: Stage) -> None:
    """Each OffsetCommit version refuses too long metadata as a broker with the same limit does."""
    for version in versions(stage, OffsetCommitRequest):
        # v0 stores offsets in ZooKeeper.
        def scenario(way: Way, group: str, version: int = version) -> Any:
            return way.commit(group, MIXED, version), way.offsets(group, None if version else 0)

        results, stored = stage.compare(scenario)
        assert stage.in_order(results) == stage.in_order(REFUSED)
        assert [place[:3] for place in stored] == [("b", 1, 2), ("b", 2, 0), ("c", 2, 2), ("c", 3, 0)]


@pytest.mark.parametrize("topics", ASKED.values(), ids=ASKED)
def test_commits_without_member(stage: Stage, topics: Asked) -> None:
    """Commits without a member get the same errors as from a broker with the same limit, and refusals are counted."""
    before = stage.refusals()
    stage.compare(lambda way, group: (way.commit(group, topics), way.offsets(group)))
    assert stage.refusals() - before == any(
        len((note or "").encode("utf-16-le")) > 2 * LIMIT for _, partitions in topics for _, note in partitions
    )


def test_commits_of_classic_member(stage: Stage) -> None:
    """For commits of a classic member, errors of the whole commit take precedence over metadata errors, as at the
    broker.
    """
    topics: Asked = [("a", [(0, LONG), (1, SHORT)]), ("z", [(0, SHORT), (1, LONG)])]

    def scenario(way: Way, group: str) -> Any:
        with ClassicMember(way.client, group, "a") as member:
            member.join()
            as_member: dict[str, Any] = {
                "generation_id_or_member_epoch": member.generation,
                "member_id": member.member_id,
            }
            results = [way.commit(group, topics, **as_member)]  # REBALANCE_IN_PROGRESS
            member.sync()
            results += [
                way.commit(group, topics, **as_member),
                way.commit(group, topics, **{**as_member, "generation_id_or_member_epoch": 99}),
                way.commit(group, topics, **{**as_member, "member_id": "another"}),
                way.commit(group, topics),
                way.commit(group + "-none", topics, **as_member),
            ]
            return [entry for each in results for entry in each], (len(results), way.offsets(group))

    results, (_, stored) = stage.compare(scenario)
    assert {code for topic, partitions in results if topic == "a" for _, code in partitions} >= {0, 12, 22, 25, 27}
    assert stored == [("a", 1, 1, SHORT)]


@pytest.mark.parametrize("stage", ["4.4.0"], indirect=True)
def test_commits_of_consumer_member(stage: Stage) -> None:
    """For commits of a consumer group member, errors of the whole commit take precedence over metadata errors, as at
    the broker.
    """
    topics: Asked = [("a", [(0, LONG), (1, SHORT)])]

    def scenario(way: Way, group: str) -> Any:
        with ConsumerMember(way.client, group, ("a",)) as member:
            member.join()
            results: Told = []
            for epoch, member_id in (
                (member.epoch, member.member_id),
                (99, member.member_id),
                (0, "another"),
                (-1, ""),
            ):
                for version in (9, 10):
                    fields = {"generation_id_or_member_epoch": epoch, "member_id": member_id}
                    results += way.commit(group, topics, version, **fields)
            return results, way.offsets(group)

    results, stored = stage.compare(scenario)
    assert results[:2] == [("a", [(0, 12), (1, 0)])] * 2
    assert {code for _, partitions in results[2:] for _, code in partitions} == {25, 113}
    assert stored == [("a", 1, 1, SHORT)]


def test_each_transactional_commit_version(stage: Stage) -> None:
    """Each TxnOffsetCommit version refuses too long metadata, and the accepted offsets are committed."""
    for version in versions(stage, TxnOffsetCommitRequest):

        def scenario(way: Way, group: str, version: int = version) -> Any:
            with Transaction(way.client, group) as transaction:
                transaction.begin()
                joining = AddOffsetsToTxnRequest(
                    transactional_id=group,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.epoch,
                    group_id=group,
                )
                until(lambda: way.client.ask(joining, 2).error_code == 0, "the group is added to the transaction")
                results: Told = []
                fenced = [(MIXED, 5)] if stage.ordered else []  # The oldest brokers do not check the epoch.
                for topics, epoch in [(MIXED, 0), (ASKED["a topic that is not there"], 0), *fenced]:
                    request = txn_commit(way, group, transaction, epoch, topics)
                    results += way.listing(ask(way.client.address, request, version))
                ending = EndTxnRequest(
                    transactional_id=group,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.epoch,
                    committed=True,
                )
                until(lambda: way.client.ask(ending, 2).error_code == 0, "the transaction ends")
            # An old broker drops all offsets of a transaction if the metadata of one was too long, and logs an error.
            if way is stage.through or stage.ordered:
                until(lambda: way.offsets(group) == STORED_IN_TRANSACTION, "the transaction's offsets are committed")
            return results, None

        results, _ = stage.compare(scenario)
        assert stage.in_order(results[: len(REFUSED)]) == stage.in_order(REFUSED)


def txn_commit(way: Way, group: str, of: Transaction, later: int, requested: Asked) -> TxnOffsetCommitRequest:
    """Returns a commit in a transaction. Its epoch is the producer's epoch plus `later`."""
    topics = tuple(
        TxnOffsetCommitRequestTopic(
            name=name,
            topic_id=way.ids.get(name, NOBODY),
            partitions=tuple(
                TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=at, committed_metadata=note)
                for at, (index, note) in enumerate(partitions)
            ),
        )
        for name, partitions in requested
    )
    return TxnOffsetCommitRequest(
        transactional_id=group,
        group_id=group,
        producer_id=of.producer_id,
        producer_epoch=of.epoch + later,
        topics=topics,
    )


def test_librdkafka_gets_metadata_error(stage: Stage) -> None:
    """librdkafka gets the metadata error and reads back only the accepted offsets."""
    short = SHORT[:-1]  # The client appends a NUL. librdkafka reports one partition's error for all partitions.
    wanted = [TopicPartition("a", 0, 5, LONG), TopicPartition("a", 1, 6, short), TopicPartition("b", 0, 7, "é")]

    def scenario(way: Way, group: str) -> Any:
        codes = []
        consumer = Consumer({"bootstrap.servers": host_port(way.client.address), "group.id": group})
        try:
            for offsets in (wanted, wanted[:1], wanted[1:]):
                try:
                    consumer.commit(offsets=offsets, asynchronous=False)
                    codes.append(0)
                except KafkaException as error:
                    codes.append(error.args[0].code())
            back = consumer.committed(wanted, GIVE_UP_SECONDS)
        finally:
            consumer.close()
        return [], (codes, [(p.topic, p.partition, p.offset) for p in back])

    _, seen = stage.compare(scenario)
    assert seen == ([12, 12, 0], [("a", 0, OFFSET_INVALID), ("a", 1, 6), ("b", 0, 7)])


def test_kafka_python_gets_metadata_error(stage: Stage) -> None:
    """kafka-python raises OffsetMetadataTooLargeError and reads back only the accepted offset."""
    places = [structs.TopicPartition("a", index) for index in (0, 1)]
    long, short = (structs.OffsetAndMetadata(5, note, -1) for note in (LONG, SHORT))

    def scenario(way: Way, group: str) -> Any:
        consumer = KafkaConsumer(
            bootstrap_servers=host_port(way.client.address), group_id=group, enable_auto_commit=False
        )
        try:
            with pytest.raises(errors.OffsetMetadataTooLargeError):
                consumer.commit(dict(zip(places, (long, short), strict=True)))
            return [], [consumer.committed(place, metadata=True) for place in places]
        finally:
            consumer.close(autocommit=False)

    _, (refused, stored) = stage.compare(scenario)
    assert refused is None
    assert (stored.offset, stored.metadata) == (5, SHORT)


def test_fully_refused_commit_gets_error_12(stage: Stage) -> None:
    """If all partitions have too long metadata, the sidecar reports only this error, although a broker reports more."""
    topics: Asked = [("a", [(0, LONG)]), ("z", [(0, LONG)])]
    results = [
        way.commit("none", topics, generation_id_or_member_epoch=5, member_id="m")
        for way in (stage.limited, stage.through)
    ]
    codes = [{topic: code for topic, ((_, code),) in each} for each in results]
    assert codes[0]["z"] == 3
    assert codes[0]["a"] in (22, 69)
    assert codes[1] == {"a": 12, "z": 12}
