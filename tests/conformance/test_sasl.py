"""SASL passes through the sidecar: PLAIN and SCRAM of real clients, in frames and as raw tokens (SaslHandshake v0)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.librdkafka import create_topic
from tests.conformance.routes import Routes, Run
from tests.kafka.broker import SASL_PASSWORD, SASL_USER
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.kafka.sasl import SENDERS, Exchange, plain, scram_sha_256, send_framed, send_raw
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import TOPICS, kafka_tool
from tests.kafka.wire import Wire

MECHANISMS: dict[str, Callable[[str, str], Exchange]] = {"PLAIN": plain, "SCRAM-SHA-256": scram_sha_256}

each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


def test_sidecar_without_credentials_is_ready(sasl_sidecar: SidecarProcess) -> None:
    """A sidecar without its own credentials before a SASL broker is ready."""
    sasl_sidecar.process.wait_until(lambda: sasl_sidecar.get("/readyz")[0] == 200)


def librdkafka_settings(run: Run, mechanism: str, password: str = SASL_PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": run.route.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": SASL_USER,
        "sasl.password": password,
    }


@each_mechanism
def test_librdkafka_produces_and_consumes(sasl_routes: Routes, mechanism: str) -> None:
    """librdkafka produces and consumes through SASL by each mechanism."""

    def scenario(run: Run) -> Any:
        settings = librdkafka_settings(run, mechanism)
        topic = create_topic(run, "topic")
        producer = Producer(settings)
        producer.produce(topic, "value")
        assert producer.flush(GIVE_UP_SECONDS) == 0
        client = Consumer({**settings, "group.id": run.name("group"), "auto.offset.reset": "earliest"})
        try:
            client.subscribe([topic])
            message = client.poll(GIVE_UP_SECONDS)
            return message is not None and message.value()
        finally:
            client.close()

    assert sasl_routes.compare(scenario) == b"value"


@each_mechanism
def test_librdkafka_reports_wrong_password(sasl_routes: Routes, mechanism: str) -> None:
    """librdkafka reports the same authentication error for a wrong password directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        errors: list[Any] = []
        client = AdminClient(librdkafka_settings(run, mechanism, "wrong") | {"error_cb": errors.append, "log_level": 0})
        while not any(error.name() == "_AUTHENTICATION" for error in errors):
            assert client.poll(GIVE_UP_SECONDS) > 0, "the client reported no error"
        return next(error.str().rsplit(" (after", 1)[0] for error in errors if error.name() == "_AUTHENTICATION")

    assert "Authentication failed" in sasl_routes.compare(scenario)


@each_mechanism
def test_kafka_python_lists_topics(sasl_routes: Routes, mechanism: str) -> None:
    """kafka-python lists topics through SASL by each mechanism."""

    def scenario(run: Run) -> Any:
        topic = create_topic(run, "topic")
        client = KafkaAdminClient(
            bootstrap_servers=run.route.sasl_bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=SASL_USER,
            sasl_plain_password=SASL_PASSWORD,
        )
        try:
            return topic in client.list_topics()
        finally:
            client.close()

    assert sasl_routes.compare(scenario) is True


@each_mechanism
def test_java_describes_topic(sasl_routes: Routes, mechanism: str, tmp_path: Path) -> None:
    """Java's topics tool describes a topic through SASL by each mechanism."""
    login = "scram.ScramLoginModule" if mechanism.startswith("SCRAM") else "plain.PlainLoginModule"
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{login} required "
        f'username="{SASL_USER}" password="{SASL_PASSWORD}";\n'
    )

    def scenario(run: Run) -> Any:
        place = ("--bootstrap-server", run.route.sasl_bootstrap, "--command-config", str(file))
        return kafka_tool(TOPICS, *place, "--describe", "--topic", create_topic(run, "topic")).split()

    assert "run-topic" in sasl_routes.compare(scenario)


@each_mechanism
@pytest.mark.parametrize("version", SENDERS)
def test_raw_clients_authenticate(sasl_routes: Routes, mechanism: str, version: int) -> None:
    """Raw clients authenticate in frames or raw tokens, and all their requests get the broker's replies."""

    def scenario(run: Run) -> Any:
        with Wire(run.route.sasl) as wire:
            versions = wire.ask(ApiVersionsRequest(), 0)
            handshake = wire.ask(SaslHandshakeRequest(mechanism=mechanism), version)
            SENDERS[version](wire, MECHANISMS[mechanism](SASL_USER, SASL_PASSWORD))
            metadata = wire.ask(MetadataRequest(topics=()), 4)
            groups = wire.ask(ListGroupsRequest(), 0)
            brokers = [f"{broker.host}:{broker.port}" for broker in metadata.brokers]
            return versions, handshake, brokers, groups.error_code

    _, handshake, brokers, error = sasl_routes.compare(scenario)
    assert handshake.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert (brokers, error) == (["broker"], 0)


def test_handshake_pipelined_with_requests(sasl_routes: Routes) -> None:
    """ApiVersions, a SaslHandshake v0, its token and a first request in one write get all their replies."""

    def scenario(run: Run) -> Any:
        versions, handshake = ApiVersionsRequest(), SaslHandshakeRequest(mechanism="PLAIN")
        metadata = MetadataRequest(topics=())
        with Gathered(run.route.sasl) as wire:
            sent = [wire.send_request(versions, 0), wire.send_request(handshake, 0)]
            wire.send_token(next(plain(SASL_USER, SASL_PASSWORD)))
            sent.append(wire.send_request(metadata, 4))
            wire.flush()
            replies = [wire.receive_reply(versions, 0, sent[0]), wire.receive_reply(handshake, 0, sent[1])]
            token = wire.receive()
            brokers = wire.receive_reply(metadata, 4, sent[2]).brokers
            return replies, token, [f"{broker.host}:{broker.port}" for broker in brokers]

    _, token, brokers = sasl_routes.compare(scenario)
    assert (token, brokers) == (b"", ["broker"])


class Gathered(Wire):
    """A connection that keeps sent bytes until `flush`."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self._kept = b""

    def send(self, data: bytes) -> None:
        self._kept += data

    def flush(self) -> None:
        """Sends all kept bytes in one write."""
        super().send(self._kept)


@pytest.mark.parametrize("version", SENDERS)
def test_unsupported_mechanism_is_refused(sasl_routes: Routes, version: int) -> None:
    """A mechanism that the broker lacks gets error 33, and the connection closes."""

    def scenario(run: Run) -> Any:
        with Wire(run.route.sasl) as wire:
            return wire.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), version), wire.closed()

    refused, closed = sasl_routes.compare(scenario)
    assert (refused.error_code, closed) == (33, True)


@each_mechanism
def test_wrong_raw_token_closes_connection(sasl_routes: Routes, mechanism: str) -> None:
    """A raw token with a wrong password closes the connection."""

    def scenario(run: Run) -> Any:
        with Wire(run.route.sasl) as wire:
            wire.ask(SaslHandshakeRequest(mechanism=mechanism), 0)
            with pytest.raises(ConnectionError):
                send_raw(wire, MECHANISMS[mechanism](SASL_USER, "wrong"))
        return "closed"

    assert sasl_routes.compare(scenario) == "closed"


def test_unauthenticated_request_closes(sasl_routes: Routes) -> None:
    """A request without authentication closes the connection."""

    def scenario(run: Run) -> Any:
        with Wire(run.route.sasl) as wire:
            wire.send_request(ListGroupsRequest(), 0)
            return wire.closed()

    assert sasl_routes.compare(scenario) is True


@pytest.mark.parametrize("version", SENDERS)
def test_misplaced_handshake_is_refused(sasl_routes: Routes, version: int) -> None:
    """A handshake without SASL or after authentication gets ILLEGAL_SASL_STATE, and the next request still gets its
    reply.
    """

    def scenario(run: Run) -> Any:
        with Wire(run.route.plain) as wire:
            without = wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
            seen = [without, wire.ask(ListGroupsRequest(), 0).error_code]
        with Wire(run.route.sasl) as wire:
            wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            send_framed(wire, plain(SASL_USER, SASL_PASSWORD))
            again = wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
            return [*seen, again, wire.ask(ListGroupsRequest(), 0).error_code]

    without, after, again, after_again = sasl_routes.compare(scenario)
    assert (without.error_code, after) == (34, 0)
    assert (again.error_code, after_again) == (34, 0)
