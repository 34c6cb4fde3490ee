"""Clients that bypass the sidecar delete topics and create them again. The sidecar reports the broker's topic ids."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.conformance.new_protocol import new_member
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import until
from tests.kafka.processes import GIVE_UP_SECONDS, Address, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic
from tests.kafka.wire import ask

ANSWERED = "group_sidecar_mirror_answers_total"


class Stage:
    """A broker, the sidecar in front of it, and questions to both."""

    def __init__(self, broker: KafkaBroker, sidecar: SidecarProcess) -> None:
        self.broker, self.sidecar = broker, sidecar
        self.run = Run(Route("direct", broker.direct, broker.direct), f"t{secrets.token_hex(5)}")
        self.admin = AdminClient({"bootstrap.servers": host_port(broker.direct)})

    def make(self, topic: str) -> UUID:
        """Creates a topic. Returns its id."""
        make_topic(self.broker, topic)
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        [fetch] = ask(self.broker.direct, request, 12).topics
        topic_id: UUID = fetch.topic_id
        return topic_id

    def delete(self, topic: str) -> None:
        """Deletes a topic, and waits until the broker no longer reports it."""
        self.admin.delete_topics([topic])[topic].result(GIVE_UP_SECONDS)

        def gone() -> bool:
            return topic not in {each.name for each in ask(self.broker.direct, MetadataRequest(topics=None), 12).topics}

        until(gone, f"{topic} is gone")

    def commit(self, group: str, topic: str, offset: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = (OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
        ask(self.broker.direct, OffsetCommitRequest(group_id=group, topics=topics), 8)

    def fetch(self, address: Address, group: str, *ids: UUID) -> list[tuple[UUID, int, int]]:
        """Returns id, offset and error of each requested topic; of all topics if none is named."""
        topics = tuple(OffsetFetchRequestTopic(topic_id=topic_id, partition_indexes=(0,)) for topic_id in ids)
        request_group = OffsetFetchRequestGroup(group_id=group, topics=topics or None)
        [reply] = ask(address, OffsetFetchRequest(groups=(request_group,)), 10).groups
        return [(t.topic_id, p.committed_offset, p.error_code) for t in reply.topics for p in t.partitions]

    def answers(self, question: Callable[[], object], api: str) -> None:
        """Repeats a question until the sidecar answers it itself."""

        def own() -> bool:
            before = self.sidecar.metric(ANSWERED, api=api)
            question()
            return self.sidecar.metric(ANSWERED, api=api) > before

        until(own, f"the sidecar answers {api}")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A sidecar that is not `exclusive`: clients may bypass it."""
    folder = tmp_path_factory.mktemp("ids")
    with (
        KafkaBroker(folder / "broker") as broker,
        SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client) as sidecar,
    ):
        broker.wait_for_coordinator()
        sidecar.wait_for_log()
        yield Stage(broker, sidecar)


def test_recreated_topic_id(stage: Stage) -> None:
    """OffsetFetch by the id of a deleted and recreated topic reports UNKNOWN_TOPIC_ID for the old id and the offset for
    the new id.
    """
    here, there = stage.sidecar.listen, stage.broker.direct
    topic, group, other = "recreated", "with-offset", "without-offset"
    old = stage.make(topic)
    stage.make("kept")
    stage.commit(group, topic, 5)
    stage.commit(other, "kept", 6)
    for name, offset in ((group, 5), (other, -1)):
        stage.answers(lambda name=name: stage.fetch(here, name, old), "OffsetFetch")  # type: ignore[misc]
        assert stage.fetch(here, name, old) == [(old, offset, 0)]
    stage.delete(topic)
    gone = [(old, -1, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert stage.fetch(there, group, old) == gone
    until(
        lambda: [stage.fetch(here, name, old) for name in (group, other)] == [gone, gone],
        "the sidecar knows of the deletion",
    )
    new = stage.make(topic)
    stage.commit(group, topic, 7)
    stage.answers(lambda: stage.fetch(here, group, new), "OffsetFetch")
    for name in (group, other):
        assert stage.fetch(here, name, old) == gone
        assert stage.fetch(here, name, new) == stage.fetch(there, name, new)
        assert stage.fetch(here, name) == stage.fetch(there, name)
    assert stage.fetch(here, group, new) == [(new, 7, 0)]


def test_deleted_topic_leaves_assignment(stage: Stage) -> None:
    """A deleted topic disappears from the assignments that the sidecar reports, as from those of the broker."""
    run = stage.run
    request = ConsumerGroupDescribeRequest(group_ids=(run.name("new"),), include_authorized_operations=False)

    def described(address: Address) -> DescribedGroup:
        group: DescribedGroup = ask(address, request, 1).groups[0]
        return group

    def topics(group: DescribedGroup) -> set[str]:
        return {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}

    stage.make(run.name("topic"))
    stage.make(run.name("doomed"))
    names = (run.name("topic"), run.name("doomed"))
    with ExitStack() as stack:
        member = stack.enter_context(new_member(run, "new", subscribed_topic_names=names))

        def owns_both() -> bool:
            member.follow()
            return topics(described(stage.broker.direct)) == {*names}

        until(owns_both, "the member owns both topics")
        stage.answers(lambda: described(stage.sidecar.listen), "ConsumerGroupDescribe")
        assert topics(described(stage.sidecar.listen)) == {*names}
        stage.delete(run.name("doomed"))
        until(
            lambda: topics(described(stage.broker.direct)) == {run.name("topic")},
            "the coordinator knows of the deletion",
        )
        until(
            lambda: topics(described(stage.sidecar.listen)) == {run.name("topic")}, "the sidecar knows of the deletion"
        )
        assert described(stage.sidecar.listen) == described(stage.broker.direct)
        member.follow()
