"""The admin port's JSON about groups of real consumers, of both protocols."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import ask

FALLBACKS = "group_sidecar_mirror_fallbacks_total"
TOPIC, RECORDS, LEFT = "sales", 10, 4


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[SidecarProcess]:
    with KafkaBroker(tmp_path / "broker") as broker:
        broker.wait_for_coordinator()
        client: dict[str, str | int | float | bool] = {"bootstrap.servers": host_port(broker.direct)}
        admin = AdminClient(client)  # The client's pending requests end when nothing refers to the client.
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result()
        producer = Producer(client)
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number), partition=0)
        producer.flush()
        with SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client) as sidecar:
            sidecar.wait_for_log()
            yield sidecar


def get_content(sidecar: SidecarProcess, target: str) -> Any:
    status, body = sidecar.get(f"/api/v1/{target}")
    return json.loads(body) if status == 200 else None


def reader(sidecar: SidecarProcess, group: str, protocol: str) -> Consumer:
    """Returns a consumer that connects to the sidecar. The caller subscribes and closes it."""
    settings: dict[str, Any] = {
        "bootstrap.servers": host_port(sidecar.listen),
        "group.id": group,
        "client.id": "reader",
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    return Consumer(settings)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_member_and_lag_in_json(sidecar: SidecarProcess, protocol: str) -> None:
    """The admin port's JSON reports the state, member, offsets and lag of a real consumer's group in both protocols."""
    group = f"{protocol} / größe"
    of_group = f"?group={quote(group, safe='')}"
    consumer = reader(sidecar, group, protocol)
    try:
        consumer.subscribe([TOPIC])
        for _ in range(RECORDS - LEFT):
            message = consumer.poll(GIVE_UP_SECONDS)
            assert message is not None
            assert message.error() is None
            consumer.commit(message=message, asynchronous=False)

        def is_settled() -> bool:
            consumer.poll(0)
            content = get_content(sidecar, f"group{of_group}")
            known = content is not None and content["state"] == "Stable" and content["lag"] is not None
            return bool(known and content["member_list"] and content["member_list"][0]["assignment"])

        sidecar.process.wait_until(is_settled)
        content = get_content(sidecar, f"group{of_group}")
        assert (content["protocol"], content["members"], content["lag"]) == (protocol, 1, LEFT)
        (member,) = content["member_list"]
        assert (member["client_id"], member["client_host"]) == ("reader", "/127.0.0.1")
        assert member["assignment"] == {TOPIC: [0, 1]}
        first, second = get_content(sidecar, f"offsets{of_group}")["offsets"]
        assert (first["current_offset"], first["log_end_offset"], first["lag"]) == (RECORDS - LEFT, RECORDS, LEFT)
        assert (second["current_offset"], second["lag"]) == (None, None)
        assert first["member_id"] == second["member_id"] == member["member_id"]

        def says_the_same() -> bool:
            content, found = (
                get_content(sidecar, f"group{of_group}"),
                get_content(sidecar, "groups?search=GR%C3%96")["groups"],
            )
            (summary,) = (each for each in found if each["group"] == group)
            return bool(summary == {name: content[name] for name in summary})

        sidecar.process.wait_until(says_the_same)  # The admin port's list of groups may be up to a second old.
    finally:
        consumer.close()


def test_default_settings_show_not_exclusive(sidecar: SidecarProcess) -> None:
    """With default settings, page, JSON and metric name the reason `not_exclusive` for a classic group, and not for
    offsets and a consumer group, which the sidecar knows from the log.
    """
    readers = [reader(sidecar, protocol, protocol) for protocol in ("classic", "consumer")]
    try:
        for consumer in readers:
            consumer.subscribe([TOPIC])

        def reasons() -> dict[str, tuple[str | None, str | None]]:
            for consumer in readers:
                consumer.poll(0.05)
            found = get_content(sidecar, "groups")["groups"]
            stable = (each for each in found if each["state"] == "Stable")
            return {each["group"]: (each["lacking"], each["offsets_lacking"]) for each in stable}

        expected = {"classic": ("not_exclusive", None), "consumer": (None, None)}
        sidecar.process.wait_until(lambda: reasons() == expected)
        for api, question in (
            ("DescribeGroups", DescribeGroupsRequest(groups=("classic",))),
            ("ListGroups", ListGroupsRequest()),
        ):

            def counted(api: str = api, question: Any = question) -> bool:
                ask(sidecar.listen, question, 4)
                return sidecar.metric(FALLBACKS, api=api, reason="not_exclusive") > 0

            sidecar.process.wait_until(counted)  # The reason is `unauthorized` until the broker's ACLs are known.
            assert sidecar.metric(FALLBACKS, api=api, reason="cold") == 0
        sidecar.process.wait_until(lambda: get_content(sidecar, "status")["fallbacks"]["not_exclusive"] >= 2)
        assert "Left to the broker: not exclusive" in " ".join(sidecar.get("/status")[1].split())
        assert "<b>not exclusive</b> for its members" in sidecar.get("/group?group=classic")[1]
    finally:
        for consumer in readers:
            consumer.close()
