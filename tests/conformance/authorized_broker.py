"""A broker with an authorizer, its users and ACLs, and a sidecar in front of each of its listeners."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsResponse
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchResponse,
)
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from group_sidecar.codecs.schema import Struct
from tests.conformance.test_exclusive import by_id, in_order, members_by_id
from tests.kafka.broker import SASL_PASSWORD, KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS, Address, host_port
from tests.kafka.sasl import plain, scram_sha_256, send_framed
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

ADMIN, ANONYMOUS = "admin", "ANONYMOUS"
USERS = ("alice", "bob", "carol", "dave", "erin", "frank", "nobody")
TOPICS = ("t1", "t2")
GROUPS = ("a", "b", "c", "frank")
OPEN_GROUPS = ("open-a", "open-b")

DESCRIBE, READ = AclOperation.DESCRIBE, AclOperation.READ
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
GROUP, TOPIC, CLUSTER = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.BROKER
RULES: tuple[tuple[str, AclPermissionType, AclOperation, ResourceType, str], ...] = (
    ("alice", ALLOW, DESCRIBE, GROUP, "a"),
    ("alice", ALLOW, DESCRIBE, TOPIC, "t1"),
    ("alice", ALLOW, DESCRIBE, TOPIC, "t2"),
    ("bob", ALLOW, DESCRIBE, GROUP, "b"),
    ("bob", ALLOW, DESCRIBE, TOPIC, "t2"),
    # A user who may describe the cluster can list all groups, but may not describe any of them.
    ("carol", ALLOW, DESCRIBE, CLUSTER, "kafka-cluster"),
    # READ implies DESCRIBE, unless DESCRIBE is denied.
    ("dave", ALLOW, READ, GROUP, "*"),
    ("dave", DENY, DESCRIBE, GROUP, "b"),
    ("dave", ALLOW, READ, TOPIC, "*"),
    ("dave", DENY, DESCRIBE, TOPIC, "t2"),
    # All groups, but no topic.
    ("erin", ALLOW, DESCRIBE, GROUP, "*"),
    # One test removes this ACL.
    ("frank", ALLOW, DESCRIBE, GROUP, "frank"),
    (ANONYMOUS, ALLOW, DESCRIBE, GROUP, "open-a"),
    (ANONYMOUS, ALLOW, DESCRIBE, TOPIC, "t1"),
)

Question = tuple[Struct, int]


def password(user: str) -> str:
    return SASL_PASSWORD if user == "alice" else f"{user}-secret"


def authorizing() -> dict[str, str]:
    """Returns broker properties for an authorizer. Brokers and controllers connect as the super user."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    known = " ".join(f'user_{user}="{password(user)}"' for user in (ADMIN, *USERS))
    jaas = f'{module} required username="{ADMIN}" password="{password(ADMIN)}" {known};'
    listeners = ("sasl_client", "sasl_direct", "controller")
    sasl = ",".join(f"{name.upper()}:SASL_PLAINTEXT" for name in listeners)
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
        "inter.broker.listener.name": "SASL_DIRECT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.security.protocol.map": f"CLIENT:PLAINTEXT,DIRECT:PLAINTEXT,{sasl}",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        **{f"listener.name.{name}.plain.sasl.jaas.config": jaas for name in listeners},
    }


def log_in(wire: Wire, user: str, mechanism: str = "PLAIN") -> None:
    """Authenticates a connection."""
    exchange = plain if mechanism == "PLAIN" else scram_sha_256
    assert wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    send_framed(wire, exchange(user, password(user)))


def connected(stack: ExitStack, at: Address, user: str, mechanism: str = "PLAIN") -> Wire:
    """Opens a connection and authenticates the user, if the listener requires that."""
    wire = stack.enter_context(Wire(at))
    if user != ANONYMOUS:
        log_in(wire, user, mechanism)
    return wire


def administrator(at: Address) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": host_port(at),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": password(ADMIN),
        }
    )


def rules() -> list[AclBinding]:
    literal = ResourcePatternType.LITERAL
    return [
        AclBinding(kind, name, literal, f"User:{user}", "*", operation, permission)
        for user, permission, operation, kind, name in RULES
    ]


def done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(GIVE_UP_SECONDS)


@dataclass
class AuthorizedBroker:
    """A broker with an authorizer, and a sidecar in front of both of its listeners."""

    broker: KafkaBroker
    sidecar: SidecarProcess
    expected: dict[tuple[str, str], Struct] = field(default_factory=dict)

    def directly(self, user: str, question: Question) -> Struct:
        """Returns the broker's reply.

        The broker is asked each question only once, because its ACLs change only when a test changes them.
        """
        key = (user, repr(question))
        if key not in self.expected:
            with ExitStack() as stack:
                at = self.broker.direct if user == ANONYMOUS else self.broker.sasl_direct
                self.expected[key] = alike(connected(stack, at, user).ask(*question))
        return self.expected[key]


def alike(answer: Any) -> Any:
    """Returns a reply with its lists sorted."""
    order: dict[type, Callable[[Any], Any]] = {
        ListGroupsResponse: by_id,
        DescribeGroupsResponse: members_by_id,
        OffsetFetchResponse: in_order,
    }
    return order[type(answer)](answer)


def started(folder: Path, broker: KafkaBroker, answers: dict[str, Any], own: dict[str, Any]) -> SidecarProcess:
    listeners = [
        {"name": "SASL", "listen": host_port(broker.sasl_sidecar), "upstream": host_port(broker.sasl_client)},
        {"name": "OPEN", "listen": host_port(broker.sidecar), "upstream": host_port(broker.client)},
    ]
    settings = {"answers": answers, "own_connection": own, "listeners": listeners}
    return SidecarProcess(folder, listen=broker.sasl_sidecar, upstream=broker.sasl_client, settings=settings)


def prepare(broker: KafkaBroker) -> None:
    """Creates the ACLs and topics, and waits until every group has its coordinator."""
    admin = administrator(broker.sasl_direct)
    done(admin.create_acls(rules()))
    done(admin.create_topics([NewTopic(topic, 2, 1) for topic in TOPICS]))
    question = DescribeGroupsRequest(groups=tuple(f"any {number}" for number in range(100)))

    def there() -> bool:
        with Wire(broker.sasl_direct) as wire:
            log_in(wire, ADMIN)
            wire.ask(FindCoordinatorRequest(key="any"), 0)  # The first such request creates the topic.
            return all(group.error_code == 0 for group in wire.ask(question, 0).groups)

    broker._process.wait_until(there)


def commit(wire: Wire, group: str) -> None:
    topics = tuple(
        OffsetCommitRequestTopic(
            name=topic,
            partitions=(
                OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=7, committed_metadata=f"{group} {topic}"
                ),
            ),
        )
        for topic in TOPICS
    )
    reply = wire.ask(OffsetCommitRequest(group_id=group, topics=topics), 7)
    assert {partition.error_code for topic in reply.topics for partition in topic.partitions} == {0}


def joining(group: str, timeout_ms: int = 300_000) -> JoinGroupRequest:
    """Returns the JoinGroup request of a new consumer with this session and rebalance timeout."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=timeout_ms,
        rebalance_timeout_ms=timeout_ms,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupProtocol(name="range", metadata=b""),),
    )


def become_stable(wire: Wire, group: str) -> None:
    joined = wire.ask(joining(group), 3)
    assert joined.error_code == 0
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    sync = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=(assignment,)
    )
    assert wire.ask(sync, 3).error_code == 0
