"""librdkafka: producing, consuming, transactions."""

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance.librdkafka import (
    QUICK_CONSUMER,
    committed,
    consume,
    consumer,
    create_topic,
    poll_until,
    produce,
)
from tests.conformance.routes import Routes, Run
from tests.kafka.processes import GIVE_UP_SECONDS

VALUES = [f"value {number}" for number in range(300)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_values_are_consumed_and_committed(routes: Routes, codec: str) -> None:
    """librdkafka produces, consumes and commits all values with each compression codec, directly and through the
    sidecar.
    """

    def scenario(run: Run) -> Any:
        create_topic(run, "topic", partitions=3)
        places = produce(run, "topic", VALUES, compression_type=codec, enable_idempotence=True)
        values = consume(run, "group", ["topic"], len(VALUES))
        return places, values, committed(run, "group", "topic", 3)

    places, values, offsets = routes.compare(scenario)
    assert places == [(partition, offset) for partition in range(3) for offset in range(100)]
    assert values == sorted(VALUES)
    assert offsets == [100, 100, 100]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_acks_setting_keeps_order(routes: Routes, acks: str) -> None:
    """With each acks setting, all values are consumed in their order."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic")
        produce(run, "topic", VALUES, acks=acks)
        with consumer(run, "group", ["topic"]) as client:
            messages = poll_until([client], lambda seen: len(seen) >= len(VALUES), "all values")
        return [((message.key() or b"").decode(), (message.value() or b"").decode()) for message in messages]

    assert routes.compare(scenario) == [(f"k{number}", value) for number, value in enumerate(VALUES)]


def test_large_message_passes(routes: Routes) -> None:
    """Messages of 900 kB pass through the sidecar."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic")
        produce(run, "topic", ["x" * 900_000, "y" * 900_000])
        return [(value[0], len(value)) for value in consume(run, "group", ["topic"], 2)]

    assert routes.compare(scenario) == [("x", 900_000), ("y", 900_000)]


def test_broker_refuses_too_large_message(routes: Routes) -> None:
    """The broker refuses a message of 2 MB with MSG_SIZE_TOO_LARGE, directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic")
        errors: list[str] = []
        producer = Producer({"bootstrap.servers": run.bootstrap, "message.max.bytes": 4_000_000})
        producer.produce(
            run.name("topic"), "x" * 2_000_000, on_delivery=lambda error, _: errors.append(str(error and error.name()))
        )
        assert producer.flush(GIVE_UP_SECONDS) == 0
        return errors

    assert routes.compare(scenario) == ["MSG_SIZE_TOO_LARGE"]


def test_consume_transform_produce(routes: Routes) -> None:
    """Transactions that consume and produce commit or abort both offsets and values."""

    def scenario(run: Run) -> Any:
        create_topic(run, "in")
        create_topic(run, "out")
        produce(run, "in", ["a", "b", "c", "d"])
        producer = Producer({"bootstrap.servers": run.bootstrap, "transactional.id": run.name("transformer")})
        producer.init_transactions(GIVE_UP_SECONDS)
        with consumer(run, "group", ["in"]) as client:
            poll_until([client], lambda seen: len(seen) >= 4, "the input")
            _transact(run, producer, client, "committed", offset=2, commit=True)
            _transact(run, producer, client, "aborted", offset=4, commit=False)
            after = committed(run, "group", "in", 1)
            _transact(run, producer, client, "committed later", offset=3, commit=True)
        return (
            after,
            committed(run, "group", "in", 1),
            _read_to_end(run, "out", "read_committed"),
            _read_to_end(run, "out", "read_uncommitted"),
        )

    after_abort, at_end, seen_committed, seen_all = routes.compare(scenario)
    assert (after_abort, at_end) == ([2], [3])
    assert seen_committed == ["committed", "committed later"]
    assert seen_all == ["committed", "aborted", "committed later"]


def _transact(run: Run, producer: Producer, client: Consumer, value: str, *, offset: int, commit: bool) -> None:
    producer.begin_transaction()
    producer.produce(run.name("out"), value)
    place = TopicPartition(run.name("in"), 0, offset)
    producer.send_offsets_to_transaction([place], client.consumer_group_metadata(), GIVE_UP_SECONDS)
    if commit:
        producer.commit_transaction(GIVE_UP_SECONDS)
    else:
        assert producer.flush(GIVE_UP_SECONDS) == 0, "some records were not sent before the abort"
        producer.abort_transaction(GIVE_UP_SECONDS)


def _read_to_end(run: Run, topic: str, isolation: str) -> list[str]:
    """Returns all values of the topic's only partition up to its end, with this isolation level."""
    client = Consumer(
        {
            "bootstrap.servers": run.bootstrap,
            "group.id": run.name(isolation),
            "isolation.level": isolation,
            "enable.partition.eof": True,
            **QUICK_CONSUMER,
        }
    )
    values = []
    try:
        client.assign([TopicPartition(run.name(topic), 0, 0)])
        while (message := client.poll(GIVE_UP_SECONDS)) is not None and message.error() is None:
            values.append((message.value() or b"").decode())
        assert message is not None, "the consumer got neither a record nor the end of the partition"
        error = message.error()
        assert error is not None
        assert error.name() == "_PARTITION_EOF"
    finally:
        client.close()
    return values


def test_fenced_producer_gets_error(routes: Routes) -> None:
    """A transactional producer that another one fences gets the error _FENCED."""

    def scenario(run: Run) -> Any:
        create_topic(run, "topic")
        settings = {"bootstrap.servers": run.bootstrap, "transactional.id": run.name("only one")}
        first, second = Producer(settings), Producer(settings)
        first.init_transactions(GIVE_UP_SECONDS)
        first.begin_transaction()
        second.init_transactions(GIVE_UP_SECONDS)
        first.produce(run.name("topic"), "too late")
        try:
            first.commit_transaction(GIVE_UP_SECONDS)
        except Exception as error:  # noqa: BLE001 - the observation is which one
            return error.args[0].name()
        return "not fenced"

    assert routes.compare(scenario) == "_FENCED"
