"""The hosts of members, with both settings of `answers.client_host`. Each client has its own host."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.schema import Struct
from tests.conformance.librdkafka import create_topic
from tests.conformance.routes import Route, Run
from tests.conformance.test_verification import ANSWERED, DISTRUSTED, VERIFIED
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import ClassicMember, ConsumerMember, succeeded
from tests.kafka.json_lines import json_lines
from tests.kafka.processes import Address, free_addresses
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import ask

SIDECAR = "/127.0.0.1"
"""The host that the broker sees for all clients."""
FIRST, SECOND, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"
ELSEWHERE = {host: f"/{host}" for host in (FIRST, SECOND, THIRD)}
"""The host of each client id. The client id of a member is its host."""


@dataclass
class Scene:
    """A broker, a sidecar in front of it, and the names of a group of each protocol. The groups do not exist yet."""

    broker: KafkaBroker
    sidecar: SidecarProcess
    run: Run
    topic: str
    journal: Path

    def client(self, host: str) -> Client:
        """Returns a client on a host. The host is also its client id."""
        return Client(self.sidecar.listen, Dialect.of(self.sidecar.listen), host, host)

    @property
    def classic(self) -> str:
        return self.run.name("classic")

    @property
    def consumer(self) -> str:
        return self.run.name("consumer")

    def questions(self, *, operations: bool = False) -> list[tuple[Struct, int]]:
        """Returns questions about both groups. With `operations`, only the broker can answer them."""
        classic = DescribeGroupsRequest(groups=(self.classic,), include_authorized_operations=operations)
        new = ConsumerGroupDescribeRequest(group_ids=(self.consumer,), include_authorized_operations=operations)
        return [(classic, 5), (new, 0)]

    def direct(self) -> dict[str, str]:
        """Returns the hosts by client id as the broker reports them to a direct client."""
        return {client: host for question in self.questions() for client, host in hosts(self.broker.direct, *question)}

    def forwarded(self) -> dict[str, str]:
        """Returns the hosts by client id in the broker's own replies through the sidecar."""
        before = self.sidecar.metric(ANSWERED)
        questions = self.questions(operations=True)
        hosts_by_client = {client: host for each in questions for client, host in hosts(self.sidecar.listen, *each)}
        assert self.sidecar.metric(ANSWERED) == before
        return hosts_by_client

    def answered(self) -> dict[str, str]:
        """Asks until the sidecar answers itself. Returns the hosts by client id in its answers."""
        hosts_by_client: dict[str, str] = {}
        for request, version in self.questions():

            def is_answered(request: Struct = request, version: int = version) -> bool:
                before = self.sidecar.metric(ANSWERED)
                found = dict(hosts(self.sidecar.listen, request, version))
                hosts_by_client.update(found)
                return self.sidecar.metric(ANSWERED) > before

            self.sidecar.process.wait_until(is_answered)
        return hosts_by_client

    def on_the_page(self) -> dict[str, str]:
        """Returns the hosts by client id in the admin port's JSON, which the page shows."""
        rows = [
            row
            for group in (self.classic, self.consumer)
            for row in self.sidecar.group_json("group", group)["member_list"]
        ]
        return {row["client_id"]: row["client_host"] for row in rows}

    def timeline(self) -> dict[tuple[str, str], str]:
        """Returns the hosts in the flight recorder, by client id and event."""
        timelines = [self.sidecar.group_json("timeline", group)["timeline"] for group in (self.classic, self.consumer)]
        events = [event for timeline in timelines for event in timeline]
        told = [(event["client_id"], event["what"], event["client_host"]) for event in events if "client_host" in event]
        brought = [event["by"] for event in events if event.get("by")]
        told += [(by["client_id"], "brought about a rebalance", by["client_host"]) for by in brought]
        found: dict[tuple[str, str], str] = {}
        for client, what, host in told:
            assert found.setdefault((client, what), host) == host, f"{client} has two hosts in the events {what}"
        return found

    def recorded(self) -> set[tuple[str, str]]:
        """Returns the client ids and hosts of both groups in the journal. Leaves out the groups of other tests."""
        files = sorted(self.journal.rglob("*.jsonl*"))
        records = [record for file in files for record in json_lines(file)]
        members = [
            each for each in records if each["kind"] == "member" and each["group"] in (self.classic, self.consumer)
        ]
        return {(record["client_id"], record["client_host"]) for record in members}


def hosts(address: Address, request: Struct, version: int) -> list[tuple[str, str]]:
    """Asks a question. Returns the client ids and hosts of the members in the reply."""
    groups = ask(address, request, version).groups
    assert all(group.error_code == 0 for group in groups), groups
    return [(member.client_id, member.client_host) for group in groups for member in group.members]


@contextmanager
def staged(broker: KafkaBroker, folder: Path, setting: str) -> Iterator[Scene]:
    broker.wait_for_coordinator()
    [listen] = free_addresses(1)
    answers = {"exclusive": True, "client_host": setting, "verify": 1.0}
    journal = {"folder": str(folder / "journal"), "interval_seconds": 0.2, "segment_seconds": 0.5}
    settings = {"answers": answers, "journal": journal}
    run = Run(Route("direct", broker.direct, broker.direct), f"t{secrets.token_hex(5)}")
    topic = create_topic(run, "topic", 4)
    with SidecarProcess(folder, listen=listen, upstream=broker.client, settings=settings) as sidecar:
        sidecar.wait_for_log()
        yield Scene(broker, sidecar, run, topic, folder / "journal")


def gathered(scene: Scene, stack: ExitStack) -> tuple[ClassicMember, ClassicMember, ConsumerMember]:
    """Creates both groups: two classic members and a member of the new protocol, each on its own host."""
    first, second = (
        stack.enter_context(ClassicMember(scene.client(host), scene.classic, scene.topic)) for host in (FIRST, SECOND)
    )
    third = stack.enter_context(ConsumerMember(scene.client(THIRD), scene.consumer, (scene.topic,)))
    first.join()
    first.sync()
    second.send_join()
    until(lambda: first.heartbeat() != 0, "the group prepares its rebalance")
    first.join()
    succeeded(second.receive_join())
    leader, follower = (first, second) if first.leads else (second, first)
    leader.sync()
    follower.sync()
    third.join()
    while not third.assigned:
        third.heartbeat()
    third.take()
    return first, second, third


@pytest.mark.parametrize("setting", ["client", "broker"])
def test_member_hosts_in_all_outputs(broker: KafkaBroker, tmp_path: Path, setting: str) -> None:
    """With both client_host settings, replies contain the configured host, and page, timeline and journal contain true
    hosts.
    """
    wanted = ELSEWHERE if setting == "client" else dict.fromkeys(ELSEWHERE, SIDECAR)
    with staged(broker, tmp_path, setting) as scene, ExitStack() as stack:
        first, second, third = gathered(scene, stack)
        assert scene.direct() == dict.fromkeys(ELSEWHERE, SIDECAR), (
            "the broker must report the sidecar's host for all members"
        )
        assert scene.forwarded() == wanted
        assert scene.answered() == wanted
        assert scene.on_the_page() == ELSEWHERE
        events = scene.timeline()
        assert {(client, "member_joined") for client in ELSEWHERE} <= events.keys()
        assert all(host == ELSEWHERE[client] for (client, _), host in events.items()), events

        scene.sidecar.stop()
        scene.sidecar.start()
        scene.sidecar.wait_for_log()
        assert scene.forwarded() == scene.on_the_page() == dict.fromkeys(ELSEWHERE, SIDECAR), (
            "no member has sent a request to the restarted sidecar"
        )
        for member, host in ((first, FIRST), (second, SECOND)):
            member.reconnect(scene.client(host))
        assert first.heartbeat() == 0
        halfway = {FIRST: f"/{FIRST}", SECOND: SIDECAR, THIRD: SIDECAR}
        assert scene.on_the_page() == halfway
        assert scene.forwarded() == (halfway if setting == "client" else wanted)
        succeeded(second.commit({1: 5}))
        third.heartbeat()
        assert scene.forwarded() == wanted
        assert scene.answered() == wanted
        assert scene.on_the_page() == ELSEWHERE
        succeeded(second.leave())
        assert scene.timeline()[SECOND, "member_gone"] == f"/{SECOND}"
        left = scene.sidecar.group_json("timeline", scene.classic)["timeline"]
        assert [event["how"] for event in left if event["what"] == "member_gone"] == ["left"], (
            "the member left by itself"
        )

        sidecar = scene.sidecar
        sidecar.process.wait_until(lambda: sidecar.metric(VERIFIED) == sidecar.metric(ANSWERED) > 0)
        assert sidecar.metric(VERIFIED, result="different") == sidecar.metric(DISTRUSTED) == 0, sidecar.process.tail()
        sidecar.stop()
        assert scene.recorded() == set(ELSEWHERE.items())
