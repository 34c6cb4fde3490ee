"""The Helm chart: what it renders with several values, what it refuses, and a gateway that it configures.

Helm is built once from source, which takes four minutes of one core. So the tests that need it are `long`.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.certificates import Authority
from tests.conformance.librdkafka import create_topic, leaders_of
from tests.conformance.routes import Route, Run
from tests.deploy.kubernetes_tools import (
    NEWEST,
    OLDEST,
    Manifest,
    dangling,
    faults,
    helm,
    helm_template,
)
from tests.deploy.pod import Pod
from tests.deploy.test_kubernetes import one, pod_of, sidecar_of
from tests.go_tools import BUILD_SECONDS, CommandFailed, run
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import free_addresses, host_port
from tests.kafka.sidecar_process import COMMAND

pytestmark = pytest.mark.timeout(BUILD_SECONDS)  # The first test may have to build a tool.
FOLDER = Path(__file__).parents[2] / "deploy" / "helm"
CHART = FOLDER / "kafka-group-sidecar"
UPSTREAM = {"config": {"upstream": "kafka-bootstrap.kafka.svc:9092"}}
GATEWAYS: dict[str, dict[str, Any]] = {
    "the least": UPSTREAM,
    "all": {
        "image": {"repository": "registry.example/kafka-group-sidecar", "tag": "1", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "config": {
            "listeners": [
                {
                    "name": "SASL",
                    "listen": "0.0.0.0:9192",
                    "upstream": "kafka-bootstrap.kafka.svc:9093",
                    "upstream_tls": {"ca_file": "/etc/ca/ca.crt"},
                }
            ],
            "gateway": {"advertise": "kafka.example", "first_port": 9200},
            "limits": {"buffered_bytes": 2_147_483_648},
        },
        "secrets": [{"secret": "ca", "mountPath": "/etc/ca"}],
        "seccompProfile": {"type": "Localhost", "localhostProfile": "profiles/io-uring.json"},
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
        "replicas": 2,
        "brokerIds": [0, 7],
        "service": {"type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
        "networkPolicy": {
            "enabled": True,
            "clients": [{"podSelector": {}}],
            "monitoring": [{"namespaceSelector": {}}],
        },
        "podDisruptionBudget": {"enabled": False},
        "podAnnotations": {"example.com/owner": "kafka"},
        "nodeSelector": {"disk": "none"},
        "tolerations": [{"key": "kafka", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    },
}
WRONG = {
    "an unknown key": {"replica": 1},
    "an unknown mode": {"mode": "proxy"},
    "text for a number": {"replicas": "one"},
    "a relative path": {"secrets": [{"secret": "ca", "mountPath": "ca"}]},
    "an id twice": {"brokerIds": [1, 1]},
    "an id without a port": {"brokerIds": [56_436]},
    "a service that moves ports": {"service": {"type": "NodePort"}},
    "too little time": {"terminationGracePeriodSeconds": 1},
}


@pytest.mark.parametrize("values", [*WRONG.values()], ids=[*WRONG])
def test_schema_refuses(values: dict[str, Any]) -> None:
    """The schema of the values refuses what the chart cannot use. It accepts the chart's own values."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    own = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(own, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**own, **values}, schema)


def test_schema_has_each_value() -> None:
    """The schema and values.yaml have the same keys, apart from Helm's own `global`."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert {*schema["properties"]} - {"global"} == {*yaml.safe_load((CHART / "values.yaml").read_text())}


def _values(values: dict[str, Any], folder: Path) -> list[str]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return ["--values", str(file)]


def _checked(pod: Pod, container: str = "group-sidecar") -> None:
    pod.mount(container)
    file = pod.here(pod.container(container)["args"][-1])
    assert run([str(COMMAND), "check-config", file]) == f"{file}: ok\n"


@pytest.mark.long
@pytest.mark.parametrize("values", [*WRONG.values()], ids=[*WRONG])
def test_helm_refuses(values: dict[str, Any], tmp_path: Path) -> None:
    """Helm itself refuses these values, by the schema."""
    with pytest.raises(CommandFailed, match="values don't meet the specifications of the schema"):
        helm_template(CHART, *_values({**UPSTREAM, **values}, tmp_path))


@pytest.mark.long
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "config.upstream: a gateway needs"),
        ({"config": {**UPSTREAM["config"], "admin": "0.0.0.0:9999"}}, "use port 9464"),
        ({"replicas": 2, "config": {**UPSTREAM["config"], "answers": {"exclusive": True}}}, "more than one replica"),
    ],
)
def test_gateway_refuses_contradictions(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """Values that would make a gateway that cannot work give a reason."""
    with pytest.raises(CommandFailed, match=reason):
        helm_template(CHART, *_values(values, tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("values", [*GATEWAYS.values()], ids=[*GATEWAYS])
def test_gateway_is_valid(values: dict[str, Any], tmp_path: Path) -> None:
    """The chart passes Helm's strict lint, matches the schemas, and has a configuration that the sidecar accepts."""
    given = _values(values, tmp_path)
    helm("lint", "--strict", "--kube-version", OLDEST, str(CHART), *given)
    manifests = helm_template(CHART, *given)
    for manifest in manifests:
        manifest["metadata"].setdefault("namespace", "kafka")
    assert [fault for each in manifests for version in (OLDEST, NEWEST) for fault in faults(each, version)] == []
    assert dangling(manifests) == []
    config = yaml.safe_load(one(manifests, "ConfigMap")["data"]["sidecar.yaml"])
    listen = config.get("listen") or config["listeners"][0]["listen"]
    ports = {config["gateway"]["first_port"] + number for number in values.get("brokerIds", [0, 1, 2])}
    service = {port["port"] for port in one(manifests, "Service")["spec"]["ports"]}
    assert config["gateway"]["strict_ports"], "the Service has no other ports"
    assert service == {int(listen.rpartition(":")[2]), *ports}
    authority = {"ca": {"ca.crt": Authority(tmp_path / "authority").file.read_bytes()}}
    _checked(Pod(_of_sidecar(manifests), tmp_path / "pod", ports=(), secrets=authority))


def _of_sidecar(manifests: list[Manifest]) -> list[Manifest]:
    return [each for each in manifests if each["kind"] in {"Deployment", "StatefulSet", "ConfigMap"}]


@pytest.mark.long
def test_gateway_equals_the_manifests_for_strimzi(tmp_path: Path) -> None:
    """The chart's container has the same probes, arguments and confinement as the one of deploy/kubernetes."""
    keys = ("args", "securityContext", "startupProbe", "livenessProbe", "readinessProbe")
    chart = one(helm_template(CHART, *_values(UPSTREAM, tmp_path)), "Deployment")["spec"]["template"]
    for folder in ("strimzi", "overlays/sidecar"):
        other = sidecar_of(pod_of(folder))
        assert [sidecar_of(chart)[key] for key in keys] == [other[key] for key in keys]


@pytest.mark.long
def test_probes_use_tls_of_admin_port(tmp_path: Path) -> None:
    """The kubelet uses HTTPS if the admin port has a certificate, and the probes stay the same otherwise."""
    config = {**UPSTREAM["config"], "admin_access": {"certificate_file": "/etc/admin/tls.pem"}}
    secrets = [{"secret": "admin", "mountPath": "/etc/admin"}]
    plain, tls = (
        sidecar_of(one(helm_template(CHART, *_values(values, tmp_path)), "Deployment")["spec"]["template"])
        for values in (UPSTREAM, {"config": config, "secrets": secrets})
    )
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert tls[name].pop("httpGet") == plain[name].pop("httpGet") | {"scheme": "HTTPS"}
        assert tls[name] == plain[name]


@pytest.mark.long
@pytest.mark.parametrize("enabled", [True, False])
def test_own_chart_includes_the_sidecar(enabled: bool, tmp_path: Path) -> None:
    """A chart with a StatefulSet of its own gets the sidecar from three templates, and one value removes it again."""
    shutil.copytree(FOLDER, tmp_path / "helm")
    example = tmp_path / "helm" / "example-brokers"
    helm("dependency", "build", str(example))
    manifests = helm_template(example, "--set", f"kafka-group-sidecar.enabled={str(enabled).lower()}")
    for manifest in manifests:
        manifest["metadata"].setdefault("namespace", "kafka")
    assert [fault for each in manifests for version in (OLDEST, NEWEST) for fault in faults(each, version)] == []
    assert dangling(manifests) == []
    pod = one(manifests, "StatefulSet")["spec"]["template"]
    listeners = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}["KAFKA_LISTENERS"]
    assert listeners.startswith("CLIENT://127.0.0.1:19092" if enabled else "CLIENT://:9092")
    assert bool(pod["spec"]["initContainers"]) == bool(pod["spec"]["volumes"]) == enabled
    if enabled:
        assert sidecar_of(pod)["restartPolicy"] == "Always"
        _checked(Pod(manifests, tmp_path / "pod", ports=()))


@pytest.mark.long
def test_gateway_serves_clients(tmp_path: Path) -> None:
    """The gateway of the chart, started as its container, leads a client to the broker at the port of its id."""
    [bootstrap, node] = free_addresses(2)
    with KafkaBroker(tmp_path / "broker") as broker:
        config = {
            "listen": host_port(bootstrap),
            "upstream": host_port(broker.direct),
            "gateway": {"advertise": "127.0.0.1", "first_port": node[1] - 1},
        }
        manifests = helm_template(CHART, *_values({"config": config, "brokerIds": [1]}, tmp_path))
        assert {port["port"] for port in one(manifests, "Service")["spec"]["ports"]} == {bootstrap[1], node[1]}
        for manifest in manifests:
            manifest["metadata"].setdefault("namespace", "kafka")
        pod = Pod(_of_sidecar(manifests), tmp_path / "pod", ports=(9464,))
        with pod.sidecar() as gateway:
            pod.wait_for("group-sidecar", "startupProbe")
            gateway.wait_until(lambda: pod.probe("group-sidecar", "readinessProbe"))
            topic = create_topic(Run(Route("gateway", bootstrap, bootstrap), "helm"), "orders")
            assert leaders_of(host_port(bootstrap), topic) == {0: 1}
            assert leaders_of(host_port(node), topic) == {0: 1}
            assert gateway.stop(seconds=pod.spec["terminationGracePeriodSeconds"]) == 0
