"""deploy/compose follows the Compose specification, fits together, and its broker and sidecar serve a group."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from tests.conformance.librdkafka import consumer, create_topic, poll_until, produce
from tests.conformance.routes import Route, Run
from tests.deploy.compose import (
    COMPOSE,
    FOLDER,
    ROOT,
    SERVICES,
    ComposeBroker,
    OtherPorts,
    listeners,
    server_properties,
)
from tests.deploy.test_rules import promtool
from tests.kafka.processes import host_port
from tests.kafka.sidecar_process import COMMAND, SidecarProcess

SIDECAR: dict[str, Any] = yaml.safe_load((FOLDER / "sidecar.yaml").read_text("utf-8"))
KAFKA = server_properties(SERVICES["kafka"]["environment"])
MADE_BY_THE_USER = {"admin-token"}
WRITABLE_ROOT = {"kafka"}
"""The start script of apache/kafka writes the broker's configuration into the image's own folder."""
GROUP, TOPIC, PARTITIONS = "checkout", "orders", 4


def mounts(service: str) -> dict[str, Path]:
    """The files of this repository that a service mounts, by their path in the container."""
    parts = [each.split(":") for each in SERVICES[service].get("volumes", ())]
    return {target: (FOLDER / source).resolve() for source, target, *_ in parts if source.startswith(".")}


def faults(content: dict[str, Any]) -> list[str]:
    """What the schema of the Compose specification finds wrong."""
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text("utf-8"))
    return [each.message for each in validator_for(schema)(schema).iter_errors(content)]


def test_file_follows_specification() -> None:
    """compose.yml follows the published schema, and a misspelt key does not."""
    assert faults(COMPOSE) == []
    broken = json.loads(json.dumps(COMPOSE))
    broken["services"]["sidecar"]["healtcheck"] = broken["services"]["sidecar"].pop("healthcheck")
    assert faults(broken) != []


@pytest.mark.parametrize("name", SERVICES)
def test_service_has_few_rights(name: str) -> None:
    """No service has capabilities, gains privileges, runs as root or is reachable from other machines."""
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] not in {"0", "root", ""}
    assert service.get("read_only", False) == (name not in WRITABLE_ROOT)
    assert [port for port in service.get("ports", ()) if not port.startswith("127.0.0.1:")] == []
    assert service["healthcheck"]["test"][0] == "CMD"
    assert re.fullmatch(r"[\w/-]+:v?[\d.]+", service["image"]) or "build" in service


def test_dependencies_and_mounts_exist() -> None:
    """Each service that another one waits for, each mounted file, each volume and each secret exists."""
    for service in SERVICES.values():
        assert {*service.get("depends_on", ())} <= {*SERVICES}
        assert {*service.get("secrets", ())} <= {*COMPOSE["secrets"]}
        named = [each.split(":")[0] for each in service.get("volumes", ()) if not each.startswith(".")]
        assert {*named} <= {*COMPOSE["volumes"]}
    assert [str(file) for name in SERVICES for file in mounts(name).values() if not file.is_file()] == []
    secrets = {Path(each["file"]).name for each in COMPOSE["secrets"].values()}
    assert secrets == MADE_BY_THE_USER
    assert all(f"/deploy/compose/{name}\n" in (ROOT / ".gitignore").read_text() for name in secrets)


def test_sidecar_fits_image_and_broker() -> None:
    """The sidecar's user, stage and files are those of the Dockerfile, and its addresses those of the broker."""
    dockerfile, service = (ROOT / "Dockerfile").read_text(), SERVICES["sidecar"]
    assert f" AS {service['build']['target']}\n" in dockerfile
    assert f"\nUSER {service['user']}\n" in dockerfile
    assert service["command"][2] in mounts("sidecar")
    assert SIDECAR["admin_access"]["token_file"] == f"/run/secrets/{service['secrets'][0]}"
    bound, advertised = (listeners(KAFKA[name]) for name in ("listeners", "advertised.listeners"))
    assert service["network_mode"] == "service:kafka"
    assert SIDECAR["upstream"] == bound["CLIENT"]
    assert SIDECAR["upstream"].startswith("127.0.0.1:"), "clients must not reach the broker around the sidecar"
    assert SIDECAR["own_connection"]["address"].split(":")[1] == bound["INTERNAL"].split(":")[1]
    assert KAFKA["inter.broker.listener.name"] == "INTERNAL"
    assert advertised["INTERNAL"].split(":")[0] in SERVICES
    published = [each.rpartition(":")[2] for each in SERVICES["kafka"]["ports"]]
    assert published == [SIDECAR[name].split(":")[1] for name in ("listen", "admin")]
    assert f"{advertised['CLIENT']}:{published[0]}" in SERVICES["kafka"]["ports"]


def test_prometheus_is_provisioned(tmp_path: Path) -> None:
    """promtool accepts the configuration with the mounted rules, and its target is the sidecar's admin port."""
    for target, file in mounts("prometheus").items():
        shutil.copy(file, tmp_path / Path(target).name)
    assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yml")
    [job] = yaml.safe_load((tmp_path / "prometheus.yml").read_text())["scrape_configs"]
    assert job["job_name"] == "group-sidecar"
    assert job["static_configs"][0]["targets"] == [f"kafka:{SIDECAR['admin'].split(':')[1]}"]


def test_grafana_is_provisioned() -> None:
    """All dashboards are where the provider expects them, and the data source is the service of Prometheus."""
    mounted = mounts("grafana")
    provider = yaml.safe_load(mounted["/etc/grafana/provisioning/dashboards/kafka-group-sidecar.yml"].read_text())
    folder = provider["providers"][0]["options"]["path"]
    shown = {file for target, file in mounted.items() if target.startswith(f"{folder}/")}
    assert shown == {*(ROOT / "deploy" / "grafana").glob("*.json")}
    [source] = yaml.safe_load(mounted["/etc/grafana/provisioning/datasources/prometheus.yml"].read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    assert "127.0.0.1:9090:9090" in SERVICES["prometheus"]["ports"]


def test_environment_becomes_properties() -> None:
    """The names of variables become properties as in Kafka's `KafkaDockerWrapper`."""
    given = {"KAFKA_NODE_ID": "1", "KAFKA_A__B___C_D": "x", "CLUSTER_ID": "y"}
    assert server_properties(given) == {"node.id": "1", "a_b-c.d": "x"}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """The broker and the sidecar of the files, as processes on the loopback. Only ports and paths are others."""
    folder, ports = tmp_path_factory.mktemp("compose"), OtherPorts()
    text = ports.in_text((FOLDER / "sidecar.yaml").read_text("utf-8"))
    token = folder / "admin-token"
    token.write_text("a-token-of-the-test\n")
    settings = yaml.safe_load(text.replace(SIDECAR["admin_access"]["token_file"], str(token)))
    listen, upstream = (ports.of(SIDECAR[name]) for name in ("listen", "upstream"))
    settings = {name: value for name, value in settings.items() if name not in {"listen", "upstream", "admin"}}
    with ExitStack() as stack:
        broker = stack.enter_context(ComposeBroker(folder / "broker", ports))
        broker.wait_for_coordinator()
        beside = SidecarProcess(folder, listen=listen, upstream=upstream, settings=settings)
        yield stack.enter_context(beside)
        assert beside.metric("group_sidecar_bypassing_records_total") == 0


def test_group_is_explained(sidecar: SidecarProcess) -> None:
    """Clients reach the broker by the advertised address, and `groups why` explains the rebalances of their group."""
    run = Run(Route("sidecar", sidecar.listen, sidecar.listen), "shop")
    create_topic(run, TOPIC, PARTITIONS)
    produce(run, TOPIC, ["first"])
    with consumer(run, GROUP, [TOPIC], client_id="checkout-1") as first:
        poll_until([first], lambda messages: [each.value() for each in messages] == [b"first"], "the first value")
        with consumer(run, GROUP, [TOPIC], client_id="checkout-2") as second:
            poll_until([first, second], lambda _: bool(first.assignment() and second.assignment()), "two assignments")
        poll_until([first], lambda _: len(first.assignment()) == PARTITIONS, "the assignment of all partitions")
        shown = why(run.name(GROUP), sidecar)
    explained = shown.partition("\n\n")[0]
    assert "once because checkout-2 at 127.0.0.1 left" in explained
    assert "once because a new member joined (checkout-2 at 127.0.0.1)" in explained
    assert "once because a new member joined (checkout-1 at 127.0.0.1)" in explained


def test_health_check_passes(sidecar: SidecarProcess) -> None:
    """The health check of compose.yml reports that the sidecar is ready, from the sidecar's own settings."""
    program, *arguments = SERVICES["sidecar"]["healthcheck"]["test"][1:]
    assert program == COMMAND.name
    file = str(sidecar.file)
    arguments = [file if each == SERVICES["sidecar"]["command"][2] else each for each in arguments]
    assert file in arguments
    done = subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def why(group: str, sidecar: SidecarProcess) -> str:
    """Returns what `group-sidecar groups why` prints on the sidecar's machine, where it needs no token."""
    command = [str(COMMAND), "groups", "why", group, "--sidecar", host_port(sidecar.admin)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
