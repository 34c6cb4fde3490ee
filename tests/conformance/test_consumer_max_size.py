"""group.consumer.max.size (KIP-848): compares the sidecar's limit with the broker's own limit, byte by byte."""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from group_sidecar.codecs.consumer_protocol import ConsumerProtocolSubscription
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.headers import RequestHeader, encode_request, split_reply
from group_sidecar.codecs.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.codecs.schema import Struct, decode, encode
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, free_addresses
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

LIMIT, JOINERS, BEATS = 10, 100, 3
JOIN, LEAVE, RESTART = 0, -1, -2
VERSION, MINUTE = 1, 60_000
STRAIGHT = 3
"""The last JoinGroup version in which a member without an id is accepted at once (KIP-394)."""
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


@dataclass
class Group:
    """A consumer group. `epochs` has the epoch of each member."""

    at: Address
    group_id: str = field(default_factory=lambda: f"new-{secrets.token_hex(5)}")
    epochs: dict[str, int] = field(default_factory=dict)

    def ask(self, questions: Iterable[tuple[Struct, int]]) -> list[bytes]:
        """Sends all requests at once, each over its own connection. Returns the replies."""
        with ExitStack() as stack:
            wires = []
            for request, version in questions:
                wire = stack.enter_context(Wire(self.at))
                wire.send(encode_request(request, RequestHeader(request.KEY, version, 1, "raw")))
                wires.append(wire)
            return [wire.receive() for wire in wires]

    def beat(self, *members: str, epoch: int | None = None, instance_id: str | None = None) -> list[str]:
        """Sends a heartbeat of each member. Returns ``in`` for each success, and the reply in hex for each error."""
        epochs = [self.epochs.get(member, JOIN) if epoch is None else epoch for member in members]
        requests = [(self.heartbeat(each, at, instance_id), VERSION) for each, at in zip(members, epochs, strict=True)]
        outcomes = []
        for member, reply in zip(members, self.ask(requests), strict=True):
            response = decode(ConsumerGroupHeartbeatResponse, VERSION, split_reply(reply, flexible=True))
            if response.error_code == 0:
                self.epochs[member] = response.member_epoch
            outcomes.append(reply.hex() if response.error_code else "in")
        return outcomes

    def heartbeat(self, member_id: str, epoch: int, instance_id: str | None = None) -> ConsumerGroupHeartbeatRequest:
        joins: dict[str, Any] = {
            "rebalance_timeout_ms": MINUTE,
            "subscribed_topic_names": ("topic",),
            "topic_partitions": (),
        }
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            **(joins if epoch == JOIN else {}),
        )

    def classic_join(self) -> JoinGroupRequest:
        subscription = b"\0\0" + encode(ConsumerProtocolSubscription(topics=("topic",)), 0)
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=MINUTE,
            rebalance_timeout_ms=MINUTE,
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=subscription),),
        )

    def close(self) -> None:
        """Makes all members leave."""
        here = [member for member, epoch in self.epochs.items() if epoch > 0]
        self.beat(*here, epoch=LEAVE)


def somebody() -> str:
    """Returns a new member id."""
    return secrets.token_hex(11)


@pytest.fixture
def strict(strict_broker: KafkaBroker) -> Iterator[Group]:
    """A group of the broker that has a limit."""
    group = Group(strict_broker.direct)
    yield group
    group.close()


@pytest.fixture(scope="module", params=[True, False], ids=["log read", "log not read"])
def sidecar(
    broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SidecarProcess]:
    """A sidecar with a limit, in front of a broker without a limit."""
    broker.wait_for_coordinator()
    [listen] = free_addresses(1)
    limits = {"group_max_size": {"consumer_max_size": LIMIT, "error_code": int(FULL)}}
    settings = {"policies": limits, "offsets_log": {"read": request.param}}
    folder = tmp_path_factory.mktemp("consumer-max-size")
    with SidecarProcess(folder, listen=listen, upstream=broker.client, settings=settings) as sidecar:
        yield sidecar


@pytest.fixture
def limited(sidecar: SidecarProcess) -> Iterator[Group]:
    """A group whose clients connect through the sidecar with a limit. Its broker has no limit."""
    group = Group(sidecar.listen)
    yield group
    group.close()


def crowd(group: Group) -> tuple[Counter[str], list[str]]:
    """Many clients join at once. Returns the outcomes of their joins, and of later heartbeats of the members."""
    outcomes = Counter(group.beat(*(somebody() for _ in range(JOINERS))))
    members = list(group.epochs)
    return outcomes, [each for _ in range(BEATS) for each in group.beat(*members)]


def test_simultaneous_joins_fill_to_limit(strict: Group, limited: Group) -> None:
    """If many clients join at once, exactly the limit's number succeed and stay, as at a broker with the same limit."""
    outcomes, after = crowd(limited)
    assert (outcomes["in"], outcomes.total(), len(outcomes)) == (LIMIT, JOINERS, 2)
    assert after == ["in"] * LIMIT * BEATS
    assert (outcomes, after) == crowd(strict)


def full(group: Group, *, instance_id: str | None = None) -> list[str]:
    """Fills a group, one join after the other. `instance_id` makes the first member static. Returns all members."""
    members = [somebody() for _ in range(LIMIT)]
    outcomes = [*group.beat(members[0], instance_id=instance_id)]
    outcomes += [outcome for member in members[1:] for outcome in group.beat(member)]
    assert outcomes == ["in"] * LIMIT
    return members


def leaving(group: Group) -> list[str]:
    """Returns the outcomes while a member leaves, another client takes the place, and a third is refused."""
    members = full(group)
    steps = group.beat(somebody()) + group.beat(members[3], epoch=LEAVE)
    return steps + group.beat(somebody()) + group.beat(somebody())


def test_leaving_member_makes_room(strict: Group, limited: Group) -> None:
    """A member that leaves a full consumer group makes room for one other, as at a broker with the same limit."""
    steps = leaving(limited)
    assert [step == "in" for step in steps] == [False, True, True, False]
    assert steps == leaving(strict)


def restarting(group: Group) -> list[str]:
    """Returns the outcomes when a static member returns with a new member id, and then with its former one."""
    who = full(group, instance_id="instance")[0]
    steps = group.beat(who, epoch=RESTART, instance_id="instance")
    steps += group.beat(somebody(), instance_id="instance")
    return steps + group.beat(who, epoch=JOIN, instance_id="instance")


def test_restarting_static_member_keeps_its_place(strict: Group, limited: Group) -> None:
    """A restarting static member keeps its place under its own member id only, although Kafka 4.4 gives the place to a
    new member id (KAFKA-20601).
    """
    assert [step == "in" for step in restarting(limited)] == [True, False, True]
    assert [step == "in" for step in restarting(strict)] == [True, True, False]


def joining_classically(group: Group) -> list[str]:
    """Returns the replies to classic joins to a full consumer group, in each version."""
    full(group)
    return [
        reply.hex() for reply in group.ask((group.classic_join(), version) for version in JoinGroupRequest.VERSIONS)
    ]


def test_full_consumer_group_refuses_classic(strict: Group, limited: Group) -> None:
    """A full consumer group refuses classic joins with the same replies as a broker with the same limit."""
    assert joining_classically(limited) == joining_classically(strict)


def crowding_classically(group: Group) -> Counter[int]:
    """Many classic clients join at once, with two free places. Returns how often each error code was returned."""
    assert group.beat(*(somebody() for _ in range(LIMIT - 2))) == ["in"] * (LIMIT - 2)
    replies = group.ask([(group.classic_join(), STRAIGHT)] * JOINERS)
    joined = [decode(JoinGroupResponse, STRAIGHT, split_reply(reply, flexible=False)) for reply in replies]
    leave = [(LeaveGroupRequest(group_id=group.group_id, member_id=each.member_id), 1) for each in joined]
    group.ask(leave)
    return Counter(each.error_code for each in joined)


def test_simultaneous_classic_joins_fill_to_limit(strict: Group, limited: Group) -> None:
    """If many classic clients join at once, only as many succeed as there are free places."""
    outcomes = crowding_classically(limited)
    assert outcomes == {0: 2, int(FULL): JOINERS - 2}
    assert outcomes == crowding_classically(strict)
