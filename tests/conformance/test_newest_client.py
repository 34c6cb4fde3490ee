"""Kafka's newest client and broker use their newest API versions, and the sidecar decodes them without failures.

The client commits offsets in transactions by topic ids (KIP-1319), and names the node that it addresses (KIP-1242).
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.codecs.schema import Struct
from tests.conformance.differential.comparison import in_order
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import until
from tests.kafka.java import java
from tests.kafka.processes import GIVE_UP_SECONDS, Address, free_addresses, host_port
from tests.kafka.releases import NEWEST
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic
from tests.kafka.wire import ask

RECORDS = 5


class Stage(NamedTuple):
    """A broker of the newest release with two topics, and the sidecar through which all clients connect."""

    broker: KafkaBroker
    sidecar: SidecarProcess


@pytest.fixture(scope="module", params=["sidecar", "gateway"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage for each mode of the sidecar."""
    folder = tmp_path_factory.mktemp(request.param)
    with KafkaBroker(folder / "broker") as broker:
        broker.wait_for_coordinator()
        for topic in ("source", "sink"):
            make_topic(broker, topic, 1)
        [port] = free_addresses(1)
        listen, upstream = (broker.sidecar, broker.client) if request.param == "sidecar" else (port, broker.direct)
        settings = {"mode": request.param, "answers": {"exclusive": True}}
        with SidecarProcess(folder, listen=listen, upstream=upstream, settings=settings) as sidecar:
            sidecar.wait_for_log()
            yield Stage(broker, sidecar)


def exchanged(address: Address, group: str, protocol: str) -> list[str]:
    """Runs one loop of Kafka's own client. Returns the lines of its output."""
    source = Path(__file__).with_name("Exchange.java")
    place = [host_port(address), group, protocol, "source", "sink", str(RECORDS)]
    command = [*java(NEWEST), str(source), *place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1:]


def answered_locally(sidecar: SidecarProcess, request: Struct, version: int) -> Any:
    """Asks until the sidecar answers from its copy. Returns the answer."""
    answers: list[Any] = []

    def local() -> bool:
        count = sidecar.metric("group_sidecar_mirror_answers_total")
        answers.append(ask(sidecar.listen, request, version))
        return sidecar.metric("group_sidecar_mirror_answers_total") > count

    until(local, f"{type(request).__name__} is answered by the sidecar")
    return answers[-1]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_newest_client_transactions_are_followed(stage: Stage, protocol: str) -> None:
    """After transactions of the newest client, the sidecar's own answers equal the broker's, and no decode failure is
    counted.
    """
    broker, sidecar = stage
    [committed] = exchanged(sidecar.listen, protocol, protocol)
    question = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=protocol, topics=None),), require_stable=True
    )
    described = DescribeGroupsRequest(groups=(protocol,))
    for request, version in ((question, 9), (ListGroupsRequest(), 5), (described, 6)):
        reply = answered_locally(sidecar, request, version)
        assert in_order(reply) == in_order(ask(broker.direct, request, version))
    [offsets] = ask(sidecar.listen, question, 9).groups
    [[partition]] = [topic.partitions for topic in offsets.topics]
    assert committed == f"0 {partition.committed_offset}"
    assert sidecar.metric("group_sidecar_decode_failures_total") == 0


def test_group_deleted_by_v3_is_dead(stage: Stage) -> None:
    """A group deleted by DeleteGroups v3, which has an error message per group, is described as Dead without a decode
    failure.
    """
    _, sidecar = stage
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="source", partitions=(offset,))
    ask(sidecar.listen, OffsetCommitRequest(group_id="deleted", topics=(topic,)), 9)
    [result] = ask(sidecar.listen, DeleteGroupsRequest(groups_names=("deleted",)), 3).results
    assert (result.error_code, result.error_message) == (0, None)
    described = DescribeGroupsRequest(groups=("deleted",))
    [left] = ask(sidecar.listen, described, 5).groups
    assert left.group_state == "Dead"
    assert sidecar.metric("group_sidecar_decode_failures_total") == 0
