"""Writes that cannot be decoded put the copy in doubt. With a real broker, the doubt ends within seconds."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS, Address
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import ask

SETTINGS = {"answers": {"exclusive": True}}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    folder: Path = tmp_path_factory.mktemp("unread")
    with (
        KafkaBroker(folder / "broker") as broker,
        SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=SETTINGS) as sidecar,
    ):
        broker.wait_for_coordinator()
        sidecar.wait_for_log()
        yield sidecar


def send_junk(address: Address, api_key: int, body: bytes) -> None:
    """Sends a request that cannot be decoded, and waits until the broker closes the connection because of it."""
    header = struct.pack(">hhih", api_key, 1, 7, -1)
    frame = header + body
    with socket.create_connection(address, timeout=GIVE_UP_SECONDS) as stream:
        stream.sendall(struct.pack(">i", len(frame)) + frame)
        assert stream.recv(100) == b""


def answers(sidecar: SidecarProcess, api: str) -> float:
    """Returns how many questions of this API the sidecar has answered itself."""
    return sidecar.metric("group_sidecar_mirror_answers_total", api=api)


def wait_for_own(sidecar: SidecarProcess, api: str, request: object, version: int) -> None:
    """Waits until the sidecar answers this question itself."""
    before = answers(sidecar, api)

    def answered() -> bool:
        ask(sidecar.listen, request, version)  # type: ignore[arg-type]
        return answers(sidecar, api) > before

    sidecar.process.wait_until(answered)


@pytest.mark.parametrize("key", [ApiKey.TXN_OFFSET_COMMIT, ApiKey.DELETE_GROUPS, ApiKey.JOIN_GROUP])
def test_undecodable_requests_settle_in_seconds(sidecar: SidecarProcess, key: ApiKey) -> None:
    """After requests that cannot be decoded, the sidecar leaves the group list to the broker, and answers itself again
    within seconds.
    """
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="__consumer_offsets", partitions=(partition,))
    ask(sidecar.listen, OffsetCommitRequest(group_id="there", member_id="", topics=(topic,)), 2)
    unknown = DescribeGroupsRequest(groups=("nobody's",))
    wait_for_own(sidecar, "ListGroups", ListGroupsRequest(), 4)
    wait_for_own(sidecar, "DescribeGroups", unknown, 5)
    for _ in range(20):
        send_junk(sidecar.listen, key, b"\xff\xff\xff\xff\xff")
    before = answers(sidecar, "ListGroups")
    ask(sidecar.listen, ListGroupsRequest(), 4)
    assert answers(sidecar, "ListGroups") == before, "an undecodable request may have changed the list"
    wait_for_own(sidecar, "ListGroups", ListGroupsRequest(), 4)
    wait_for_own(sidecar, "DescribeGroups", unknown, 5)
