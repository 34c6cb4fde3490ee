"""The pod of the rendered StatefulSet, run in the order of Kubernetes: a real sidecar, a real broker, real clients."""

from pathlib import Path

import pytest

from tests.conformance.librdkafka import consumer, create_topic, poll_until, produce
from tests.conformance.routes import Route, Run
from tests.deploy.kubernetes_tools import kustomize
from tests.deploy.pod import Pod
from tests.kafka.broker import KafkaBroker

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes" / "overlays" / "sidecar"
CLIENT, BEHIND, INTERNAL, CONTROLLER, ADMIN = 9092, 19092, 19094, 19093, 9464
BROKER, SIDECAR = "kafka", "group-sidecar"
VALUES = ["one", "two", "three"]


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    """The first pod of the StatefulSet."""
    ports = (CLIENT, BEHIND, INTERNAL, CONTROLLER, ADMIN)
    return Pod(kustomize(FOLDER), tmp_path / "pod", ports=ports, hosts=("kafka-0.kafka.kafka.svc",))


def properties(pod: Pod) -> dict[str, str]:
    """The broker's properties, as its image makes them of the environment. The other brokers do not vote here."""
    names = {name.removeprefix("KAFKA_"): value for name, value in pod.environment(BROKER).items() if "KAFKA_" in name}
    found = {
        name.replace("___", "-").replace("__", "+").replace("_", ".").replace("+", "_").lower(): pod.here(value)
        for name, value in names.items()
    }
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
