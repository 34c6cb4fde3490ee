"""Refusals of a real broker by the rules of the policies, as a sidecar in front of it counts and records them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import MINUTES, ClassicMember, ConsumerMember
from tests.kafka.processes import host_port
from tests.kafka.sidecar_process import SidecarProcess

TOPIC = "t"
PROPERTIES = {"group.max.size": "1", "group.consumer.max.size": "1", "offset.metadata.max.bytes": "5"}
AUDITED = {
    "group_max_size": {"limit": 1, "consumer_max_size": 1, "mode": "audit"},
    "offset_metadata_max_bytes": {"limit": 5, "mode": "audit"},
}
FULL, TOO_LONG = (
    ("group_max_size", "GROUP_MAX_SIZE_REACHED"),
    ("offset_metadata_max_bytes", "OFFSET_METADATA_TOO_LARGE"),
)


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[SidecarProcess]:
    """A new sidecar in front of a broker with limits. The sidecar has the same limits in audit mode."""
    with KafkaBroker(tmp_path / "broker", properties=PROPERTIES) as broker:
        broker.wait_for_coordinator()
        admin = AdminClient({"bootstrap.servers": host_port(broker.direct)})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        settings = {"policies": AUDITED}
        with SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client, settings=settings) as sidecar:
            yield sidecar


@pytest.fixture
def client(sidecar: SidecarProcess) -> Client:
    return Client(sidecar.listen, Dialect.of(sidecar.listen))


def counted(sidecar: SidecarProcess, family: str) -> dict[tuple[str, str], float]:
    """Returns the non-zero counters by policy and error."""
    samples = sidecar.samples(f"group_sidecar_policy_{family}_total")
    return {(s.labels["policy"], s.labels["error"]): s.value for s in samples if s.value}


def timeline(sidecar: SidecarProcess, group: str) -> list[dict[str, Any]]:
    """Returns the flight recorder's entries of a group."""
    events: list[dict[str, Any]] = sidecar.group_json("timeline", group)["timeline"]
    return events


def test_broker_refusals_are_counted_apart(sidecar: SidecarProcess, client: Client) -> None:
    """Refusals by the broker are counted apart from audited ones, and the timeline contains them."""
    group = "classic & full/ü"
    with ClassicMember(client, group, TOPIC) as first, ClassicMember(client, group, TOPIC, instance_id="i") as second:
        first.join()
        first.sync()
        second.send_join()
        assert second.receive_join().error_code == 81
        assert first.commit({0: 1}).topics[0].partitions[0].error_code == 12
        events = timeline(sidecar, group)
    assert counted(sidecar, "broker_rejections") == {FULL: 1, TOO_LONG: 1}
    assert counted(sidecar, "audited_rejections") == {
        ("group_max_size", "GROUP_MAX_SIZE_REACHED_KIP_389"): 1,
        TOO_LONG: 1,
    }
    assert counted(sidecar, "rejections") == {}
    assert [entry["what"] for entry in events] == [
        *("rebalance_started", "member_joined", "rebalance_completed"),
        *("client_audited", "client_audited", "offsets_committed"),
    ]
    assert events[3].items() >= {"size": 1, "limit": 1, "policy": "group_max_size", "client_host": "/127.0.0.1"}.items()


def test_full_consumer_group_is_refused(sidecar: SidecarProcess, client: Client) -> None:
    """A broker's refusal of a full consumer group is counted, and the metrics show the group near its limit."""
    before = counted(sidecar, "broker_rejections")
    with ConsumerMember(client, "new", (TOPIC,)) as first:
        first.join()
        join = ConsumerGroupHeartbeatRequest(
            group_id="new",
            member_id="second",
            member_epoch=0,
            rebalance_timeout_ms=MINUTES,
            subscribed_topic_names=(TOPIC,),
            topic_partitions=(),
        )
        assert client.ask(join).error_code == 81
        # The log contains the members of the group.
        until(
            lambda: sidecar.metric("group_sidecar_groups_near_limit") == 1, "the sidecar knows the group's only member"
        )
        assert sidecar.metric("group_sidecar_groups_over_limit") == 0
        assert sidecar.metric("group_sidecar_group_members", group="new") == 1
        assert sidecar.metric("group_sidecar_group_members_limit", group="new") == 1
    assert counted(sidecar, "broker_rejections") == {**before, FULL: before.get(FULL, 0) + 1}
