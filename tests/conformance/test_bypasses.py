"""A sidecar with ``answers.exclusive`` finds the clients that reach its broker through another listener.

One listener of the broker is behind the sidecar, and clients reach another listener directly. Clients of the sidecar
join, commit, die, lose replies and use transactions all the time, and the sidecar must count none of them as a client
that bypasses it.
"""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import ClassicMember, ConsumerMember, commit, offsets_to_commit
from tests.kafka.json_lines import json_lines
from tests.kafka.processes import Address
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic
from tests.kafka.transactions import Transaction

TOPIC = "topic"
SESSION_MS = 15_000
CONSUMER_SESSION_MS = "15000"
"""Milliseconds without a heartbeat after which the broker removes a member of a KIP-848 group."""
ROUNDS_PER_CHANGE = 20
"""Rounds, of about a quarter of a second, between two changes of members."""
FOUND_SECONDS = 200.0
"""The maximum seconds until the clients are found. The sidecar finds a commit two minutes after its start."""
BYPASSES = "group_sidecar_bypassing_records_total"


class Members:
    """Members of a classic group and of a KIP-848 group, which all use one way to the broker.

    Args:
        address: the listener that they use.
        prefix: the first part of their groups' names.
        stack: ends the members.
    """

    def __init__(self, address: Address, prefix: str, stack: ExitStack) -> None:
        self.address, self.prefix, self._stack = address, prefix, stack
        self.classic, self.consumer = self._classic(), self.join_consumer()

    def client(self) -> Client:
        return Client(self.address, Dialect.of(self.address), f"{self.prefix}-client")

    def _classic(self) -> ClassicMember:
        name = f"{self.prefix}-classic"
        member = ClassicMember(
            self.client(), name, TOPIC, instance_id=f"{name}-1", session_ms=SESSION_MS, rebalance_ms=SESSION_MS
        )
        self._stack.enter_context(member)
        member.join()
        member.sync()
        return member

    def join_consumer(self) -> ConsumerMember:
        """Returns a new member of the KIP-848 group."""
        member = self._stack.enter_context(ConsumerMember(self.client(), f"{self.prefix}-consumer", (TOPIC,)))
        member.join()
        return member

    def live(self) -> None:
        """Sends a heartbeat of each member, and a commit without a member."""
        self.classic.heartbeat()
        self.consumer.heartbeat()
        commit(self.client(), f"{self.prefix}-simple", TOPIC, {0: 1})

    def die(self) -> None:
        """Replaces both members, which do not leave their groups. The classic member is static."""
        self.classic.vanish()
        self.consumer.vanish()
        self.classic, self.consumer = self._classic(), self.join_consumer()


class PassingClients(Members):
    """Clients that connect through the sidecar, with all behaviour that might look like a client that bypasses it."""

    def live(self) -> None:
        """See Members. Also commits as members, with a lost reply, and in a transaction."""
        super().live()
        self.classic.commit({0: 2})
        self.consumer.commit(TOPIC, {0: 3})
        self._lose_commit()

    def die(self) -> None:
        """See Members. Another member dies during its join."""
        super().die()
        with self.client().wire() as wire:
            doomed = ClassicMember(
                self.client(), f"{self.prefix}-doomed", TOPIC, session_ms=SESSION_MS, rebalance_ms=SESSION_MS
            )
            doomed.send_join()
            doomed.vanish()
            assert not wire.readable(0)
        with Transaction(self.client(), f"{self.prefix}-producer") as transaction:
            transaction.begin()
            transaction.commit_offsets(f"{self.prefix}-transaction", TOPIC, {0: 4})
            transaction.end(commit=True)

    def _lose_commit(self) -> None:
        with self.client().wire() as wire:
            topics = offsets_to_commit(TOPIC, {0: 5})
            wire.send_request(OffsetCommitRequest(group_id=f"{self.prefix}-lost", topics=topics), 7)

    def reconnect(self) -> None:
        """Connects again, after the sidecar has come back."""
        self.classic.reconnect(self.client())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    sessions = {f"group.consumer.{name}session.timeout.ms": CONSUMER_SESSION_MS for name in ("", "min.")} | {
        f"group.consumer.{name}heartbeat.interval.ms": "1000" for name in ("", "min.")
    }
    with KafkaBroker(tmp_path / "broker", properties=sessions) as broker:
        broker.wait_for_coordinator()
        make_topic(broker, TOPIC, 2)
        yield broker


def reported_groups(sidecar_log: Path) -> dict[str, list[str]]:
    """Returns the groups in the log's lines about commits and about members that bypassed the sidecar."""
    lines = json_lines(sidecar_log)
    return {
        kind: [line["group"] for line in lines if line["event"].startswith(f"a {kind} bypassed the sidecar")]
        for kind in ("commit", "member")
    }


@pytest.mark.long
@pytest.mark.timeout(600)
def test_only_bypassing_clients_are_counted(broker: KafkaBroker, tmp_path: Path) -> None:
    """Clients of the other listener are counted, and logged once for each group. Clients of the sidecar are not."""
    settings = {"answers": {"exclusive": True}}
    with (
        SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client, settings=settings) as sidecar,
        ExitStack() as stack,
    ):
        sidecar.wait_for_log()
        passing = PassingClients(broker.sidecar, "passing", stack)
        around = Members(broker.direct, "around", stack)
        sidecar.process.stop(how=signal.SIGKILL)
        sidecar.start()
        passing.reconnect()
        rounds = count(1)

        def counted(kind: str, records: int) -> bool:
            for members in (passing, around):
                members.live()
            if next(rounds) % ROUNDS_PER_CHANGE == 0:
                passing.die()
            return sidecar.metric(BYPASSES, kind=kind) >= records

        until(lambda: counted("member", 1), "the classic member is counted", FOUND_SECONDS)
        until(lambda: counted("commit", 1), "a commit is counted", FOUND_SECONDS)
        around.consumer.leave()
        around.consumer = around.join_consumer()  # By now the sidecar judges the records of the log.
        until(lambda: counted("member", 2), "the KIP-848 member is counted", FOUND_SECONDS)
        [log_status] = json.loads(sidecar.get("/readyz")[1])["offsets_log"].values()
        bypassed = log_status["bypassed"]
        assert (bypassed["exclusive"], bypassed["members"]) == (False, 2)
        reported = reported_groups(sidecar.process.log)
    assert reported["commit"] == ["around-simple"]
    assert sorted(reported["member"]) == ["around-classic", "around-consumer"]
