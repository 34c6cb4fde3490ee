"""Real clients authenticate by PLAIN, SCRAM, OAUTHBEARER and delegation tokens (KIP-48) through the sidecar."""

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.librdkafka import QUICK_CONSUMER, create_topic, poll_until
from tests.conformance.routes import Run
from tests.conformance.sasl_forms_broker import (
    MECHANISMS,
    SaslForms,
    commit_offset,
    credentials,
    known_group,
    log_in,
    running_sasl_forms,
    wait_for_own_answer,
)
from tests.kafka.broker import SASL_PASSWORD, SASL_USER
from tests.kafka.processes import GIVE_UP_SECONDS, host_port
from tests.kafka.sasl import SENDERS, bearer, scram_sha_256, scram_sha_512, send_framed, unsecured_token
from tests.kafka.tools import CONSUMER_GROUPS, DELEGATION_TOKENS, kafka_tool
from tests.kafka.wire import Wire

SCRAM_LOGIN = "scram.ScramLoginModule required"
BEARER_LOGIN = "oauthbearer.OAuthBearerLoginModule required"
TOKEN_EXTENSION = ",tokenauth=true"

each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


# Real clients.


def librdkafka_settings(run: Run, mechanism: str) -> dict[str, Any]:
    common = {
        "bootstrap.servers": run.route.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        unsecured = {"enable.sasl.oauthbearer.unsecure.jwt": True}
        return {**common, **unsecured, "sasl.oauthbearer.config": f"principal={SASL_USER}"}
    return {**common, "sasl.username": SASL_USER, "sasl.password": SASL_PASSWORD}


@each_mechanism
def test_librdkafka_consumes_in_group(sasl_forms: SaslForms, mechanism: str) -> None:
    """librdkafka produces, consumes in a group and describes the group by each mechanism."""

    def scenario(run: Run) -> Any:
        settings, group = librdkafka_settings(run, mechanism), run.name("group")
        topic = create_topic(run, "topic")
        producer = Producer(settings)
        producer.produce(topic, "value")
        assert producer.flush(GIVE_UP_SECONDS) == 0
        client = Consumer({**settings, **QUICK_CONSUMER, "group.id": group})
        try:
            client.subscribe([topic])
            [message] = poll_until([client], bool, "the value")
            client.commit(asynchronous=False)
            asker = AdminClient(settings)  # Without a reference, the client would be deleted before its answer arrives.
            described = asker.describe_consumer_groups([group])[group].result(GIVE_UP_SECONDS)
            return message.value(), described.state.name, [member.client_id for member in described.members]
        finally:
            client.close()

    assert sasl_forms.routes.compare(scenario) == (b"value", "STABLE", ["rdkafka"])


class UnsecuredTokens(AbstractTokenProvider):  # type: ignore[misc]
    """Gives kafka-python a new token at each authentication."""

    def token(self) -> str:
        return unsecured_token(SASL_USER)


def kafka_python_settings(run: Run, mechanism: str) -> dict[str, Any]:
    common = {
        "bootstrap_servers": run.route.sasl_bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**common, "sasl_oauth_token_provider": UnsecuredTokens()}
    return {**common, "sasl_plain_username": SASL_USER, "sasl_plain_password": SASL_PASSWORD}


@each_mechanism
def test_kafka_python_consumes_in_group(sasl_forms: SaslForms, mechanism: str) -> None:
    """kafka-python produces, consumes in a group and describes the group by each mechanism."""

    def scenario(run: Run) -> Any:
        settings, group, topic = kafka_python_settings(run, mechanism), run.name("group"), create_topic(run, "topic")
        producer = KafkaProducer(**settings)
        reader = KafkaConsumer(topic, group_id=group, auto_offset_reset="earliest", **settings)
        asker = KafkaAdminClient(**settings)
        try:
            producer.send(topic, b"value").get(GIVE_UP_SECONDS)
            message = next(reader)
            reader.commit()
            described = asker.describe_groups([group])[group]
            return message.value, described["group_state"], len(described["members"])
        finally:
            for client in (producer, reader, asker):
                client.close()

    assert sasl_forms.routes.compare(scenario) == (b"value", "Stable", 1)


def java_settings(file: Path, mechanism: str, login: str) -> Path:
    """Writes the properties of a Java client. `login`: its login module with options."""
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{login};\n"
    )
    return file


@pytest.mark.parametrize(
    ("mechanism", "login"),
    [
        ("SCRAM-SHA-512", f'{SCRAM_LOGIN} username="{SASL_USER}" password="{SASL_PASSWORD}"'),
        ("OAUTHBEARER", f'{BEARER_LOGIN} unsecuredLoginStringClaim_sub="{SASL_USER}"'),
    ],
)
def test_java_describes_group(sasl_forms: SaslForms, mechanism: str, login: str, tmp_path: Path) -> None:
    """Java's groups tool describes a group by the mechanisms that no other test has."""
    file = java_settings(tmp_path / "client.properties", mechanism, login)

    def scenario(run: Run) -> Any:
        place = ("--bootstrap-server", run.route.sasl_bootstrap, "--command-config", str(file))
        return kafka_tool(CONSUMER_GROUPS, *place, "--describe", "--group", commit_offset(run)).split()

    assert {"run-group", "run-topic"} <= set(sasl_forms.routes.compare(scenario))


def test_kafka_3_9_takes_tokens(tmp_path: Path) -> None:
    """Kafka 3.9 accepts the tokens of a client and of the sidecar, and the sidecar then answers the client."""
    with running_sasl_forms(tmp_path, "3.9.1") as old, Wire(old.broker.sasl_sidecar) as wire:
        log_in(wire, "OAUTHBEARER")
        wait_for_own_answer(old, wire, known_group(old))


# Raw clients.


@each_mechanism
@pytest.mark.parametrize("version", SENDERS)
def test_raw_client_authenticates(sasl_forms: SaslForms, mechanism: str, version: int) -> None:
    """Raw clients authenticate by frames or raw tokens, and their later requests get the broker's replies."""

    def scenario(run: Run) -> Any:
        with Wire(run.route.sasl) as wire:
            handshake = wire.ask(SaslHandshakeRequest(mechanism=mechanism), version)
            SENDERS[version](wire, credentials(mechanism))
            return handshake, [wire.ask(ListGroupsRequest(), 0).error_code for _ in range(2)]

    handshake, errors = sasl_forms.routes.compare(scenario)
    assert (set(handshake.mechanisms), errors) == (set(MECHANISMS), [0, 0])


@pytest.mark.parametrize("version", SENDERS)
def test_refused_bearer_token_gets_challenge(sasl_forms: SaslForms, version: int) -> None:
    """An expired token gets the broker's error challenge, and the reply to the challenge gets the broker's refusal."""

    def scenario(run: Run) -> Any:
        with Wire(run.route.sasl) as wire:
            wire.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), version)
            exchange = bearer(unsecured_token(SASL_USER, -60))
            first = next(exchange)
            if version == 0:
                wire.send_token(first)
                challenge = wire.receive()
                wire.send_token(exchange.send(challenge))
                return challenge, wire.closed()
            challenge = wire.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
            refusal = wire.ask(SaslAuthenticateRequest(auth_bytes=exchange.send(challenge.auth_bytes)), 2)
            return challenge.auth_bytes, (challenge.error_code, refusal, wire.closed())

    challenge, _ = sasl_forms.routes.compare(scenario)
    assert b'"status":"invalid_token"' in challenge


# Authentication of a session for a second time (KIP-368).


# Delegation tokens (KIP-48).


def test_delegation_token(sasl_forms: SaslForms, tmp_path: Path) -> None:
    """A token that a client creates through the sidecar authenticates clients through the sidecar by SCRAM."""
    token_id, secret = created_token(sasl_forms, tmp_path)
    question = known_group(sasl_forms)
    for mechanism, exchange in (("SCRAM-SHA-256", scram_sha_256), ("SCRAM-SHA-512", scram_sha_512)):
        with Wire(sasl_forms.broker.sasl_sidecar) as wire:
            assert wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
            send_framed(wire, exchange(token_id, secret, TOKEN_EXTENSION))
            wait_for_own_answer(sasl_forms, wire, question)
    properties = f'username="{token_id}" password="{secret}" tokenauth="true"'
    file = java_settings(tmp_path / "bearer.properties", "SCRAM-SHA-256", f"{SCRAM_LOGIN} {properties}")
    place = ("--bootstrap-server", host_port(sasl_forms.broker.sasl_sidecar), "--command-config", str(file))
    [group] = question.groups
    assert group in kafka_tool(CONSUMER_GROUPS, *place, "--describe", "--group", group)


@pytest.mark.parametrize(("extension", "secret"), [("", "any"), (TOKEN_EXTENSION, "wrong")])
def test_unknown_delegation_token_is_refused(sasl_forms: SaslForms, extension: str, secret: str) -> None:
    """An unknown user name or token id is refused directly and through the sidecar."""

    def scenario(run: Run) -> Any:
        with Wire(run.route.sasl) as wire:
            wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            first = next(scram_sha_256("no-such-id", secret, extension))
            return wire.ask(SaslAuthenticateRequest(auth_bytes=first), 2), wire.closed()

    refusal, closed = sasl_forms.routes.compare(scenario)
    assert (refusal.error_code, closed) == (58, True)


def created_token(sasl_forms: SaslForms, folder: Path) -> tuple[str, str]:
    """Creates a delegation token through the sidecar by Kafka's tool. Returns its id and its secret."""
    properties = f'username="{SASL_USER}" password="{SASL_PASSWORD}"'
    file = java_settings(folder / "creator.properties", "SCRAM-SHA-512", f"{SCRAM_LOGIN} {properties}")
    place = ("--bootstrap-server", host_port(sasl_forms.broker.sasl_sidecar), "--command-config", str(file))
    shown = kafka_tool(DELEGATION_TOKENS, *place, "--create", "--max-life-time-period", "-1")
    [found] = re.findall(r"^([\w-]{22})\s+(\S{20,})\s", shown, re.MULTILINE)
    return found[0], found[1]
