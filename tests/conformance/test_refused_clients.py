"""The behaviour of real clients at a refusal, as in the table of docs/refusals.md."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError
from kafka import KafkaConsumer
from kafka.errors import BrokerResponseError, GroupMaxSizeReachedError, StaleBrokerEpochError

from tests.conformance.librdkafka import consumer, create_topic
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect
from tests.kafka.group_members import ClassicMember, ConsumerMember
from tests.kafka.processes import GIVE_UP_SECONDS, free_addresses
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import ToolFailed, kafka_tool

RELEASED, KIP_389 = 81, 77
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
"""A tool of Kafka that prints the exception with which it ends."""


@dataclass(frozen=True)
class Full:
    """A run with a topic and two full groups: "classic" and "consumer"."""

    run: Run
    topic: str
    code: int


@pytest.fixture(scope="module", params=[RELEASED, KIP_389])
def full(
    broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Full]:
    """Two full groups behind a gateway, which clients cannot distinguish from the broker."""
    broker.wait_for_coordinator()
    [listen] = free_addresses(1)
    limits = {"limit": 1, "consumer_max_size": 1, "error_code": request.param}
    settings = {"mode": "gateway", "policies": {"group_max_size": limits}}
    folder = tmp_path_factory.mktemp("refused")
    with ExitStack() as stack:
        stack.enter_context(SidecarProcess(folder, listen=listen, upstream=broker.direct, settings=settings))
        run = Run(Route("sidecar", listen, listen), f"full{request.param}")
        topic = create_topic(run, "topic")
        client = Client(listen, Dialect.of(listen))
        classic = stack.enter_context(ClassicMember(client, run.name("classic"), topic))
        classic.join()
        classic.sync()
        stack.enter_context(ConsumerMember(client, run.name("consumer"), (topic,), instance_id="here")).join()
        yield Full(run, topic, request.param)


def errors_of(client: Consumer, count: int) -> list[KafkaError]:
    """Returns the next errors that a client reports instead of messages."""
    errors: list[KafkaError] = []
    while len(errors) < count:
        message = client.poll(GIVE_UP_SECONDS)
        assert message is not None, f"{count} errors are expected, and the client reported only {errors}"
        error = message.error()
        assert error is not None, "the client returned a message instead of an error"
        errors.append(error)
    return errors


def test_librdkafka_reports_refusal_and_retries(full: Full) -> None:
    """librdkafka reports the refusal of a classic join as a non-fatal error and tries again."""
    with consumer(full.run, "classic", ["topic"]) as client:
        errors = errors_of(client, 2)
    assert [(error.code(), error.fatal()) for error in errors] == [(full.code, False)] * 2
    assert errors[0].str().startswith("JoinGroup failed: ")


def test_librdkafka_stops_in_consumer_group(full: Full) -> None:
    """librdkafka reports the refusal of a consumer group join as a fatal error."""
    with consumer(full.run, "consumer", ["topic"], group_protocol="consumer") as client:
        [error] = errors_of(client, 1)
    assert error.code() == KafkaError._FATAL
    assert "Consumer group has reached maximum size" in error.str()


def test_kafka_python_raises_refusal(full: Full) -> None:
    """kafka-python raises the refusal's error on each poll."""
    raised: dict[int, type[BrokerResponseError]] = {RELEASED: GroupMaxSizeReachedError, KIP_389: StaleBrokerEpochError}
    client: Any = KafkaConsumer(
        full.topic, bootstrap_servers=full.run.bootstrap, group_id=full.run.name("classic"), enable_auto_commit=False
    )
    try:
        for _ in range(2):
            with pytest.raises(raised[full.code]):
                client.poll(timeout_ms=GIVE_UP_SECONDS * 1000)
    finally:
        client.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_raises_refusal(full: Full, protocol: str) -> None:
    """A Java consumer ends with the refusal's exception in both protocols."""
    place = ("--bootstrap-server", full.run.bootstrap, "--topic", full.topic, "--group", full.run.name(protocol))
    how = ("--num-records", "1", "--command-property", f"group.protocol={protocol}")
    with pytest.raises(ToolFailed) as failed:
        kafka_tool(CONSUMER_PERFORMANCE, *place, *how)
    of_an_epoch = full.code == KIP_389 and protocol == "classic"
    expected = (
        "KafkaException: Unexpected error in join group response: Broker epoch has changed"
        if of_an_epoch
        else "GroupMaxSizeReachedException"
    )
    assert re.search(rf"^org\.apache\.kafka\.common\.(errors\.)?{expected}", str(failed.value), re.MULTILINE)
