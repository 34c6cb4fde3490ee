"""`check-config --connect` with a real broker that has an authorizer: the rights of the sidecar's user."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AclBinding, ResourcePatternType

from group_sidecar.codecs.offsets_topic import OFFSETS_TOPIC
from tests.conformance.authorized_broker import (
    ADMIN,
    ALLOW,
    DESCRIBE,
    READ,
    TOPIC,
    administrator,
    authorizing,
    done,
    password,
    prepare,
)
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS, Address, host_port
from tests.kafka.sidecar_process import COMMAND

DESCRIBER, READER = "bob", "erin"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker on which one user may describe the log of the coordinator, and another may read it."""
    folder = tmp_path_factory.mktemp("check-config")
    with KafkaBroker(folder / "broker", properties=authorizing(), sasl=True) as broker:
        prepare(broker)
        rights = {DESCRIBER: DESCRIBE, READER: READ}
        rules = [
            AclBinding(TOPIC, OFFSETS_TOPIC, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, ALLOW)
            for user, operation in rights.items()
        ]
        admin = administrator(broker.sasl_direct)  # The client's requests end when nothing refers to the client.
        done(admin.create_acls(rules))
        yield broker


def check_config(folder: Path, upstream: Address, user: str | None) -> subprocess.CompletedProcess[str]:
    file = folder / "sidecar.yaml"
    settings = {"listen": "127.0.0.1:0", "upstream": host_port(upstream)}
    sasl = {"mechanism": "PLAIN", "username": user, "password": password(user or "")}
    file.write_text(yaml.safe_dump({**settings, **({"own_connection": {"sasl": sasl}} if user else {})}))
    command = [str(COMMAND), "check-config", str(file), "--connect"]
    return subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)


@pytest.mark.parametrize("user", [ADMIN, READER])
def test_user_who_may_read(broker: KafkaBroker, tmp_path: Path, user: str) -> None:
    """A user with the right to read the log makes the command succeed."""
    checked = check_config(tmp_path, broker.sasl_client, user)
    assert (checked.returncode, checked.stderr) == (0, "")
    _, upstream, own, _ = checked.stdout.splitlines()
    address = host_port(broker.sasl_client)
    assert upstream.startswith(f"upstream: {address} answers (Kafka ApiVersions 0-")
    assert own.startswith(f"own_connection: {address} answers (Kafka ApiVersions 0-")
    assert own.endswith(f"), and the sidecar may read {OFFSETS_TOPIC}")


@pytest.mark.parametrize(("user", "rights"), [("nobody", "DESCRIBE and READ"), (DESCRIBER, "READ")])
def test_user_without_rights(broker: KafkaBroker, tmp_path: Path, user: str, rights: str) -> None:
    """The rights that a user lacks are named, and the command ends with status 1."""
    checked = check_config(tmp_path, broker.sasl_client, user)
    address = host_port(broker.sasl_client)
    assert (checked.returncode, checked.stderr) == (
        1,
        f"group-sidecar: own_connection: {address} answers, and the sidecar's user lacks {rights} on {OFFSETS_TOPIC}\n",
    )


def test_controller_is_no_upstream(broker: KafkaBroker, tmp_path: Path) -> None:
    """The port of a controller fails, although it answers ApiVersions. The line names the likely mix-up."""
    checked = check_config(tmp_path, broker.controller, None)
    controller = f"{host_port(broker.controller)} speaks Kafka without Metadata: is it the listener of a controller?"
    assert (checked.returncode, checked.stderr.splitlines()) == (
        1,
        [f"group-sidecar: upstream: {controller}", f"group-sidecar: own_connection: {controller}"],
    )


def test_sidecar_without_user(broker: KafkaBroker, tmp_path: Path) -> None:
    """At a listener that requires SASL, the setting of the credentials is named."""
    checked = check_config(tmp_path, broker.sasl_client, None)
    assert checked.returncode == 1
    [line] = checked.stderr.splitlines()
    assert line.startswith(f"group-sidecar: own_connection: {host_port(broker.sasl_client)} ")
    assert line.endswith(": it may require SASL (own_connection.sasl)")
