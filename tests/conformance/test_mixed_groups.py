"""A group with members of both protocols (KIP-848) loses its last member of the new protocol: an online downgrade.

The broker then turns the group into a classic one and begins a rebalance (`convertToClassicGroup`). No reply shows the
change. The first sign is a record of the offsets topic.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.coordinator.state.log_partitions import partition_for
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import ClassicMember, ConsumerMember, commit
from tests.kafka.processes import Address
from tests.kafka.releases import NEWEST
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic
from tests.kafka.wire import ask

SESSION_MS = "2000"
"""Milliseconds without a heartbeat after which the broker removes a member of the new protocol."""
PARTITIONS = 50
"""The number of partitions of the offsets topic."""
TOPIC, GROUP = "topic", "mixed"
EXCLUSIVE = {"answers": {"exclusive": True}}
DOWNGRADE = {
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.migration.policy": "bidirectional",
}


@pytest.fixture(params=[NEWEST, "4.3.1"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[KafkaBroker, SidecarProcess]]:
    with (
        KafkaBroker(tmp_path / "broker", version=request.param, properties=DOWNGRADE) as broker,
        SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client, settings=EXCLUSIVE) as sidecar,
    ):
        broker.wait_for_coordinator()
        make_topic(broker, TOPIC, 2)
        sidecar.wait_for_log()
        yield broker, sidecar


def described(address: Address) -> str:
    """Returns the group's state in DescribeGroups; "" if the broker reports that the group is not classic."""
    [group] = ask(address, DescribeGroupsRequest(groups=(GROUP,)), 5).groups
    return str(group.group_state) if not group.error_code else ""


def listed(address: Address) -> list[ListedGroup]:
    groups = ask(address, ListGroupsRequest(), 5).groups
    return [group for group in groups if group.group_id == GROUP]


def of_the_same_partition() -> str:
    """Returns another group whose records are in the same partition of the offsets topic as those of `GROUP`."""
    names = (f"other-{number}" for number in count())
    wanted = partition_for(GROUP, PARTITIONS)
    return next(name for name in names if partition_for(name, PARTITIONS) == wanted)


def wait_until_read(broker: KafkaBroker, sidecar: SidecarProcess) -> None:
    """Waits until the sidecar has read all records that the broker has written to the group's partition so far."""
    other = of_the_same_partition()
    commit(Client(broker.direct, Dialect.of(broker.direct)), other, TOPIC, {0: 7})
    question = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=other, topics=None),))
    answers = "group_sidecar_mirror_answers_total"

    def own_answer_has_it() -> bool:
        before = sidecar.metric(answers, api="OffsetFetch")
        [group] = ask(sidecar.listen, question, 8).groups
        return sidecar.metric(answers, api="OffsetFetch") > before and bool(group.topics)

    until(own_answer_has_it, "the sidecar has read the log")


def test_downgrade_by_expiry_is_reported(
    house: tuple[KafkaBroker, SidecarProcess],
) -> None:
    """After the log has shown that the last new member has expired, the sidecar reports the rebalance as the
    broker does.
    """
    broker, sidecar = house
    client = Client(sidecar.listen, Dialect.of(sidecar.listen))
    with ConsumerMember(client, GROUP, (TOPIC,)) as new, ClassicMember(client, GROUP, TOPIC) as classic:
        new.join()
        classic.join()
        classic.sync()
        assert listed(broker.direct)[0].group_type == "consumer"
        new.vanish()
        until(lambda: described(broker.direct) == GroupState.PREPARING_REBALANCE, "the broker has converted the group")
        wait_until_read(broker, sidecar)
        assert described(sidecar.listen) == GroupState.PREPARING_REBALANCE
        assert listed(sidecar.listen) == listed(broker.direct)
        assert described(broker.direct) == GroupState.PREPARING_REBALANCE, (
            "the group's state changed during the comparison"
        )
