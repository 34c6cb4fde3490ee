"""Where one group is put into its state.

Owns: `Scene`: who acts on the group, and what the broker says of it. Must not know: any state.

Every exchange goes through the sidecar. The broker itself is asked only whether it has come to what it does by itself.
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
from tests.kafka.members import ClassicMember, ConsumerMember, commit
from tests.kafka.other_members import OtherMember
from tests.kafka.transactions import Transaction

LAST_SINGLE_FETCH = 7
"""The last version of OffsetFetch that asks for one group."""


@dataclass
class Scene:
    """Where one group is put into its state.

    Args:
        client: through the sidecar.
        direct: to the broker itself.
        group: the group's name, nobody else's.
        topic: has four partitions.
        other_topic: has one.
        stack: what it takes to hold the state; when it closes, the group lies still.
    """

    client: Client
    direct: Client
    group: str
    topic: str
    other_topic: str
    stack: ExitStack
    member: tuple[str, int] | None = field(default=None)
    """A member of the new protocol and its epoch, for questions that it asks itself."""
    members: list[ClassicMember] = field(default_factory=list)
    """All classic members that there have been."""

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
        """The topic's offsets as the broker has them."""
        asked = (OffsetFetchRequestTopic(name=self.topic, partition_indexes=(0, 1, 2, 3)),)
        request = OffsetFetchRequest(group_id=self.group, topics=asked)
        reply = self.direct.ask(request, LAST_SINGLE_FETCH)
        partitions = [part for topic in reply.topics for part in topic.partitions]
        return {part.partition_index: part.committed_offset for part in partitions if part.committed_offset >= 0}

    def described(self) -> str:
        """The state that the broker has a classic group in."""
        return str(self.direct.ask(DescribeGroupsRequest(groups=(self.group,))).groups[0].group_state)

    def refusal(self) -> int:
        """The error with which the broker says that it cannot tell yet; 0 where it can."""
        return int(self.direct.ask(DescribeGroupsRequest(groups=(self.group,))).groups[0].error_code)

    def consumer_state(self) -> str:
        """The state that the broker has a group of the new protocol in."""
        request = ConsumerGroupDescribeRequest(group_ids=(self.group,), include_authorized_operations=False)
        return str(self.direct.ask(request).groups[0].group_state)

    def listed_as(self) -> str:
        """The state that the broker lists the group in, where it lists states; empty where it does not list it."""
        listed = self.direct.ask(ListGroupsRequest()).groups
        return next((group.group_state or "some" for group in listed if group.group_id == self.group), "")
