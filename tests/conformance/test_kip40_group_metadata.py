"""KIP-40's draft in front of real brokers, with raw frames because no client supports the draft."""

import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.headers import split_reply
from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from group_sidecar.codecs.messages.group_metadata import (
    GroupMetadataRequest,
    GroupMetadataResponse,
    Kip40Coordinator,
    Kip40Group,
    Kip40GroupMetadata,
    Kip40Member,
    Kip40MemberMetadata,
    Kip40State,
)
from group_sidecar.codecs.schema import decode
from tests.conformance.differential import slow_loading
from tests.kafka.broker import KafkaBroker
from tests.kafka.cluster import kafka_cluster
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import ClassicMember, commit
from tests.kafka.processes import Address, free_addresses, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic
from tests.kafka.wire import Wire, ask

pytestmark = pytest.mark.timeout(300)

TOPIC = "topic"
DRAFT: dict[str, Any] = {"group_metadata_request": True}
MEMBERS_ARE_AT = "127.0.0.7"
VALUES = [f"value {number}" for number in range(10)]
DEAD = Kip40GroupMetadata()


def draft(address: Address, *groups: str, everything: bool = False, members: bool = True) -> tuple[Kip40Group, ...]:
    """Requests groups over a new connection. Returns the groups in the reply."""
    request = GroupMetadataRequest(
        include_all_groups=int(everything), include_member_metadata=int(members), groups=groups
    )
    with Wire(address) as wire:
        correlation = wire.send_request(request, 1)
        frame = wire.receive()
    assert int.from_bytes(frame[:4], "big") == correlation
    return decode(GroupMetadataResponse, 1, split_reply(frame, flexible=False)).groups


@dataclass(frozen=True)
class Stage:
    """A broker, and a sidecar that supports the draft."""

    broker: KafkaBroker
    sidecar: SidecarProcess
    client: Client

    @property
    def coordinator(self) -> Kip40Coordinator:
        """The broker with the address that its clients use."""
        host, port = self.broker.sidecar
        return Kip40Coordinator(id=1, host=host, port=port)

    def member(self, group: str, client_id: str) -> ClassicMember:
        client = Client(self.client.address, self.client.dialect, client_id, MEMBERS_ARE_AT)
        return ClassicMember(client, group, TOPIC)

    def request_group(self, group: str, **fields: bool) -> Kip40Group:
        [reply] = draft(self.broker.sidecar, group, **fields)
        assert (reply.group_id, reply.error_code, reply.coordinator) == (group, 0, self.coordinator)
        return reply


@pytest.fixture(scope="module", params=["4.4.0", pytest.param("1.1.1", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("kip40")
    with (
        KafkaBroker(folder / "broker", version=request.param) as broker,
        SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=DRAFT) as sidecar,
    ):
        broker.wait_for_coordinator()
        make_topic(broker, TOPIC, 4)
        sidecar.wait_for_log()
        yield Stage(broker, sidecar, Client(broker.sidecar, Dialect.of(broker.direct)))


@pytest.fixture
def group() -> str:
    """Returns a group name that no other test uses."""
    return f"group-{secrets.token_hex(4)}"


def test_group_life_in_kip40(place: Stage, group: str) -> None:
    """The KIP-40 reply follows a group from its first member to its last, and agrees with the admin port."""
    assert place.request_group(group).group_metadata == DEAD
    with ExitStack() as stack:
        first, second = (stack.enter_context(place.member(group, name)) for name in ("first", "second"))
        first.join()
        first.sync()
        until(lambda: place.request_group(group).group_metadata.state == Kip40State.STABLE, "the group is stable")
        generation = place.request_group(group).group_metadata.generation
        assert generation == first.generation
        second.send_join()
        until(lambda: place.request_group(group).group_metadata.state == Kip40State.REBALANCING, "the group rebalances")
        in_between = place.request_group(group)
        assert in_between.group_metadata == Kip40GroupMetadata(
            state=Kip40State.REBALANCING, protocol_type="consumer", generation=generation, protocol="range"
        )
        assert in_between.member_metadata == Kip40MemberMetadata()
        first.send_join()
        for member in (first, second):
            assert member.receive_join().error_code == 0
        completing = place.request_group(group).group_metadata
        assert (completing.state, completing.generation) == (Kip40State.REBALANCING, generation)
        leader, other = sorted((first, second), key=lambda member: not member.leads)
        for member in (leader, other):
            member.send_sync()
        given = {member.member_id: member.receive_sync().assignment for member in (leader, other)}
        until(lambda: place.request_group(group).group_metadata.state == Kip40State.STABLE, "the group is stable again")
        stable = place.request_group(group)
        assert stable.group_metadata == Kip40GroupMetadata(
            state=Kip40State.STABLE, protocol_type="consumer", generation=generation + 1, protocol="range"
        )
        assert stable.member_metadata.leader == leader.member_id
        assert {shown(member) for member in stable.member_metadata.members} == {
            (first.member_id, "first", f"/{MEMBERS_ARE_AT}", given[first.member_id]),
            (second.member_id, "second", f"/{MEMBERS_ARE_AT}", given[second.member_id]),
        }
        described = place.client.ask(DescribeGroupsRequest(groups=(group,))).groups[0]
        assert {member.member_metadata for member in stable.member_metadata.members} == {
            member.member_metadata for member in described.members
        }
        assert place.request_group(group, members=False).member_metadata == Kip40MemberMetadata()
        on_the_admin_port = json.loads(place.sidecar.get(f"/api/v1/group?group={group}")[1])
        where, reply = stable.coordinator, stable.group_metadata
        assert on_the_admin_port["coordinator"] == {"id": where.id, "host": where.host, "port": where.port}
        assert (on_the_admin_port["generation"], on_the_admin_port["leader"]) == (reply.generation, leader.member_id)
    until(lambda: place.request_group(group).group_metadata == DEAD, "the group has no members")


def shown(member: Kip40Member) -> tuple[str, str, str, bytes]:
    """Returns a member's ids, host and assignment."""
    return member.member_id, member.client_id, member.member_host, member.member_assignment


def test_include_all_groups(place: Stage, group: str) -> None:
    """A KIP-40 request for all groups also reports a group without members and a named unknown group."""
    commit(place.client, group, TOPIC, {0: 3})  # The group exists, although it has no members.
    with place.member(f"{group}-full", "member") as member:
        member.join()
        member.sync()
        found = {each.group_id: each for each in draft(place.broker.sidecar, f"{group}-none", everything=True)}
    assert [found[name].group_metadata.state for name in (group, f"{group}-full", f"{group}-none")] == [
        Kip40State.DEAD,
        Kip40State.STABLE,
        Kip40State.DEAD,
    ]
    assert {(each.error_code, each.coordinator) for each in found.values()} == {(0, place.coordinator)}
    assert found[f"{group}-full"].member_metadata.leader == member.others[0]


def test_librdkafka_finds_coordinator(place: Stage, group: str) -> None:
    """With KIP-40 enabled, librdkafka still finds its coordinator and consumes."""
    producer = Producer({"bootstrap.servers": host_port(place.broker.sidecar)})
    for value in VALUES:
        producer.produce(TOPIC, value)
    assert producer.flush(30) == 0
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": host_port(place.broker.sidecar), **settings})
    try:
        consumer.subscribe([TOPIC])
        values: list[bytes] = []
        until(lambda: len(polled(consumer, values)) >= len(VALUES), "all values are read")
        consumer.commit(asynchronous=False)
        assert place.request_group(group).group_metadata.state == Kip40State.STABLE
    finally:
        consumer.close()


def polled(consumer: Consumer, values: list[bytes]) -> list[bytes]:
    """Polls once. Returns the values of all messages so far."""
    if (message := consumer.poll(0.1)) and not message.error():
        values.append(message.value() or b"")
    return values


def test_kafka_python_finds_coordinator(place: Stage, group: str) -> None:
    """With KIP-40 enabled, kafka-python still finds its coordinator and joins its group."""
    consumer = KafkaConsumer(bootstrap_servers=host_port(place.broker.sidecar), group_id=group)
    try:
        assert consumer.partitions_for_topic(TOPIC)
        consumer.subscribe([TOPIC])
        until(lambda: bool(consumer.poll(timeout_ms=50) or consumer.assignment()), "the consumer is in the group")
        assert place.request_group(group).group_metadata.state == Kip40State.STABLE
    finally:
        consumer.close()


def test_other_versions_are_unchanged(place: Stage, group: str) -> None:
    """With KIP-40 enabled, FindCoordinator is advertised as v0 only, and all other versions still work."""
    offered = {api.api_key: api for api in ask(place.broker.sidecar, ApiVersionsRequest(), 0).api_keys}
    assert offered[ApiKey.FIND_COORDINATOR].max_version == 0
    for version in Dialect.of(place.broker.direct).versions(ApiKey.FIND_COORDINATOR):
        if version != 1:
            request = FindCoordinatorRequest(key=group, coordinator_keys=(group,))
            found = ask(place.broker.sidecar, request, version)
            [one] = found.coordinators or (found,)
            assert (one.node_id, one.port) == (1, place.broker.sidecar[1])


def test_v1_is_kafkas_without_setting(place: Stage, group: str, tmp_path: Path) -> None:
    """Without the KIP-40 setting, FindCoordinator v1 works as in Kafka."""
    [listen] = free_addresses(1)
    with SidecarProcess(tmp_path, listen=listen, upstream=place.broker.client):
        offered = {api.api_key: api for api in ask(listen, ApiVersionsRequest(), 0).api_keys}
        assert offered[ApiKey.FIND_COORDINATOR].max_version >= 1
        found = ask(listen, FindCoordinatorRequest(key=group), 1)
        assert (found.error_code, found.node_id, found.port) == (0, 1, place.broker.sidecar[1])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\0\0\x7f\xff\xff\xff", "malformed_request"),
        (b"\0\5group\0", "malformed_request"),
        (bytes(3_000_000), "request_too_long"),
    ],
)
def test_malformed_request_closes_connection(place: Stage, tmp_path: Path, body: bytes, reason: str) -> None:
    """A malformed or too long KIP-40 request closes the connection and is counted with its reason."""
    [listen] = free_addresses(1)
    limits = {"limits": {"inspected_frame": 1_000_000}}
    with SidecarProcess(tmp_path, listen=listen, upstream=place.broker.client, settings=DRAFT | limits) as sidecar:
        with Wire(listen) as wire:
            wire.send((10 + len(body)).to_bytes(4, "big") + b"\0\x0a\0\1\0\0\0\1\xff\xff" + body[:100])
            if reason == "malformed_request":
                wire.send(body[100:])
            assert wire.closed()
        closed = "group_sidecar_client_connections_closed_total"
        until(lambda: sidecar.metric(closed, reason=reason) == 1, "the closed connection is counted")


def test_other_brokers_group_reports_coordinator(tmp_path: Path, group: str) -> None:
    """A KIP-40 request for another broker's group reports NOT_COORDINATOR and the right coordinator, not metadata."""
    settings = {"mode": "gateway", **DRAFT}
    with kafka_cluster(tmp_path, nodes=2) as brokers, ExitStack() as stack:
        [listen] = free_addresses(1)
        sidecar = SidecarProcess(tmp_path / "s", listen=listen, upstream=brokers[0].direct, settings=settings)
        stack.enter_context(sidecar)
        found = ask(brokers[0].direct, FindCoordinatorRequest(key=group), 0)
        make_topic(brokers[0], TOPIC)
        ports = {}
        for name in (f"{group}-{number}" for number in range(20)):
            [reply] = draft(listen, name)
            ports[reply.coordinator.id] = reply.coordinator
            assert reply.error_code == (0 if reply.coordinator.id == 1 else 16)
            assert (reply.group_metadata, reply.member_metadata) == (DEAD, Kip40MemberMetadata())
            [at_home] = draft((reply.coordinator.host, reply.coordinator.port), name)
            assert (at_home.error_code, at_home.coordinator) == (0, reply.coordinator)
        assert sorted(ports) == [1, 2]
        assert {where.port for where in ports.values()}.isdisjoint(broker.direct[1] for broker in brokers)
        home = ports[found.node_id]
        client = Client((home.host, home.port), Dialect.of(brokers[0].direct), "member")
        with ClassicMember(client, group, TOPIC) as member:
            member.join()
            member.sync()
            [stable] = draft((home.host, home.port), group)
            assert (stable.group_metadata.state, stable.group_metadata.generation) == (Kip40State.STABLE, 1)
            [elsewhere] = draft((ports[3 - home.id].host, ports[3 - home.id].port), group)
            assert elsewhere == Kip40Group(error_code=16, group_id=group, coordinator=home)


def test_loading_group_is_initializing(tmp_path: Path, group: str) -> None:
    """A KIP-40 request for a group that its broker is loading reports the state Initializing."""
    with (
        KafkaBroker(tmp_path / "broker", properties=slow_loading.ONE_PARTITION) as broker,
        SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client, settings=DRAFT),
    ):
        broker.wait_for_coordinator()
        make_topic(broker, TOPIC)
        commit(Client(broker.sidecar, Dialect.of(broker.direct)), group, TOPIC, {0: 3})
        slow_loading.lengthen(broker, TOPIC)
        for _ in range(5):  # One load takes long enough, unless the machine is very busy.
            broker.start()
            if replies := groups_while_loading(broker, group):
                break
            broker.stop()
        else:
            pytest.fail("the broker finished loading before each request")
    assert [(each.error_code, each.group_metadata) for each in replies] == [
        (0, Kip40GroupMetadata(state=Kip40State.INITIALIZING))
    ]


def groups_while_loading(broker: KafkaBroker, group: str) -> tuple[Kip40Group, ...]:
    """Requests a group. Returns nothing unless the broker was loading before the request and after it."""

    def refusal() -> int:
        return int(ask(broker.direct, DescribeGroupsRequest(groups=(group,)), 0).groups[0].error_code)

    while (before := refusal()) != 0:
        replies = draft(broker.sidecar, group)
        if before == refusal() == 14:
            return replies
    return ()
