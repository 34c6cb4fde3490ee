"""Tests the producer against a broker that loses, forgets, refuses and moves."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from group_sidecar.codecs.compression import Codec
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.proxy.journal import idempotent_producer
from group_sidecar.proxy.journal.idempotent_producer import IdempotentProducer, PartitionBatch, SendOutcome
from tests.proxy.journal.topic_model import Topic, array, record

PARTITIONS = 3
QUEUE = 40
LINE = len(record(1).to_line())
BATCH = 5 * LINE + 200
"""The maximum bytes of a batch, enough for a few records."""

ANSWERS_WHILE_UNSURE = [
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    7,  # REQUEST_TIMED_OUT
    20,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    56,  # KAFKA_STORAGE_ERROR
]
"""Errors that a broker may return before or after it has appended the batch."""
ANSWERS_BEFORE = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
]


class Stage:
    """A producer and a topic, with the part of the I/O code between them."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.topic = Topic(partitions)
        self.producer = IdempotentProducer(b"here", **{"queue_records": 1000, "batch_bytes": BATCH, **settings})
        self.records_appended = 0

    def tell(self, *sizes: int) -> None:
        """Appends records. `sizes`: the lengths of their topics' names."""
        for size in sizes:
            self.records_appended += 1
            self.producer.append(record(self.records_appended, "t" * size))

    def tell_array(self, count: int) -> None:
        """Appends an array line of `count` records."""
        self.producer.append(array(self.records_appended + 1, count))
        self.records_appended += count

    def prepare(self) -> PartitionBatch | None:
        """Does all that comes before sending."""
        producer = self.producer
        if producer.leader_partitions is None:
            producer.set_leader_partitions(self.topic.leader_partitions)
        if not producer.has_producer_id:
            producer.set_producer_id(*self.topic.give_id())
        if not producer.has_batch and producer.unsettled_count:
            producer.hold(producer.take().encoded_records(Codec.NONE))
        return producer.next()

    def send(self) -> SendOutcome | None:
        """Sends the next batch, and passes on the reply."""
        sending = self.prepare()
        return None if sending is None else self.producer.answered(self.topic.append(*sending))

    def send_all(self, most: int = 1000) -> None:
        """Sends until no batch is left."""
        for _ in range(most):
            if not self.producer.unsettled_count:
                return
            self.send()
        raise AssertionError(f"{self.producer.unsettled_count} records are left after {most} batches")


class Unreliable(RuleBasedStateMachine):
    """A broker that loses requests and replies, returns errors, moves partitions, and forgets producers."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(PARTITIONS, queue_records=QUEUE)
        self.unsure = False
        self.doubted = 0
        self.gone: set[int] = set()

    @property
    def topic(self) -> Topic:
        return self.stage.topic

    @initialize(leader_partitions=st.sets(st.integers(0, PARTITIONS - 1)))
    def begin(self, leader_partitions: set[int]) -> None:
        self.topic.leader_partitions = leader_partitions

    @rule(sizes=st.lists(st.sampled_from([1, 1, 1, 50, 3 * LINE]), min_size=1, max_size=15))
    def tell(self, sizes: list[int]) -> None:
        self.stage.tell(*sizes)

    @rule(count=st.integers(1, 30))
    def tell_array(self, count: int) -> None:
        self.stage.tell_array(count)

    @rule()
    def send(self) -> None:
        if self.stage.send() is SendOutcome.DONE:
            self.unsure = False

    @rule(appended=st.booleans(), reconnect=st.booleans())
    def the_connection_breaks(self, appended: bool, reconnect: bool) -> None:
        if sending := self.stage.prepare():
            if appended:
                self.topic.append(*sending)
            self.stage.producer.lost()
            self.unsure = True
        if reconnect:
            self.stage.producer.connected()

    @rule(appended=st.booleans(), code=st.sampled_from(ANSWERS_WHILE_UNSURE))
    def the_broker_is_not_sure(self, appended: bool, code: int) -> None:
        if sending := self.stage.prepare():
            if appended:
                self.topic.append(*sending)
            assert self.stage.producer.answered(code) is SendOutcome.RETRY
            self.unsure = True

    @rule(code=st.sampled_from(ANSWERS_BEFORE))
    def the_broker_does_not_append(self, code: int) -> None:
        if self.stage.prepare():
            self.stage.producer.answered(code)

    @rule(leader_partitions=st.sets(st.integers(0, PARTITIONS - 1)), heard=st.booleans())
    def partitions_move(self, leader_partitions: set[int], heard: bool) -> None:
        self.topic.leader_partitions = leader_partitions
        if heard:
            self.stage.producer.set_leader_partitions(leader_partitions)

    @precondition(lambda self: not self.unsure)
    @rule(partition=st.integers(0, PARTITIONS - 1))
    def the_broker_forgets(self, partition: int) -> None:
        """Forgets the producer, as after a day without a record. A retry comes within seconds."""
        self.topic.partitions[partition].producers.clear()

    @rule(largest=st.sampled_from([2 * LINE, 1 << 20]))
    def the_topic_is_altered(self, largest: int) -> None:
        self.topic.largest = largest

    @invariant()
    def every_record_is_accounted_for(self) -> None:
        producer = self.stage.producer
        assert (
            producer.records_written + sum(producer.records_dropped.values()) + producer.unsettled_count
            == self.stage.records_appended
        )
        assert producer.unsettled_count <= QUEUE

    @invariant()
    def nothing_is_doubled_but_what_was_doubted(self) -> None:
        extra = sum(count - 1 for count in Counter(self.topic.seqs).values())
        assert extra <= self.stage.producer.records_maybe_doubled

    @invariant()
    def every_partition_is_in_order(self) -> None:
        if not self.stage.producer.records_maybe_doubled:
            for partition in self.topic.partitions:
                assert partition.seqs == sorted(set(partition.seqs))

    def teardown(self) -> None:
        """Checks that once all is well, every record that was not dropped is in the topic."""
        self.topic.leader_partitions = {0, 1}
        self.topic.largest = 1 << 20
        self.stage.producer.connected()
        self.stage.send_all()
        self.every_record_is_accounted_for()
        self.nothing_is_doubled_but_what_was_doubted()
        self.every_partition_is_in_order()
        producer = self.stage.producer
        there = set(self.topic.seqs)
        # A record that was dropped after its batch was sent may still be in the topic.
        assert producer.records_written <= len(there) <= producer.records_written + producer.records_maybe_doubled
        assert self.stage.records_appended - len(there) <= sum(producer.records_dropped.values())


TestUnreliable = Unreliable.TestCase
TestUnreliable.settings = settings(max_examples=100, stateful_step_count=40)


def test_records_keep_order_key_and_timestamp() -> None:
    """Records arrive in order with the sidecar's key and their creation time, under one producer id."""
    stage = Stage()
    stage.tell(*[1] * 12)
    stage.send_all()
    [partition] = stage.topic.partitions
    assert partition.seqs == list(range(1, 13))
    assert partition.keys == {b"here"}
    assert partition.timestamps == {1_700_000_000_250}
    assert stage.producer.records_written == 12
    assert stage.topic.ids == 1


def test_batch_fills_byte_limit() -> None:
    """Batches stay within the byte limit and use most of it."""
    stage = Stage(batch_bytes=10 * LINE)
    stage.tell(*[1] * 40)
    sizes = []
    while sending := stage.prepare():
        sizes.append(len(sending.data))
        stage.producer.answered(stage.topic.append(*sending))
    assert max(sizes) <= 10 * LINE
    assert len(sizes) <= 6


def test_retried_batch_is_identical() -> None:
    """A batch is sent again unchanged after a lost connection."""
    stage = Stage()
    stage.tell(1, 1)
    first = stage.prepare()
    stage.producer.lost()
    stage.producer.connected()
    stage.tell(1)
    assert stage.prepare() == first


@pytest.mark.parametrize("partition", [0, 1])
def test_producer_stays_with_led_partition(partition: int) -> None:
    """The producer keeps its partition while the broker leads it."""
    stage = Stage(3)
    stage.topic.leader_partitions = {partition}
    stage.tell(1)
    stage.send_all()
    stage.topic.leader_partitions = {0, 1, 2}
    stage.producer.connected()
    stage.tell(1)
    stage.send_all()
    assert [len(each.seqs) for each in stage.topic.partitions] == [2 * (number == partition) for number in range(3)]


def test_partition_depends_on_sidecar_name() -> None:
    """Different sidecar names spread over all partitions."""
    taken = set()
    for name in range(20):
        stage = Stage(3)
        stage.producer = IdempotentProducer(f"sidecar-{name}".encode(), 100, BATCH)
        stage.tell(1)
        sending = stage.prepare()
        assert sending is not None
        taken.add(sending.partition)
    assert taken == {0, 1, 2}


@pytest.mark.parametrize("appended", [True, False])
def test_partition_move_takes_new_producer_id(appended: bool) -> None:
    """A batch whose partition moved is sent under a new producer id and counts as possibly doubled."""
    stage = Stage(2)
    stage.topic.leader_partitions = {0}
    stage.tell(1, 1)
    sending = stage.prepare()
    assert sending is not None
    if appended:
        stage.topic.append(*sending)
    stage.producer.lost()
    stage.topic.leader_partitions = {1}
    stage.producer.connected()
    stage.producer.set_leader_partitions({1})
    assert not stage.producer.has_producer_id
    stage.send_all()
    assert stage.topic.partitions[1].seqs == [1, 2]
    assert stage.producer.records_maybe_doubled == 2


def test_producer_waits_without_led_partition() -> None:
    """The producer waits while the broker leads no partition and then continues without a duplicate."""
    stage = Stage()
    stage.tell(1)
    stage.prepare()
    stage.producer.lost()
    stage.producer.set_leader_partitions(())
    assert stage.producer.next() is None
    stage.producer.set_leader_partitions({0})
    stage.send_all()
    assert (stage.topic.seqs, stage.producer.records_maybe_doubled, stage.topic.ids) == ([1], 0, 1)


@pytest.mark.parametrize("code", [45, 47, 49, 59, 90])
def test_unknown_producer_takes_new_id(code: int) -> None:
    """A broker error about an unknown producer makes the producer retry under a new id."""
    stage = Stage()
    stage.tell(1)
    stage.prepare()
    assert stage.producer.answered(code) is SendOutcome.RETRY
    assert not stage.producer.has_producer_id
    stage.send_all()
    assert (stage.topic.seqs, stage.producer.records_maybe_doubled, stage.topic.ids) == ([1], 0, 2)


def test_sequence_numbers_wrap_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequence numbers wrap around after the largest one."""
    stage = Stage(batch_bytes=1)
    stage.tell(1, 1, 1)
    stage.send()
    monkeypatch.setitem(stage.producer._sequences, 0, 0x7FFFFFFF)
    remembered = stage.topic.partitions[0].producers[1].batches
    remembered.clear()
    remembered.append((0x7FFFFFFE, 0x7FFFFFFE))
    stage.send_all()
    assert (stage.topic.seqs, stage.topic.ids) == ([1, 2, 3], 1)


def test_oversized_record_is_dropped_alone() -> None:
    """A record that is too large for the topic is dropped, and all other records are written."""
    stage = Stage(batch_bytes=1 << 20)
    stage.topic.largest = 3 * LINE
    stage.tell(*[1] * 7, 4 * LINE, *[1] * 7)
    stage.send_all()
    assert stage.topic.seqs == [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15]
    assert stage.producer.records_dropped == {"queue_full": 0, "too_large": 1, "refused": 0}
    assert stage.topic.ids == 1


@pytest.mark.parametrize("code", [32, 43, 44, 87])
def test_rejected_batch_is_dropped(code: int) -> None:
    """A batch that the broker rejects for good is dropped, and the next batch is written."""
    stage = Stage(batch_bytes=1)
    stage.tell(1, 1)
    stage.prepare()
    assert stage.producer.answered(code) is SendOutcome.REFUSED
    stage.send_all()
    assert stage.topic.seqs == [2]
    assert stage.producer.records_dropped == {"queue_full": 0, "too_large": 0, "refused": 1}


def test_sequence_numbers_count_messages() -> None:
    """An array line is one message, so it takes one sequence number, however many records it has."""
    stage = Stage(batch_bytes=1)
    stage.tell_array(23)
    stage.tell(1)
    stage.tell_array(5)
    stage.send_all()
    assert list(stage.topic.partitions[0].producers[1].batches) == [(0, 0), (1, 1), (2, 2)]
    assert (stage.topic.seqs, stage.topic.ids) == ([*range(1, 30)], 1)
    assert (stage.producer.records_written, stage.producer.unsettled_count) == (29, 0)


def test_oversized_array_line_is_halved() -> None:
    """An array line that the topic does not accept is halved until it fits, and every record arrives in order."""
    stage = Stage()
    stage.topic.largest = LINE + 150
    stage.tell(1)
    stage.tell_array(23)
    stage.tell(1)
    stage.send_all()
    assert stage.topic.seqs == [*range(1, 26)]
    assert stage.producer.records_written == 25
    assert sum(stage.producer.records_dropped.values()) == 0
    assert stage.topic.ids == 1


def test_array_line_that_no_topic_accepts_is_dropped() -> None:
    """An array line whose single records are too large is dropped, and each of its records is counted."""
    stage = Stage()
    stage.topic.largest = 200
    stage.tell_array(5)
    stage.send_all()
    assert stage.producer.records_dropped["too_large"] == 5


def test_full_queue_counts_records_of_array_lines() -> None:
    """The queue is limited by records. A dropped array line counts as all its records."""
    stage = Stage(queue_records=10)
    stage.tell_array(4)
    stage.tell_array(5)
    assert stage.producer.unsettled_count == 9
    stage.tell(1, 1)
    assert (stage.producer.unsettled_count, stage.producer.records_dropped["queue_full"]) == (7, 4)
    stage.send_all()
    assert stage.topic.seqs == [*range(5, 12)]


def test_duplicate_sequence_counts_as_written() -> None:
    """The error DUPLICATE_SEQUENCE_NUMBER means that the broker has the batch already."""
    stage = Stage(batch_bytes=1)
    stage.tell(1, 1)
    stage.prepare()
    stage.producer.lost()
    stage.prepare()
    assert stage.producer.answered(ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is SendOutcome.DONE
    assert (stage.producer.records_written, stage.producer.unsettled_count, stage.producer.has_producer_id) == (
        1,
        1,
        True,
    )


def test_missing_right_loses_no_records() -> None:
    """Records wait while the broker denies the right to write, and are written afterwards."""
    stage = Stage()
    stage.tell(1)
    stage.prepare()
    assert stage.producer.answered(ErrorCode.TOPIC_AUTHORIZATION_FAILED) is SendOutcome.DENIED
    stage.send_all()
    assert (stage.topic.seqs, stage.topic.ids) == ([1], 1)


def test_full_queue_drops_oldest_unsent() -> None:
    """A full queue drops the oldest records that are not in flight."""
    stage = Stage(queue_records=4, batch_bytes=1)
    stage.tell(1, 1, 1)
    stage.prepare()
    stage.tell(1, 1, 1)
    stage.send_all()
    assert stage.topic.seqs == [1, 4, 5, 6]
    assert stage.producer.records_dropped["queue_full"] == 2


def test_full_queue_keeps_records_in_packing() -> None:
    """A full queue does not drop records that are being packed."""
    stage = Stage(queue_records=2)
    stage.tell(1, 1)
    packer = stage.producer.take()
    stage.tell(1, 1)
    stage.producer.hold(packer.encoded_records(Codec.GZIP))
    stage.send_all()
    assert stage.topic.seqs == [1, 2]
    assert stage.producer.records_dropped["queue_full"] == 2


def test_records_keep_order_during_packing() -> None:
    """Records that arrive while a batch is packed come after the records that did not fit into it."""
    stage = Stage()
    stage.tell(*[1] * 12)
    packer = stage.producer.take()
    stage.tell(1, 1)
    stage.producer.hold(packer.encoded_records(Codec.NONE))
    stage.send_all()
    assert stage.topic.seqs == list(range(1, 15))


def test_batch_record_count_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch has more than MAX_BATCH_RECORDS records."""
    monkeypatch.setattr(idempotent_producer, "MAX_BATCH_RECORDS", 3)
    stage = Stage(batch_bytes=1 << 20)
    stage.tell(*[1] * 7)
    counts = []
    while stage.prepare():
        before = stage.producer.records_written
        stage.send()
        counts.append(stage.producer.records_written - before)
    assert counts == [3, 3, 1]
