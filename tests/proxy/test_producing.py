"""What is sent to a topic, and what becomes of it: before a broker that loses, forgets, refuses and moves."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from group_sidecar.codecs.compression import Codec
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.proxy import producing
from group_sidecar.proxy.producing import Outcome, Producer, Sending
from tests.proxy.topic_model import Topic, record

PARTITIONS = 3
QUEUE = 40
LINE = len(record(1).to_line())
BATCH = 5 * LINE + 200
"""Bytes: room for a few records."""

ANSWERS_WHILE_UNSURE = [
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    7,  # REQUEST_TIMED_OUT
    20,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    56,  # KAFKA_STORAGE_ERROR
]
"""Errors that a broker may say before it has appended, and after."""
ANSWERS_BEFORE = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
]


class Stage:
    """A producer and a topic, and the shell's part between them."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.topic = Topic(partitions)
        self.producer = Producer(b"here", **{"queue_records": 1000, "batch_bytes": BATCH, **settings})
        self.told = 0

    def tell(self, *sizes: int) -> None:
        """Appends records; `sizes`: of their topics' names."""
        for size in sizes:
            self.told += 1
            self.producer.append(record(self.told, "t" * size))

    def prepare(self) -> Sending | None:
        """All that comes before sending."""
        producer = self.producer
        if producer.led is None:
            producer.lead(self.topic.led)
        if not producer.numbered:
            producer.number(*self.topic.give_id())
        if not producer.under_way and producer.held:
            producer.hold(producer.take().contents(Codec.NONE))
        return producer.next()

    def send(self) -> Outcome | None:
        """Sends the next batch, and has it answered."""
        sending = self.prepare()
        return None if sending is None else self.producer.answered(self.topic.append(*sending))

    def send_all(self, most: int = 1000) -> None:
        """Sends until nothing is left."""
        for _ in range(most):
            if not self.producer.held:
                return
            self.send()
        raise AssertionError(f"{self.producer.held} records are left")


class Unreliable(RuleBasedStateMachine):
    """A broker that loses questions and answers, says errors, moves partitions, and forgets producers."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(PARTITIONS, queue_records=QUEUE)
        self.unsure = False
        self.doubted = 0
        self.gone: set[int] = set()

    @property
    def topic(self) -> Topic:
        return self.stage.topic

    @initialize(led=st.sets(st.integers(0, PARTITIONS - 1)))
    def begin(self, led: set[int]) -> None:
        self.topic.led = led

    @rule(sizes=st.lists(st.sampled_from([1, 1, 1, 50, 3 * LINE]), min_size=1, max_size=15))
    def tell(self, sizes: list[int]) -> None:
        self.stage.tell(*sizes)

    @rule()
    def send(self) -> None:
        if self.stage.send() is Outcome.SETTLED:
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
            assert self.stage.producer.answered(code) is Outcome.UNSETTLED
            self.unsure = True

    @rule(code=st.sampled_from(ANSWERS_BEFORE))
    def the_broker_does_not_append(self, code: int) -> None:
        if self.stage.prepare():
            self.stage.producer.answered(code)

    @rule(led=st.sets(st.integers(0, PARTITIONS - 1)), heard=st.booleans())
    def partitions_move(self, led: set[int], heard: bool) -> None:
        self.topic.led = led
        if heard:
            self.stage.producer.lead(led)

    @precondition(lambda self: not self.unsure)
    @rule(partition=st.integers(0, PARTITIONS - 1))
    def the_broker_forgets(self, partition: int) -> None:
        """As after a day without a record. What is sent again comes within seconds."""
        self.topic.partitions[partition].producers.clear()

    @rule(largest=st.sampled_from([2 * LINE, 1 << 20]))
    def the_topic_is_altered(self, largest: int) -> None:
        self.topic.largest = largest

    @invariant()
    def every_record_is_accounted_for(self) -> None:
        producer = self.stage.producer
        assert producer.records_written + sum(producer.records_dropped.values()) + producer.held == self.stage.told
        assert producer.held <= QUEUE

    @invariant()
    def nothing_is_doubled_but_what_was_doubted(self) -> None:
        extra = sum(count - 1 for count in Counter(self.topic.seqs).values())
        assert extra <= self.stage.producer.records_doubted

    @invariant()
    def every_partition_is_in_order(self) -> None:
        if not self.stage.producer.records_doubted:
            for partition in self.topic.partitions:
                assert partition.seqs == sorted(set(partition.seqs))

    def teardown(self) -> None:
        """In the end all is well, and what was not dropped is there."""
        self.topic.led = {0, 1}
        self.topic.largest = 1 << 20
        self.stage.producer.connected()
        self.stage.send_all()
        self.every_record_is_accounted_for()
        self.nothing_is_doubled_but_what_was_doubted()
        self.every_partition_is_in_order()
        producer = self.stage.producer
        there = set(self.topic.seqs)
        # A record that was dropped while it was in doubt may be there all the same.
        assert producer.records_written <= len(there) <= producer.records_written + producer.records_doubted
        assert self.stage.told - len(there) <= sum(producer.records_dropped.values())


TestUnreliable = Unreliable.TestCase
TestUnreliable.settings = settings(max_examples=100, stateful_step_count=40)


def test_records_are_sent_in_order_with_their_key_and_the_moment_they_were_made() -> None:
    stage = Stage()
    stage.tell(*[1] * 12)
    stage.send_all()
    [partition] = stage.topic.partitions
    assert partition.seqs == list(range(1, 13))
    assert partition.keys == {b"here"}
    assert partition.timestamps == {1_700_000_000_250}
    assert stage.producer.records_written == 12
    assert stage.topic.ids == 1


def test_a_batch_holds_as_many_bytes_as_it_may() -> None:
    stage = Stage(batch_bytes=10 * LINE)
    stage.tell(*[1] * 40)
    sizes = []
    while sending := stage.prepare():
        sizes.append(len(sending.data))
        stage.producer.answered(stage.topic.append(*sending))
    assert max(sizes) <= 10 * LINE
    assert len(sizes) <= 6


def test_a_batch_is_sent_again_as_it_was() -> None:
    stage = Stage()
    stage.tell(1, 1)
    first = stage.prepare()
    stage.producer.lost()
    stage.producer.connected()
    stage.tell(1)
    assert stage.prepare() == first


@pytest.mark.parametrize("partition", [0, 1])
def test_it_stays_with_one_partition_for_as_long_as_the_broker_leads_it(partition: int) -> None:
    stage = Stage(3)
    stage.topic.led = {partition}
    stage.tell(1)
    stage.send_all()
    stage.topic.led = {0, 1, 2}
    stage.producer.connected()
    stage.tell(1)
    stage.send_all()
    assert [len(each.seqs) for each in stage.topic.partitions] == [2 * (number == partition) for number in range(3)]


def test_which_one_it_takes_depends_on_its_name() -> None:
    taken = set()
    for name in range(20):
        stage = Stage(3)
        stage.producer = Producer(f"sidecar-{name}".encode(), 100, BATCH)
        stage.tell(1)
        sending = stage.prepare()
        assert sending is not None
        taken.add(sending.partition)
    assert taken == {0, 1, 2}


@pytest.mark.parametrize("appended", [True, False])
def test_what_may_be_in_a_partition_that_moved_away_is_sent_under_a_new_id(appended: bool) -> None:
    stage = Stage(2)
    stage.topic.led = {0}
    stage.tell(1, 1)
    sending = stage.prepare()
    assert sending is not None
    if appended:
        stage.topic.append(*sending)
    stage.producer.lost()
    stage.topic.led = {1}
    stage.producer.connected()
    stage.producer.lead({1})
    assert not stage.producer.numbered
    stage.send_all()
    assert stage.topic.partitions[1].seqs == [1, 2]
    assert stage.producer.records_doubted == 2


def test_it_waits_where_the_broker_leads_nothing_and_then_goes_on() -> None:
    stage = Stage()
    stage.tell(1)
    stage.prepare()
    stage.producer.lost()
    stage.producer.lead(())
    assert stage.producer.next() is None
    stage.producer.lead({0})
    stage.send_all()
    assert (stage.topic.seqs, stage.producer.records_doubted, stage.topic.ids) == ([1], 0, 1)


@pytest.mark.parametrize("code", [45, 47, 49, 59, 90])
def test_a_producer_that_the_broker_does_not_know_takes_a_new_id(code: int) -> None:
    stage = Stage()
    stage.tell(1)
    stage.prepare()
    assert stage.producer.answered(code) is Outcome.UNSETTLED
    assert not stage.producer.numbered
    stage.send_all()
    assert (stage.topic.seqs, stage.producer.records_doubted, stage.topic.ids) == ([1], 0, 2)


def test_sequence_numbers_begin_anew_behind_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(batch_bytes=1)
    stage.tell(1, 1, 1)
    stage.send()
    monkeypatch.setitem(stage.producer._sequences, 0, 0x7FFFFFFF)
    remembered = stage.topic.partitions[0].producers[1].batches
    remembered.clear()
    remembered.append((0x7FFFFFFE, 0x7FFFFFFE))
    stage.send_all()
    assert (stage.topic.seqs, stage.topic.ids) == ([1, 2, 3], 1)


def test_a_record_too_large_for_the_topic_is_dropped_alone() -> None:
    stage = Stage(batch_bytes=1 << 20)
    stage.topic.largest = 3 * LINE
    stage.tell(*[1] * 7, 4 * LINE, *[1] * 7)
    stage.send_all()
    assert stage.topic.seqs == [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15]
    assert stage.producer.records_dropped == {"queue_full": 0, "too_large": 1, "refused": 0}
    assert stage.topic.ids == 1


@pytest.mark.parametrize("code", [32, 43, 44, 87])
def test_what_the_broker_will_never_take_is_dropped_and_the_rest_goes_on(code: int) -> None:
    stage = Stage(batch_bytes=1)
    stage.tell(1, 1)
    stage.prepare()
    assert stage.producer.answered(code) is Outcome.REFUSED
    stage.send_all()
    assert stage.topic.seqs == [2]
    assert stage.producer.records_dropped == {"queue_full": 0, "too_large": 0, "refused": 1}


def test_a_broker_that_knows_the_batch_from_long_ago_has_it() -> None:
    stage = Stage(batch_bytes=1)
    stage.tell(1, 1)
    stage.prepare()
    stage.producer.lost()
    stage.prepare()
    assert stage.producer.answered(ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is Outcome.SETTLED
    assert (stage.producer.records_written, stage.producer.held, stage.producer.numbered) == (1, 1, True)


def test_a_lack_of_rights_loses_nothing() -> None:
    stage = Stage()
    stage.tell(1)
    stage.prepare()
    assert stage.producer.answered(ErrorCode.TOPIC_AUTHORIZATION_FAILED) is Outcome.DENIED
    stage.send_all()
    assert (stage.topic.seqs, stage.topic.ids) == ([1], 1)


def test_a_full_queue_drops_the_oldest_that_is_not_under_way() -> None:
    stage = Stage(queue_records=4, batch_bytes=1)
    stage.tell(1, 1, 1)
    stage.prepare()
    stage.tell(1, 1, 1)
    stage.send_all()
    assert stage.topic.seqs == [1, 4, 5, 6]
    assert stage.producer.records_dropped["queue_full"] == 2


def test_so_it_is_while_a_batch_is_packed() -> None:
    stage = Stage(queue_records=2)
    stage.tell(1, 1)
    packing = stage.producer.take()
    stage.tell(1, 1)
    stage.producer.hold(packing.contents(Codec.GZIP))
    stage.send_all()
    assert stage.topic.seqs == [1, 2]
    assert stage.producer.records_dropped["queue_full"] == 2


def test_what_comes_while_a_batch_is_packed_goes_behind_what_did_not_fit() -> None:
    stage = Stage()
    stage.tell(*[1] * 12)
    packing = stage.producer.take()
    stage.tell(1, 1)
    stage.producer.hold(packing.contents(Codec.NONE))
    stage.send_all()
    assert stage.topic.seqs == list(range(1, 15))


def test_no_batch_has_more_records_than_are_packed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "PACKED_AT_ONCE", 3)
    stage = Stage(batch_bytes=1 << 20)
    stage.tell(*[1] * 7)
    counts = []
    while stage.prepare():
        before = stage.producer.records_written
        stage.send()
        counts.append(stage.producer.records_written - before)
    assert counts == [3, 3, 1]
