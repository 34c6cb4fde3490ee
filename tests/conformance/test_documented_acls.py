"""The commands in docs/security.md grant the rights that the sidecar's own user needs."""

import shlex
from pathlib import Path

from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from tests.conformance.authorized_broker import (
    ADMIN,
    CLUSTER,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    administrator,
    authorizing,
    password,
    prepare,
)
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS, host_port
from tests.kafka.tools import ACLS, kafka_tool
from tests.scripts.documents import blocks

PROGRAM = "kafka-acls.sh"
EXPECTED = {
    (TOPIC, "__consumer_offsets", DESCRIBE),
    (TOPIC, "__consumer_offsets", READ),
    (CLUSTER, "kafka-cluster", DESCRIBE),
    (TOPIC, "*", DESCRIBE),
    (GROUP, "*", DESCRIBE),
}


def test_documented_commands_grant_rights(tmp_path: Path) -> None:
    """Kafka's tool runs the documented commands, and the broker then has exactly the documented rights."""
    commands = [
        line
        for block in blocks("docs/security.md")
        for line in block.text.replace("\\\n", "").splitlines()
        if line.startswith(f"{PROGRAM} ")
    ]
    properties = tmp_path / "admin.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="{ADMIN}" password="{password(ADMIN)}";\n'
    )
    with KafkaBroker(tmp_path / "broker", properties=authorizing(), sasl=True) as broker:
        prepare(broker)
        given = {"BROKER": host_port(broker.sasl_direct), "admin.properties": str(properties)}
        for command in commands:
            kafka_tool(ACLS, *(given.get(word, word) for word in shlex.split(command)[1:]))
        some = (ResourceType.ANY, None, ResourcePatternType.ANY, "User:sidecar", None)
        every = AclBindingFilter(*some, AclOperation.ANY, AclPermissionType.ANY)  # type: ignore[arg-type]
        admin = administrator(broker.sasl_direct)  # Without a name, it would end before its reply arrives.
        found = admin.describe_acls(every).result(GIVE_UP_SECONDS)
    assert {(acl.restype, acl.name, acl.operation) for acl in found} == EXPECTED
