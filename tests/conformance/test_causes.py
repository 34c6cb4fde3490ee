"""Real clients provoke each cause of a rebalance at a real broker, and the sidecar reports the cause."""

import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.conformance import test_kafka_python as kafka_python
from tests.conformance.cause_scenarios import QUICK, Cells, Scene, clients, java_consumer
from tests.conformance.librdkafka import consumer, create_topic, poll_until, produce, settled
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import until
from tests.kafka.group_members import ClassicMember, ConsumerMember
from tests.kafka.processes import host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import kafka_tool

LIMITED = {"policies": {"group_max_size": {"limit": 100, "overrides": [{"pattern": ".*-limited", "limit": 1}]}}}
RESETTER = "org.apache.kafka.tools.StreamsResetter"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("quick-broker"), properties=QUICK) as broker:
        broker.wait_for_coordinator()
        yield broker


@pytest.fixture(scope="module")
def sidecar(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    folder = tmp_path_factory.mktemp("quick-sidecar")
    with SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=LIMITED) as sidecar:
        sidecar.wait_for_log()
        yield sidecar


@pytest.fixture
def scene(broker: KafkaBroker, sidecar: SidecarProcess) -> Scene:
    return Scene(broker, sidecar)


def caused_by(event: Cells) -> str:
    """Returns the client id of the client that caused a rebalance."""
    return str(event["by"]["client_id"])


# Java.


def test_java_consumers(scene: Scene) -> None:
    """The causes of Java consumers' rebalances are reported with the reasons that Java states (KIP-800)."""
    topic = create_topic(scene.run, "topic", 2)
    quick: dict[str, Any] = {"metadata_max_age_ms": 300, "session_timeout_ms": 1000, "heartbeat_interval_ms": 200}
    quick["auto_commit_interval_ms"] = 100
    with java_consumer(scene, topic, "first", **quick):
        came = scene.rebalanced("new_member")
        assert (caused_by(came), came["members"], came["joined"], came["reason"]) == ("first", 1, 1, "join")
        assert came["by"]["client_host"] == "/127.0.0.1"
        scene.add_partitions(topic, 4)
        more = scene.rebalanced("topic_metadata")
        assert (caused_by(more), more["said"], more["moved_partitions"]) == ("first", "cached metadata has changed", 0)
        with java_consumer(scene, topic, "second", **quick) as second:
            came = scene.rebalanced("new_member", 2)
            assert (caused_by(came), came["members"], came["joined"], came["moved_partitions"]) == ("second", 2, 1, 2)
            assert came["slowest"]["client_id"] == "first", (
                "the old member learns of the rebalance only at its next heartbeat"
            )
            assert came["slowest"]["seconds"] <= came["duration_seconds"]
            second.send_signal(signal.SIGTERM)
            left = scene.rebalanced("member_left")
        assert (caused_by(left), left["said"], left["gone"]) == ("second", "the consumer is being closed", 1)
        [gone] = scene.events("member_gone")
        assert (gone["client_id"], gone["how"], gone["said"]) == ("second", "left", left["said"])
        with java_consumer(scene, topic, "third", **quick) as third:
            came = scene.rebalanced("new_member", 3)
            # If a member sends nothing after its join, the broker may end its session earlier than the sidecar expects.
            scene.until(lambda: scene.has_committed("third", came["at"]))
            third.kill()
            expired = scene.rebalanced("session_expired")
        assert (caused_by(expired), expired["reason"], expired["gone"]) == ("third", "expired", 1)
        assert scene.events("member_gone")[-1]["how"] == "expired"


def test_java_poll_timeout(scene: Scene) -> None:
    """A Java consumer that does not poll is reported as leaving with its reason."""
    topic = create_topic(scene.run, "topic", 2)
    produce(scene.run, "topic", ["x" * 10_000] * 100)
    settings = {"auto_offset_reset": "earliest", "max_poll_interval_ms": 1000}
    with consumer(scene.run, "group", ["topic"], client_id="steady") as steady:
        poll_until([steady], settled([steady], 2), "both partitions")
        with java_consumer(scene, topic, "stuck", reads=False, partition_assignment_strategy=RANGE, **settings):
            poll_until([steady], lambda _: bool(scene.events("rebalance_completed", cause="member_left")), "a leave")
    [left] = scene.events("rebalance_completed", cause="member_left")
    assert (caused_by(left), left["said"]) == ("stuck", "consumer poll timeout has expired.")


RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


def test_java_removes_all_members(scene: Scene) -> None:
    """The Java streams resetter's removal of all members is reported as REMOVED_BY_CLIENT with its reason."""
    topic = create_topic(scene.run, "topic")
    with ClassicMember(scene.client("one"), scene.group, topic) as member:
        member.join()
        member.sync()
        place = ("--bootstrap-server", host_port(scene.sidecar.listen), "--application-id", scene.group)
        kafka_tool(RESETTER, *place, "--input-topics", topic, "--force")
        gone = scene.wait_for("member_gone")
        member.member_id = ""
    assert (gone["client_id"], gone["how"], gone["said"]) == ("one", "kicked", "member was removed by an admin")


# librdkafka.


def test_librdkafka_consumers(scene: Scene) -> None:
    """The causes of librdkafka consumers' rebalances are reported: new member, changed subscription and leave."""
    for name, partitions in (("topic", 4), ("other", 1)):
        create_topic(scene.run, name, partitions)
    with consumer(scene.run, "group", ["topic"], client_id="first") as first:
        poll_until([first], settled([first], 4), "all partitions")
        assert caused_by(scene.rebalanced("new_member")) == "first"
        with consumer(scene.run, "group", ["topic"], client_id="second") as second:
            poll_until([first, second], settled([first, second], 4), "half of the partitions each")
            came = scene.rebalanced("new_member", 2)
            assert (caused_by(came), came["moved_partitions"], came["protocol"]) == ("second", 2, "range")
            second.subscribe([scene.run.name("topic"), scene.run.name("other")])
            poll_until(
                [first, second],
                lambda _: bool(scene.events("rebalance_completed", cause="subscription_changed")),
                "a changed subscription",
            )
            assert caused_by(scene.rebalanced("subscription_changed")) == "second"
        poll_until([first], settled([first], 4), "all partitions again")
        left = scene.rebalanced("member_left")
        assert (caused_by(left), left["said"], left["gone"]) == ("second", "", 1)


def test_librdkafka_finds_more_partitions(scene: Scene) -> None:
    """New partitions that librdkafka finds are reported as TOPIC_METADATA from the assignments, without a stated
    reason.
    """
    topic = create_topic(scene.run, "topic", 2)
    with consumer(scene.run, "group", ["topic"], client_id="c", topic_metadata_refresh_interval_ms=300) as client:
        poll_until([client], settled([client], 2), "all partitions")
        scene.add_partitions(topic, 3)
        poll_until([client], settled([client], 3), "the new partition")
    event = scene.rebalanced("topic_metadata")
    assert (caused_by(event), event["said"], event["moved_partitions"]) == ("c", "", 0)


def test_librdkafka_revokes_partitions(scene: Scene) -> None:
    """librdkafka's cooperative rebalance is reported as PARTITIONS_REVOKED."""
    create_topic(scene.run, "topic", 4)
    settings: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
    with consumer(scene.run, "group", ["topic"], client_id="a", **settings) as a:
        poll_until([a], settled([a], 4), "all partitions")
        with consumer(scene.run, "group", ["topic"], client_id="b", **settings) as b:
            poll_until([a, b], settled([a, b], 4), "half of the partitions each")
        came, given_up = scene.rebalanced("new_member", 2), scene.rebalanced("partitions_revoked")
    assert (caused_by(came), came["moved_partitions"], caused_by(given_up)) == ("b", 2, "a")


def follow(scene: Scene, shares: Mapping[ConsumerMember, int]) -> None:
    """Makes members take their assignments until each has its number of partitions and the rebalance is complete."""

    def over() -> bool:
        for member in shares:
            member.take()
        each = [sum(map(len, member.assigned.values())) for member in shares]
        whats = [cell["what"] for cell in scene.timeline() if cell["what"].startswith("rebalance")]
        return each == list(shares.values()) and whats[-1:] == ["rebalance_completed"]

    scene.until(over)


def test_consumer_group_joins_and_leaves(scene: Scene) -> None:
    """Joins and leaves in a consumer group are reported with cause, members and moved partitions."""
    topic = create_topic(scene.run, "topic", 2)
    with (
        ConsumerMember(scene.client("a"), scene.group, (topic,)) as a,
        ConsumerMember(scene.client("b"), scene.group, (topic,)) as b,
    ):
        a.join()
        follow(scene, {a: 2})
        came = scene.rebalanced("new_member")
        assert (caused_by(came), came["members"], came["joined"]) == ("a", 1, 1)
        b.join()
        follow(scene, {a: 1, b: 1})
        came = scene.rebalanced("new_member", 2)
        assert (caused_by(came), came["members"], came["moved_partitions"]) == ("b", 2, 1)
        b.leave()
        follow(scene, {a: 2})
        left = scene.rebalanced("member_left")
        assert (caused_by(left), left["gone"], left["moved_partitions"]) == ("b", 1, 1)
    scene.wait_for("member_gone", 2, how="left")


def test_consumer_member_expires(scene: Scene) -> None:
    """A consumer group member that disappears is reported as SESSION_EXPIRED."""
    topic = create_topic(scene.run, "topic", 2)
    with (
        ConsumerMember(scene.client("a"), scene.group, (topic,)) as a,
        ConsumerMember(scene.client("b"), scene.group, (topic,)) as b,
    ):
        for member, shares in ((a, {a: 2}), (b, {a: 1, b: 1})):
            member.join()
            follow(scene, shares)
        follow(scene, {a: 2})
        b.vanish()
    assert caused_by(scene.rebalanced("session_expired")) == "b"
    assert clients(scene.events("member_gone", how="expired")) == ["b"]


# kafka-python.


def test_kafka_python_consumers(scene: Scene) -> None:
    """The causes of kafka-python consumers' rebalances are reported: new member and leave."""
    create_topic(scene.run, "topic", 2)
    with kafka_python.consumer(scene.run, "group", "topic", client_id="first") as first:
        kafka_python.poll_until([first], lambda _: len(first.assignment()) == 2, "both partitions")
        with kafka_python.consumer(scene.run, "group", "topic", client_id="second") as second:
            both = [first, second]
            kafka_python.poll_until(
                both, lambda _: kafka_python.shares(both) in ([[0], [1]], [[1], [0]]), "one partition for each member"
            )
        kafka_python.poll_until([first], lambda _: len(first.assignment()) == 2, "both partitions again")
    came = scene.rebalanced("new_member", 2)
    assert (caused_by(came), came["joined"], came["moved_partitions"]) == ("second", 1, 1)
    assert caused_by(scene.rebalanced("member_left")) == "second"


# Raw frames, for steps that none of these clients does on request.


class Speaker(ClassicMember):
    """A member whose protocols a test can change."""

    speaks: tuple[str, ...] = ("range", "sticky")


def together(first: ClassicMember, second: ClassicMember) -> None:
    """The second member joins the group that the first member leads. Both complete the next generation."""
    second.send_join()
    until(lambda: first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances")
    first.send_join()
    for member in (first, second):
        assert member.receive_join().error_code == 0
    for member in (second, first):
        member.send_sync()
    for member in (first, second):
        assert member.receive_sync().error_code == 0


def alone(member: ClassicMember) -> None:
    member.join()
    member.sync()


def test_static_restart_with_other_protocols(scene: Scene) -> None:
    """A static member that returns with other protocols is reported as STATIC_REPLACED and FENCED."""
    topic = create_topic(scene.run, "topic", 2)
    with (
        Speaker(scene.client("leader"), scene.group, topic) as leader,
        Speaker(scene.client("static"), scene.group, topic, instance_id="i") as static,
    ):
        alone(leader)
        together(leader, static)
        static.vanish()
        static.reconnect(scene.client("static"))
        static.speaks = ("sticky",)
        together(leader, static)
    event = scene.rebalanced("static_replaced")
    assert (caused_by(event), event["by"]["instance_id"], event["joined"], event["gone"]) == ("static", "i", 0, 0)
    scene.wait_for("member_gone", how="fenced")


def test_leader_rejoins(scene: Scene) -> None:
    """A leader that rejoins is reported as LEADER_REJOINED."""
    topic = create_topic(scene.run, "topic", 2)
    with ClassicMember(scene.client("leader"), scene.group, topic) as leader:
        alone(leader)
        alone(leader)
    event = scene.rebalanced("leader_rejoined")
    assert (caused_by(event), event["moved_partitions"], event["slowest"]) == ("leader", 0, None)


def test_admin_removes_one_member(scene: Scene) -> None:
    """A member that an admin removes is reported as MEMBER_REMOVED and REMOVED_BY_CLIENT with its reason."""
    topic = create_topic(scene.run, "topic", 2)
    with (
        ClassicMember(scene.client("leader"), scene.group, topic) as leader,
        ClassicMember(scene.client("other"), scene.group, topic) as other,
    ):
        alone(leader)
        together(leader, other)
        named = MemberIdentity(member_id=other.member_id, reason="it is in the way")
        scene.client("an-admin").ask(LeaveGroupRequest(group_id=scene.group, members=(named,)))
        other.member_id = ""
        alone(leader)
    event = scene.rebalanced("member_removed")
    assert (caused_by(event), event["said"], event["gone"], event["reason"]) == (
        "other",
        "it is in the way",
        1,
        "leave",
    )
    assert clients(scene.events("member_gone", how="kicked")) == ["other"]


def test_member_rejoins_too_late(scene: Scene) -> None:
    """A member that does not rejoin in time is reported as DROPPED after the rebalance timeout."""
    topic = create_topic(scene.run, "topic", 2)
    with (
        ClassicMember(scene.client("leader"), scene.group, topic, rebalance_ms=1000) as leader,
        ClassicMember(scene.client("late"), scene.group, topic, rebalance_ms=1000) as late,
    ):
        alone(leader)
        together(leader, late)
        alone(leader)  # This takes as long as the broker waits for the other member.
        late.member_id = ""
    event = scene.rebalanced("leader_rejoined")
    assert (event["gone"], event["members"]) == (1, 1)
    assert event["duration_seconds"] >= 0.9
    assert clients(scene.events("member_gone", how="dropped")) == ["late"]


def test_failed_commit_is_reported(scene: Scene) -> None:
    """A commit with an old generation is reported with its refused partitions."""
    topic = create_topic(scene.run, "topic", 2)
    with ClassicMember(scene.client("behind"), scene.group, topic) as member:
        alone(member)
        member.generation -= 1
        member.commit({0: 5, 1: 6})
    failed = scene.wait_for("offsets_committed")
    assert failed["refused"] == [{"error_code": 22, "error": "ILLEGAL_GENERATION", "partitions": 2}]


def test_refused_client_is_reported(scene: Scene) -> None:
    """A client that the group size limit refuses is reported with size and limit."""
    topic = create_topic(scene.run, "topic", 2)
    scene.stem = "limited"
    with (
        ClassicMember(scene.client("first"), scene.group, topic) as first,
        ClassicMember(scene.client("second"), scene.group, topic, instance_id="i") as second,
    ):
        alone(first)
        second.send_join()
        assert second.receive_join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED_KIP_389
    refused = scene.wait_for("client_refused")
    assert (refused["client_id"], refused["size"], refused["limit"]) == ("second", 1, 1)
    assert scene.events("rebalance_completed", cause="new_member")[-1]["members"] == 1
