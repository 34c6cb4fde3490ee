"""The principals of members in all outputs. The members have different SASL users, but one host and one client id."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from group_sidecar.codecs.schema import Struct
from tests.conformance.authorized_broker import done
from tests.conformance.librdkafka import create_topic
from tests.conformance.routes import Route, Run
from tests.conformance.sasl_forms_broker import OTHER_PASSWORD, OTHER_USER, log_in
from tests.kafka.broker import SASL_USER, KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import ClassicMember, ConsumerMember, succeeded
from tests.kafka.json_lines import json_lines
from tests.kafka.processes import free_addresses, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

ALICE, BOB = f"User:{SASL_USER}", f"User:{OTHER_USER}"


@dataclass(frozen=True)
class UserClient(Client):
    """A client that authenticates each of its connections by SCRAM."""

    user: str = ""

    def ask(self, request: Struct, at_most: int | None = None) -> Any:
        """See Client."""
        with self.wire() as wire:
            return wire.ask(request, self.dialect.newest(request.KEY, at_most))

    def wire(self) -> Wire:
        """See Client."""
        wire = super().wire()
        log_in(wire, "SCRAM-SHA-256", self.user)
        return wire


@dataclass
class Scene:
    """A sidecar in front of a broker's SASL listener, and the names of a group of each protocol."""

    broker: KafkaBroker
    sidecar: SidecarProcess
    run: Run
    topic: str
    journal: Path

    def client(self, user: str) -> UserClient:
        return UserClient(self.sidecar.listen, Dialect.of(self.sidecar.listen), user=user)

    def shown(self, group: str) -> dict[str, str]:
        """Returns the principals of a group's members in the JSON, by member id."""
        members = self.sidecar.group_json("group", group)["member_list"]
        assert {member["client_id"] for member in members} == {"client"}
        return {member["member_id"]: member["principal"] for member in members}

    def principals_in(self, group: str, what: str) -> dict[str, str]:
        """Returns the principals in the timeline's events of one kind, by member id."""
        cells = self.sidecar.group_json("timeline", group)["timeline"]
        return {cell["member_id"]: cell["principal"] for cell in cells if cell["what"] == what}

    def recorded(self) -> set[tuple[str, str, str | None]]:
        """Returns member id, change and principal of all records about members."""
        lines = [line for file in self.journal.rglob("*.jsonl*") for line in json_lines(file)]
        records = [record for record in lines if record["kind"] == "member"]
        return {(record["member_id"], record["change"], record["principal"]) for record in records}


@pytest.fixture
def scene(broker: KafkaBroker, tmp_path: Path) -> Iterator[Scene]:
    admin = AdminClient({"bootstrap.servers": host_port(broker.direct)})
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    done(admin.alter_user_scram_credentials([UserScramCredentialUpsertion(OTHER_USER, scram, OTHER_PASSWORD.encode())]))
    broker.wait_for_coordinator()
    [listen] = free_addresses(1)
    settings = {
        "own_connection": {"address": host_port(broker.direct)},
        "answers": {"exclusive": True},
        "journal": {"folder": str(tmp_path / "journal"), "interval_seconds": 0.2, "segment_seconds": 0.5},
    }
    run = Run(Route("direct", broker.direct, broker.sasl_direct), f"t{secrets.token_hex(5)}")
    topic = create_topic(run, "topic", 4)
    with SidecarProcess(tmp_path, listen=listen, upstream=broker.sasl_client, settings=settings) as sidecar:
        sidecar.wait_for_log()
        yield Scene(broker, sidecar, run, topic, tmp_path / "journal")


def test_classic_members_have_their_users(scene: Scene) -> None:
    """Each member's user is in the JSON, the timeline and the journal, after a restart from its next request on."""
    group = scene.run.name("classic")
    with (
        ClassicMember(scene.client(SASL_USER), group, scene.topic) as alice,
        ClassicMember(scene.client(OTHER_USER), group, scene.topic) as bob,
    ):
        alice.join()
        alice.sync()
        bob.send_join()
        until(lambda: alice.heartbeat() != 0, "the group prepares its rebalance")
        alice.join()
        succeeded(bob.receive_join())
        for member in sorted((alice, bob), key=lambda each: not each.leads):
            member.sync()
        users = {alice.member_id: ALICE, bob.member_id: BOB}
        assert scene.shown(group) == scene.principals_in(group, "member_joined") == users

        scene.sidecar.stop()
        scene.sidecar.start()
        scene.sidecar.wait_for_log()
        assert scene.shown(group) == dict.fromkeys(users, ""), "no member has sent a request to the restarted sidecar"
        bob.reconnect(scene.client(OTHER_USER))
        assert bob.heartbeat() == 0
        assert scene.shown(group) == {alice.member_id: "", bob.member_id: BOB}
        gone = bob.member_id
        succeeded(bob.leave())
        assert scene.principals_in(group, "member_gone") == {gone: BOB}
    scene.sidecar.stop()
    joins = {(member_id, "joined", user) for member_id, user in users.items()}
    assert joins | {(gone, "left", BOB)} <= scene.recorded()


def test_consumer_members_have_their_users(scene: Scene) -> None:
    """The members of a KIP-848 group have their users in the JSON, the timeline and the journal."""
    group = scene.run.name("consumer")
    with (
        ConsumerMember(scene.client(SASL_USER), group, (scene.topic,)) as alice,
        ConsumerMember(scene.client(OTHER_USER), group, (scene.topic,)) as bob,
    ):
        alice.join()
        bob.join()
        users = {alice.member_id: ALICE, bob.member_id: BOB}
        scene.sidecar.process.wait_until(lambda: scene.principals_in(group, "member_joined").keys() == users.keys())
        assert scene.shown(group) == scene.principals_in(group, "member_joined") == users
    scene.sidecar.process.wait_until(lambda: scene.principals_in(group, "member_gone") == users)
    scene.sidecar.stop()
    assert {(member_id, "joined", user) for member_id, user in users.items()} <= scene.recorded()
