"""The scene in which one group is brought into its state.

Every exchange goes through the sidecar. The broker itself is only asked whether it has completed steps of its own.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.kafka.dialect import Client
from tests.kafka.group_members import ClassicMember, ConsumerMember, commit
from tests.kafka.share_and_streams_members import OtherMember
from tests.kafka.transactions import Transaction

LAST_SINGLE_FETCH = 7
"""The last version of OffsetFetch that asks for one group."""


@dataclass
class Scene:
    """The scene of one group.

    Args:
        client: a client that connects through the sidecar.
        direct: a client that connects to the broker itself.
        group: the unique name of the group.
        topic: a topic with four partitions.
        other_topic: a topic with one partition.
        stack: holds the members of the group. When it closes, the group becomes empty.
    """

    client: Client
    direct: Client
    group: str
    topic: str
    other_topic: str
    stack: ExitStack
    member: tuple[str, int] | None = field(default=None)
    """A member of the new protocol and its epoch, for questions that name a member."""
    members: list[ClassicMember] = field(default_factory=list)
    """All classic members so far."""

    def classic(self, **options: Any) -> ClassicMember:
        member = self.stack.enter_context(ClassicMember(self.client, self.group, self.topic, **options))
        self.members.append(member)
        return member

    def consumer(self, **options: Any) -> ConsumerMember:
        return self.stack.enter_context(ConsumerMember(self.client, self.group, (self.topic,), **options))

    def other(self, kind: type[OtherMember]) -> OtherMember:
        return self.stack.enter_context(kind(self.client, self.group, self.topic))

    def transaction(self) -> Transaction:
        transaction = self.stack.enter_context(Transaction(self.client, f"{self.group}-producer"))
        transaction.begin()
        return transaction

    def commit(self, offsets: Mapping[int, int], **fields: Any) -> None:
        commit(self.client, self.group, self.topic, offsets, **fields)

    def committed(self) -> dict[int, int]:
        """Returns the topic's offsets from the broker."""
        topics = (OffsetFetchRequestTopic(name=self.topic, partition_indexes=(0, 1, 2, 3)),)
        request = OffsetFetchRequest(group_id=self.group, topics=topics)
        reply = self.direct.ask(request, LAST_SINGLE_FETCH)
        partitions = [part for topic in reply.topics for part in topic.partitions]
        return {part.partition_index: part.committed_offset for part in partitions if part.committed_offset >= 0}

    def described(self) -> str:
        """Returns the broker's state of a classic group."""
        return str(self.direct.ask(DescribeGroupsRequest(groups=(self.group,))).groups[0].group_state)

    def refusal(self) -> int:
        """Returns the error of the broker while it cannot return offsets yet; 0 if it can."""
        return int(self.direct.ask(DescribeGroupsRequest(groups=(self.group,))).groups[0].error_code)

    def consumer_state(self) -> str:
        """Returns the broker's state of a group of the new protocol."""
        request = ConsumerGroupDescribeRequest(group_ids=(self.group,), include_authorized_operations=False)
        return str(self.direct.ask(request).groups[0].group_state)

    def listed_as(self) -> str:
        """Returns the state in which the broker lists the group, if it lists states.

        The result is empty if the group is not listed.
        """
        listed = self.direct.ask(ListGroupsRequest()).groups
        return next((group.group_state or "some" for group in listed if group.group_id == self.group), "")
