"""Real clients and a real broker with TLS on one side of the sidecar, on both sides, or from client to broker.

One sidecar has four listeners before one broker:

- SECURE: TLS with clients, who need a certificate, and TLS to the broker, which needs the sidecar's certificate
- SASL: TLS with clients and to the broker, with SASL inside
- EDGE: TLS with clients, plain to the broker
- BLIND: TLS between client and broker, which passes the sidecar unread
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPythonPartition

from tests.certificates import Authority, Certificate
from tests.kafka.broker import SASL_PASSWORD, SASL_USER, KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS, Address, host_port
from tests.kafka.sidecar_process import SidecarProcess

PROTOCOLS = {
    "CLIENT": "SSL",
    "DIRECT": "PLAINTEXT",
    "SASL_CLIENT": "SASL_SSL",
    "SASL_DIRECT": "SASL_PLAINTEXT",
    "EDGE": "PLAINTEXT",
    "BLIND": "SSL",
    "CONTROLLER": "PLAINTEXT",
}
RECORDS = [b"x" * size for size in (0, 1, 100, 20_000, 300_000)] * 4


@dataclass(frozen=True)
class Secured:
    """The broker and the sidecar, with the settings and certificates of clients."""

    broker: KafkaBroker
    sidecar: SidecarProcess
    authority: Authority
    client: Certificate

    def address(self, listener: str) -> Address:
        """Returns where clients of a listener connect."""
        broker = self.broker
        return {"SECURE": broker.sidecar, "SASL": broker.sasl_sidecar, **broker.proxies}[listener]

    def settings(self, listener: str) -> dict[str, Any]:
        """Returns the settings of a librdkafka client of a listener."""
        settings = {
            "bootstrap.servers": host_port(self.address(listener)),
            "security.protocol": "sasl_ssl" if listener == "SASL" else "ssl",
            "ssl.ca.location": str(self.authority.file),
        }
        if listener == "SECURE":
            settings["ssl.certificate.location"] = str(self.client.certificate_file)
            settings["ssl.key.location"] = str(self.client.key_file)
        if listener == "SASL":
            settings |= {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": SASL_USER, "sasl.password": SASL_PASSWORD}
        return settings


LISTENERS = ("SECURE", "SASL", "EDGE", "BLIND")
TERMINATED = ("SECURE", "SASL", "EDGE")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "ca")
    server, client = authority.issue("127.0.0.1"), authority.issue("client.example", common_name="alice")
    keystore = folder / "broker.pem"
    keystore.write_bytes(server.java_keystore)
    properties = {
        "listener.security.protocol.map": ",".join(f"{name}:{how}" for name, how in PROTOCOLS.items()),
        "listener.name.client.ssl.client.auth": "required",
    }
    for name in ("client", "sasl_client", "blind"):
        prefix = f"listener.name.{name}.ssl"
        properties |= {f"{prefix}.keystore.type": "PEM", f"{prefix}.keystore.location": str(keystore)}
        properties |= {f"{prefix}.truststore.type": "PEM", f"{prefix}.truststore.location": str(authority.file)}
    with KafkaBroker(folder / "broker", properties=properties, sasl=True, proxies=("EDGE", "BLIND")) as broker:
        broker.wait_for_coordinator()
        settings = {
            "listeners": listeners(broker, authority, server),
            "own_connection": {"address": host_port(broker.direct)},
            "answers": {"exclusive": True, "verify": 1},
        }
        sidecar = SidecarProcess(folder / "sidecar", listen=broker.sidecar, upstream=broker.client, settings=settings)
        with sidecar:
            sidecar.wait_for_log()
            yield Secured(broker, sidecar, authority, client)


def listeners(broker: KafkaBroker, authority: Authority, server: Certificate) -> list[dict[str, Any]]:
    """Returns the settings of the listeners. The sidecar has the broker's certificate, and uses it on both sides."""
    trusted = {"ca_file": str(authority.file)}
    mutual = {**server.settings, "client_auth": "required", "client_ca_file": str(authority.file)}

    def one(name: str, listen: Address, upstream: Address, **tls: Any) -> dict[str, Any]:
        return {"name": name, "listen": host_port(listen), "upstream": host_port(upstream), **tls}

    edge, blind = ((broker.proxies[name], broker.upstreams[name]) for name in ("EDGE", "BLIND"))
    return [
        one("SECURE", broker.sidecar, broker.client, tls=mutual, upstream_tls={**trusted, **server.settings}),
        one("SASL", broker.sasl_sidecar, broker.sasl_client, tls=server.settings, upstream_tls=trusted),
        one("EDGE", *edge, tls=server.settings),
        one("BLIND", *blind),
    ]


def exchange(secured: Secured, listener: str, name: str) -> None:
    """Has librdkafka produce to a topic of this name, and consume, commit and describe a group of this name."""
    settings = secured.settings(listener)
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(GIVE_UP_SECONDS)
    producer = Producer({**settings, "enable.idempotence": True})
    for value in RECORDS:
        producer.produce(name, value, partition=0)
    assert producer.flush(GIVE_UP_SECONDS) == 0
    consumer = Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([name])
        values: list[bytes | None] = []
        while len(values) < len(RECORDS):
            message = consumer.poll(GIVE_UP_SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            values.append(message.value())
        assert values == RECORDS
        consumer.commit(asynchronous=False)
        [committed] = consumer.committed([TopicPartition(name, 0)], GIVE_UP_SECONDS)
        assert committed.offset == len(RECORDS)
        described = admin.describe_consumer_groups([name])[name].result(GIVE_UP_SECONDS)
        assert [member.client_id for member in described.members] == ["rdkafka"]
    finally:
        consumer.close()


@pytest.mark.parametrize("listener", LISTENERS)
def test_librdkafka_through_tls(secured: Secured, listener: str) -> None:
    """librdkafka produces, consumes in a group, commits and describes the group through every listener."""
    exchange(secured, listener, f"rd-{listener}")


@pytest.mark.parametrize("listener", ["SECURE", "EDGE", "BLIND"])
def test_kafka_python_through_tls(secured: Secured, listener: str) -> None:
    """kafka-python produces, consumes and commits through the listeners that use TLS alone."""
    topic, settings = f"py-{listener}", secured.settings(listener)
    place = {
        "bootstrap_servers": settings["bootstrap.servers"],
        "security_protocol": "SSL",
        "ssl_cafile": settings["ssl.ca.location"],
        "ssl_certfile": settings.get("ssl.certificate.location"),
        "ssl_keyfile": settings.get("ssl.key.location"),
    }
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(GIVE_UP_SECONDS)
    producer = KafkaProducer(**place)
    for value in RECORDS:
        producer.send(topic, value, partition=0)
    producer.close(GIVE_UP_SECONDS)
    partition = KafkaPythonPartition(topic, 0)
    consumer = KafkaConsumer(**place, group_id=f"py-group-{listener}", consumer_timeout_ms=GIVE_UP_SECONDS * 1000)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    values = [next(consumer).value for _ in RECORDS]
    assert values == RECORDS
    consumer.commit({partition: OffsetAndMetadata(len(RECORDS), "", -1)})
    assert consumer.committed(partition) == len(RECORDS)
    consumer.close(autocommit=False)


def test_groups_of_all_listeners_are_one_coordinators(secured: Secured) -> None:
    """Groups of the listeners whose TLS ends at the sidecar are answered from one copy, with the clients' own hosts."""
    for listener in TERMINATED:
        exchange(secured, listener, f"one-{listener}")
        assert {f"one-{each}" for each in TERMINATED[: TERMINATED.index(listener) + 1]} <= set(
            groups_at(secured, "EDGE")
        )
    assert secured.sidecar.metric("group_sidecar_mirror_answers_total", api="OffsetFetch") > 0
    assert secured.sidecar.metric("group_sidecar_mirror_answers_total", api="DescribeGroups") > 0
    assert secured.sidecar.metric("group_sidecar_mirror_divergences_total") == 0


def groups_at(secured: Secured, listener: str) -> list[str]:
    admin = AdminClient(secured.settings(listener))
    return [each.group_id for each in admin.list_consumer_groups().result(GIVE_UP_SECONDS).valid]


def test_handshakes_are_counted_by_listener(secured: Secured) -> None:
    """Handshakes are counted by listener and side, and TLS that passes unread is counted apart."""

    def count(listener: str, side: str) -> float:
        return secured.sidecar.metric("group_sidecar_tls_handshakes_total", listener=listener, side=side)

    def failed() -> list[float]:
        reasons = ("certificate", "plaintext", "protocol", "timeout")
        name = "group_sidecar_tls_handshake_failures_total"
        return [secured.sidecar.metric(name, reason=reason) for reason in reasons]

    failed_before = failed()
    for listener in LISTENERS:
        groups_at(secured, listener)
    counted = {name: (count(name, "client") > 0, count(name, "upstream") > 0) for name in LISTENERS}
    assert counted == {"SECURE": (True, True), "SASL": (True, True), "EDGE": (True, False), "BLIND": (False, False)}
    assert secured.sidecar.metric("group_sidecar_tls_connections_total", listener="BLIND") > 0
    assert failed() == failed_before
    assert secured.sidecar.metric("group_sidecar_client_connections_closed_total", reason="tls_failed") == 0


def test_client_without_certificate_is_refused(secured: Secured, tmp_path: Path) -> None:
    """A client without a certificate does not pass the listener that requires one."""
    settings = secured.settings("SECURE") | {"ssl.certificate.location": "", "ssl.key.location": ""}
    admin = AdminClient({**settings, "socket.timeout.ms": 2_000})
    with pytest.raises(Exception, match=r"(?i)transport|timed out|ssl"):
        admin.list_topics(timeout=2)
    reasons = {"side": "client", "reason": "certificate", "listener": "SECURE"}
    assert secured.sidecar.metric("group_sidecar_tls_handshake_failures_total", **reasons) > 0
