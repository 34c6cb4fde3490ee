"""Kafka's newest client and broker, in the versions that came with them: what the sidecar must read, and nothing amiss.

It commits offsets in transactions by topic ids (KIP-1319), and names the node that it means to reach (KIP-1242).
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.kafka.broker import JVM_FLAGS, KafkaBroker
from tests.kafka.maven import kafka_jars
from tests.kafka.processes import PATIENCE, Address, free_addresses, spelled
from tests.kafka.releases import NEWEST
from tests.kafka.sidecar import SidecarProcess
from tests.kafka.topics import make_topic
from tests.kafka.wire import ask

RECORDS = 5


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of the newest release, with two topics."""
    with KafkaBroker(tmp_path_factory.mktemp("newest")) as broker:
        broker.wait_for_coordinator()
        for topic in ("source", "sink"):
            make_topic(broker, topic, 1)
        yield broker


@pytest.fixture(scope="module", params=["sidecar", "gateway"])
def before(
    newest: KafkaBroker, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SidecarProcess]:
    """In either mode before it."""
    [port] = free_addresses(1)
    listen = newest.sidecar if request.param == "sidecar" else port
    settings = {"mode": request.param, "answers": {"exclusive": True}}
    folder = tmp_path_factory.mktemp(request.param)
    with SidecarProcess(folder, listen=listen, upstream=newest.client, settings=settings) as sidecar:
        sidecar.wait_for_log()
        yield sidecar


def exchanged(address: Address, group: str, protocol: str) -> list[str]:
    """Runs one loop of Kafka's own client; gives the lines that it prints."""
    source = Path(__file__).with_name("Exchange.java")
    place = [spelled(address), group, protocol, "source", "sink", str(RECORDS)]
    command = ["java", *JVM_FLAGS, "-cp", f"{kafka_jars(NEWEST)}/*", str(source), *place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1:]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_transactions_of_the_newest_client_are_followed(
    newest: KafkaBroker, before: SidecarProcess, protocol: str
) -> None:
    """Its offsets are told from the copy afterwards, and nothing of what it said was not understood."""
    group = f"{protocol} by {before.file.parent.name}"
    [committed] = exchanged(before.listen, group, protocol)
    asked = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),), require_stable=True)
    answered = before.metric("group_sidecar_local_answers_total")
    for request, version in (
        (asked, 9),
        (ListGroupsRequest(), 5),
        (DescribeGroupsRequest(groups=(group,)), 6),
    ):
        assert ask(before.listen, request, version) == ask(newest.direct, request, version)
    assert before.metric("group_sidecar_local_answers_total") - answered == 3
    [told] = ask(before.listen, asked, 9).groups
    [[partition]] = [topic.partitions for topic in told.topics]
    assert committed == f"0 {partition.committed_offset}"
    assert before.metric("group_sidecar_decode_failures_total") == 0
    assert before.metric("group_sidecar_groups_incomplete") == 0


def test_group_deleted_in_the_newest_version_is_gone(newest: KafkaBroker, before: SidecarProcess) -> None:
    """DeleteGroups v3 tells an error message per group."""
    group = f"deleted by {before.file.parent.name}"
    exchanged(before.listen, group, "classic")
    answered = before.metric("group_sidecar_local_answers_total")
    [result] = ask(before.listen, DeleteGroupsRequest(groups_names=(group,)), 3).results
    assert (result.error_code, result.error_message) == (0, None)
    [left] = ask(before.listen, DescribeGroupsRequest(groups=(group,)), 6).groups
    assert left.group_state == "Dead"
    assert before.metric("group_sidecar_local_answers_total") - answered == 1
