"""The manifests of deploy/kubernetes: their schemas, their configuration, and what they say about each other."""

import re
from functools import cache
from os.path import relpath
from pathlib import Path

import pytest
import yaml

from deploy.kubernetes.__main__ import TARGET, prometheus_rule
from group_sidecar.proxy.config.loading import load_config
from group_sidecar.proxy.config.model import Config
from tests.certificates import Authority
from tests.deploy.kubernetes_tools import NEWEST, OLDEST, Manifest, dangling, faults, kustomize
from tests.deploy.pod import Pod
from tests.deploy.test_rules import ALERTS
from tests.go_tools import BUILD_SECONDS, run
from tests.kafka.sidecar_process import COMMAND

pytestmark = pytest.mark.timeout(BUILD_SECONDS)  # The first test may have to build a tool.
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
FOLDERS = ("base", "overlays/sidecar", "overlays/sidecar-sasl-tls", "strimzi")
WITH_SIDECAR = FOLDERS[1:]
MONITORING = FOLDER / "components" / "prometheus-operator"
MB = 1_000_000
AFTER_DRAIN_SECONDS = 3
"""What the journal may take after the drain (`limits.drain_seconds` in docs/configuration.md)."""


@cache
def rendered(folder: str) -> list[Manifest]:
    """What kustomize makes of a folder in deploy/kubernetes."""
    return kustomize(FOLDER / folder)


def one(manifests: list[Manifest], *kinds: str) -> Manifest:
    """The only manifest of these kinds."""
    [found] = [each for each in manifests if each["kind"] in kinds]
    return found


def pod_of(folder: str) -> Manifest:
    """The pod template of a folder's workload."""
    template: Manifest = one(rendered(folder), "StatefulSet", "Deployment")["spec"]["template"]
    return template


def sidecar_of(pod: Manifest) -> Manifest:
    """The sidecar's container of a pod."""
    containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    return next(each for each in containers if each["name"] == "group-sidecar")


def settings_of(folder: str, tmp_path: Path) -> Config:
    """The settings in a folder's ConfigMap."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(one(rendered(folder), "ConfigMap")["data"]["sidecar.yaml"])
    return load_config(file)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("folder", FOLDERS)
def test_manifests_match_schemas(folder: str, version: str) -> None:
    """Each rendered manifest matches its schema, and has no field that the API server would refuse."""
    assert [fault for each in rendered(folder) for fault in faults(each, version)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_references_have_targets(folder: str) -> None:
    """Each selector, mount and ConfigMap that a manifest names exists."""
    assert dangling(rendered(folder)) == []


@pytest.mark.parametrize("name", ["pod-monitor.yaml", "prometheus-rule.yaml"])
def test_monitoring_matches_schemas(name: str) -> None:
    """The objects for the Prometheus operator match the operator's CRDs."""
    assert faults(yaml.safe_load((MONITORING / name).read_text()), NEWEST) == []


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment", "Service", "NetworkPolicy", "Kafka", "KafkaUser"])
def test_unknown_fields_are_faults(kind: str) -> None:
    """The check against schemas finds a misspelt field, of Kubernetes and of an operator."""
    manifests = [each for folder in ("overlays/sidecar", "strimzi") for each in rendered(folder)]
    manifest = next(each for each in manifests if each["kind"] == kind)
    [fault] = faults({**manifest, "spec": {**manifest["spec"], "replica": 1}}, NEWEST)
    assert "'replica' was unexpected" in fault


def test_native_sidecars_need_a_newer_kubernetes() -> None:
    """Kubernetes 1.27 would refuse the pod, because an init container had no restartPolicy."""
    assert "restartPolicy" in str(faults(one(rendered("overlays/sidecar"), "StatefulSet"), "1.27"))


def test_prometheus_rule_is_generated() -> None:
    """The PrometheusRule equals the output of its generator, and has all groups of deploy/prometheus."""
    assert TARGET.read_text("utf-8") == prometheus_rule()
    files = (ROOT / "deploy" / "prometheus" / name for name in ("recording_rules.yml", "alerts.yml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    assert yaml.safe_load(TARGET.read_text("utf-8"))["spec"]["groups"] == groups


@pytest.mark.parametrize("folder", WITH_SIDECAR)
def test_pod_monitor_finds_the_sidecar(folder: str) -> None:
    """The PodMonitor selects the pods and a port of theirs, and gives the job the name that the alerts expect."""
    spec = yaml.safe_load((MONITORING / "pod-monitor.yaml").read_text())["spec"]
    [expression] = spec["selector"]["matchExpressions"]
    assert pod_of(folder)["metadata"]["labels"][expression["key"]] in expression["values"]
    [endpoint] = spec["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in sidecar_of(pod_of(folder))["ports"]}
    assert {"targetLabel": "job", "replacement": "group-sidecar"} in endpoint["relabelings"]
    assert 'job="group-sidecar"' in str([alert["expr"] for alert in ALERTS])


def test_component_changes_your_stateful_set_only(tmp_path: Path) -> None:
    """The component adds a container, a volume and a label to the labelled StatefulSet, and leaves all else alone."""
    own = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "mine", "labels": {"kafka-group-sidecar": "inject"}},
        "spec": {
            "serviceName": "mine",
            "selector": {"matchLabels": {"app": "mine"}},
            "template": {
                "metadata": {"labels": {"app": "mine"}},
                "spec": {
                    "terminationGracePeriodSeconds": 600,
                    "initContainers": [{"name": "chown", "image": "busybox"}],
                    "containers": [{"name": "broker", "image": "broker"}],
                    "volumes": [{"name": "data", "emptyDir": {}}],
                },
            },
        },
    }
    other = {**own, "metadata": {"name": "zookeeper"}}
    before = _with_component([own, other], [], tmp_path / "before")
    [mine, zookeeper] = _with_component([own, other], ["components/sidecar"], tmp_path / "after")
    assert zookeeper == before[1]
    assert faults(mine, OLDEST) == []
    template = mine["spec"]["template"]
    assert template["metadata"]["labels"].pop("kafka-group-sidecar") == "sidecar"
    spec = template["spec"]
    added = [each for each in spec["initContainers"] if each["name"] == "group-sidecar"]
    assert [each["restartPolicy"] for each in added] == ["Always"]
    spec["initContainers"].remove(added[0])
    assert [each["name"] for each in spec["volumes"]] == ["group-sidecar-config", "data"]
    del spec["volumes"][0]
    assert mine == before[0]


def _with_component(resources: list[Manifest], components: list[str], folder: Path) -> list[Manifest]:
    folder.mkdir()
    (folder / "resources.yaml").write_text(yaml.safe_dump_all(resources))
    paths = [relpath(FOLDER / each, folder) for each in components]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["resources.yaml"], "components": paths}))
    return kustomize(folder)


def test_way_back_changes_one_setting_of_the_broker() -> None:
    """With and without the sidecar, the broker differs in one setting, and advertises the same addresses."""
    with_sidecar, without = (
        {each["name"]: each.get("value", each) for each in pod_of(folder)["spec"]["containers"][0]["env"]}
        for folder in ("overlays/sidecar", "base")
    )
    bound = with_sidecar.pop("KAFKA_LISTENERS")
    assert bound.replace("CLIENT://127.0.0.1:19092", "CLIENT://:9092") == without.pop("KAFKA_LISTENERS")
    assert with_sidecar == without


SECRETS = {
    "overlays/sidecar": (),
    "overlays/sidecar-sasl-tls": ("kafka-client-tls", "kafka-group-sidecar-user"),
    "strimzi": ("kafka-gateway-tls", "orders-cluster-ca-cert", "group-sidecar"),
}
"""The Secrets that the pods of each folder mount."""


def secrets(folder: Path) -> dict[str, dict[str, bytes]]:
    """The files of all Secrets. Strimzi and cert-manager name them like this."""
    authority = Authority(folder)
    pair = authority.issue("*.kafka.kafka.svc", "kafka-gateway.kafka.svc")
    tls = {"tls.crt": pair.certificate_file.read_bytes(), "tls.key": pair.key_file.read_bytes()}
    user = {"password": b"secret"}
    return {
        "kafka-client-tls": tls,
        "kafka-gateway-tls": tls,
        "orders-cluster-ca-cert": {"ca.crt": authority.file.read_bytes()},
        "kafka-group-sidecar-user": user,
        "group-sidecar": user,
    }


@pytest.mark.parametrize("folder", WITH_SIDECAR)
def test_configuration_is_accepted(folder: str, tmp_path: Path) -> None:
    """`check-config` accepts the configuration of each ConfigMap, with the files of the Secrets in their places."""
    pod = Pod(rendered(folder), tmp_path / "pod", ports=(), secrets=secrets(tmp_path / "certificates"))
    pod.mount("group-sidecar")
    file = pod.here(pod.container("group-sidecar")["args"][-1])
    assert run([str(COMMAND), "check-config", file]) == f"{file}: ok\n"
    mounted = {each["secret"]["secretName"] for each in pod.spec["volumes"] if "secret" in each}
    assert mounted == {*SECRETS[folder]}


@pytest.mark.parametrize("folder", WITH_SIDECAR)
def test_sidecar_is_confined(folder: str) -> None:
    """The container has the user of the image, writes to no file of the image, and has no rights of root."""
    image = re.search(r"--uid (\d+)", (ROOT / "Dockerfile").read_text())
    assert image
    assert sidecar_of(pod_of(folder))["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(image[1]),
        "runAsGroup": int(image[1]),
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(("folder", "brokers"), [("overlays/sidecar", 1), ("strimzi", 3)])
def test_memory_holds_the_configured_limits(folder: str, brokers: int, tmp_path: Path) -> None:
    """The limit of memory is more than the sum in docs/installing/kubernetes.md."""
    limits = settings_of(folder, tmp_path).limits
    bounded = limits.flight_recorder + brokers * limits.remembered_answers + limits.buffered_bytes
    groups, offsets, connections = 10_000 * 10_000, 2 * 200 * MB, 10_000 * 3_000
    needed = 80 * MB + bounded + groups + offsets + connections
    allowed = sidecar_of(pod_of(folder))["resources"]["limits"]["memory"]
    assert needed < int(allowed.removesuffix("Gi")) * 2**30
    assert "cpu" not in sidecar_of(pod_of(folder))["resources"]["limits"]


@pytest.mark.parametrize("folder", WITH_SIDECAR)
def test_kubernetes_waits_for_the_drain(folder: str, tmp_path: Path) -> None:
    """Kubernetes gives the pod more time than the sidecar's drain and the journal take."""
    seconds = settings_of(folder, tmp_path).limits.drain_seconds + AFTER_DRAIN_SECONDS
    assert pod_of(folder)["spec"]["terminationGracePeriodSeconds"] > seconds


def test_gateway_has_a_port_for_each_broker(tmp_path: Path) -> None:
    """The Service and the NetworkPolicy have the ports that the gateway opens for the ids of the node pool."""
    settings = settings_of("strimzi", tmp_path)
    first, last = re.findall(r"\d+", one(rendered("strimzi"), "KafkaNodePool")["metadata"]["annotations"].popitem()[1])
    ports = {settings.gateway.first_port + number for number in range(int(first), int(last) + 1)}
    assert settings.gateway.strict_ports, "the Service has no other ports"
    ports.add(settings.client_listeners[0].listen.port)
    service = one(rendered("strimzi"), "Service")
    assert {port["port"] for port in service["spec"]["ports"]} == ports
    assert f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc" == settings.advertised_host
    allowed = one(rendered("strimzi"), "NetworkPolicy")["spec"]["ingress"][0]["ports"]
    ranges = [range(each["port"], each.get("endPort", each["port"]) + 1) for each in allowed]
    assert {port for each in ranges for port in each} == ports


def test_strimzi_objects_fit_together(tmp_path: Path) -> None:
    """The gateway uses the listener of the Kafka resource and the user of the KafkaUser, and may reach the listener."""
    settings = settings_of("strimzi", tmp_path)
    kafka, user = one(rendered("strimzi"), "Kafka"), one(rendered("strimzi"), "KafkaUser")
    [listener] = kafka["spec"]["kafka"]["listeners"]
    [upstream] = [each.upstream for each in settings.client_listeners]
    name, namespace = kafka["metadata"]["name"], kafka["metadata"]["namespace"]
    assert str(upstream) == f"{name}-kafka-bootstrap.{namespace}.svc:{listener['port']}"
    assert settings.own_connection.sasl
    mechanism = settings.own_connection.sasl.mechanism.lower()
    assert mechanism == listener["authentication"]["type"] == user["spec"]["authentication"]["type"]
    assert settings.own_connection.sasl.username == user["metadata"]["name"]
    assert user["metadata"]["labels"]["strimzi.io/cluster"] == name
    [peer] = listener["networkPolicyPeers"]
    assert peer["podSelector"]["matchLabels"].items() <= pod_of("strimzi")["metadata"]["labels"].items()
