"""The pod of the rendered StatefulSet, run in the order of Kubernetes: a real sidecar, a real broker, real clients."""

import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.certificates import Authority
from tests.conformance.librdkafka import QUICK_CONSUMER, consumer, create_topic, poll_until, produce
from tests.conformance.routes import Route, Run
from tests.deploy.compose import server_properties
from tests.deploy.kubernetes_tools import kustomize
from tests.deploy.pod import Pod
from tests.go_tools import BUILD_SECONDS
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS, host_port

pytestmark = pytest.mark.timeout(BUILD_SECONDS)  # The first test may have to build a tool.
OVERLAYS = Path(__file__).parents[2] / "deploy" / "kubernetes" / "overlays"
PORTS = CLIENT, BEHIND, INTERNAL, CONTROLLER, ADMIN = 9092, 19092, 19094, 19093, 9464
HOSTS = ("kafka-0.kafka.kafka.svc",)
BROKER, SIDECAR = "kafka", "group-sidecar"
VALUES = ["one", "two", "three"]


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    """The first pod of the StatefulSet."""
    return Pod(kustomize(OVERLAYS / "sidecar"), tmp_path / "pod", ports=PORTS, hosts=HOSTS)


def properties(pod: Pod) -> dict[str, str]:
    """The broker's properties, as its image makes them of the environment. The other brokers do not vote here."""
    found = server_properties({name: pod.here(value) for name, value in pod.environment(BROKER).items()})
    found["controller.quorum.voters"] = found["controller.quorum.voters"].partition(",")[0]
    return found


def test_pod_starts_serves_and_stops(pod: Pod, tmp_path: Path) -> None:
    """The broker starts after the sidecar listens, clients are served through the sidecar, and it stops last."""
    with pod.sidecar() as sidecar:
        pod.wait_for(SIDECAR, "startupProbe")
        # Without its broker, the sidecar is alive and not ready. Kubernetes starts the broker now.
        assert pod.probe(SIDECAR, "livenessProbe")
        assert not pod.probe(SIDECAR, "readinessProbe")
        assert not pod.probe(BROKER, "readinessProbe")
        broker = KafkaBroker(tmp_path / "broker", properties=properties(pod), direct=pod.address[INTERNAL])
        with broker:
            pod.wait_for(BROKER, "startupProbe")
            sidecar.wait_until(lambda: pod.probe(SIDECAR, "readinessProbe"))
            assert pod.probe(BROKER, "readinessProbe")
            run = Run(Route("sidecar", pod.address[CLIENT], pod.address[CLIENT]), "pod")
            create_topic(run, "orders")
            produce(run, "orders", VALUES)
            with consumer(run, "billing", ["orders"]) as member:
                messages = poll_until([member], lambda found: len(found) == len(VALUES), "all messages")
                member.commit(message=messages[-1], asynchronous=False)
            assert [message.value() for message in messages] == [value.encode() for value in VALUES]
            # Kubernetes stops the broker first. The sidecar's probes go on meanwhile.
            broker.stop()
            assert sidecar.running.poll() is None
            assert pod.probe(SIDECAR, "livenessProbe")
        sidecar.wait_until(lambda: not pod.probe(SIDECAR, "readinessProbe"))
        assert sidecar.stop(seconds=pod.spec["terminationGracePeriodSeconds"]) == 0


def test_broker_has_no_listener_for_clients_of_its_own(pod: Pod) -> None:
    """CLIENT is bound to the loopback of the pod, and its advertised address is that of the sidecar."""
    environment = pod.environment(BROKER)
    assert environment["KAFKA_LISTENERS"].split(",")[0] == f"CLIENT://127.0.0.1:{BEHIND}"
    assert environment["KAFKA_ADVERTISED_LISTENERS"].split(",") == [
        f"CLIENT://kafka-0.kafka.kafka.svc:{CLIENT}",
        f"INTERNAL://kafka-0.kafka.kafka.svc:{INTERNAL}",
    ]


def test_pod_with_secrets_serves_and_reads_the_log(tmp_path: Path) -> None:
    """A client with TLS and SCRAM is served, and the sidecar's own user reads the log of the coordinator."""
    authority = Authority(tmp_path / "authority")
    pair = authority.issue("*.kafka.kafka.svc", "kafka-bootstrap.kafka.svc", "127.0.0.1")
    secrets = {
        "kafka-client-tls": {
            "tls.crt": pair.certificate_file.read_bytes(),
            "tls.key": pair.key_file.read_bytes(),
        },
        "kafka-group-sidecar-user": {"password": b"of the sidecar"},
    }
    manifests = kustomize(OVERLAYS / "sidecar-sasl-tls")
    pod = Pod(manifests, tmp_path / "pod", ports=PORTS, hosts=HOSTS, secrets=secrets)
    broker = KafkaBroker(tmp_path / "broker", properties=properties(pod), direct=pod.address[INTERNAL])
    with pod.sidecar() as sidecar, broker:
        _add_user(pod, "group-sidecar", b"of the sidecar")
        _add_user(pod, "alice", b"of alice")
        create_topic(Run(Route("internal", pod.address[INTERNAL], pod.address[INTERNAL]), "pod"), "orders")
        settings = {
            "bootstrap.servers": host_port(pod.address[CLIENT]),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.file),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "of alice",
        }
        producer = Producer(settings)
        producer.produce("pod-orders", "one")
        assert producer.flush(GIVE_UP_SECONDS) == 0
        member = Consumer({**settings, "group.id": "billing", **QUICK_CONSUMER})
        try:
            member.subscribe(["pod-orders"])
            [message] = poll_until([member], bool, "the message")
            member.commit(message=message, asynchronous=False)
        finally:
            member.close()
        sidecar.wait_until(lambda: _reads_the_log(pod))


def _add_user(pod: Pod, name: str, password: bytes) -> None:
    """Adds a user of SCRAM at the broker's own listener."""
    admin = AdminClient({"bootstrap.servers": host_port(pod.address[INTERNAL])})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    [done] = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, password)]).values()
    done.result(GIVE_UP_SECONDS)


def _reads_the_log(pod: Pod) -> bool:
    try:
        with urlopen(f"http://{host_port(pod.address[ADMIN])}/readyz", timeout=GIVE_UP_SECONDS) as reply:
            [status] = json.load(reply)["offsets_log"].values()
    except HTTPError:  # The broker knows the sidecar's user only since a moment ago.
        return False
    return bool(status["owned"]["count"] and not status["loading"]["count"])
