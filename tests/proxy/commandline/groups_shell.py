"""Fake brokers on real ports, and the `groups` command that connects to them.

Contains the command's runner and short ways to write the brokers' replies.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

from typer.testing import CliRunner, Result

from group_sidecar.codecs.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from group_sidecar.codecs.messages import consumer_group_describe as new
from group_sidecar.codecs.messages import describe_groups as classic
from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsResponse
from group_sidecar.codecs.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from group_sidecar.codecs.schema import Struct, encode
from group_sidecar.proxy.commandline.groups import groups_app
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.scripted_broker import ScriptedBroker, listening


class Shell:
    """Brokers on real ports, and the `groups` command with the first broker as its bootstrap address."""

    def __init__(self) -> None:
        self.brokers: list[ScriptedBroker] = []
        self.addresses: list[Address] = []

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        """All brokers, as nodes 0, 1, ..., and topic `t`.

        Node 0 leads partition 0, node 1 leads partition 1, and partition 2 has no leader.
        """
        partitions = tuple(
            MetadataResponsePartition(
                error_code=0, partition_index=index, leader_id=leader, replica_nodes=(), isr_nodes=()
            )
            for index, leader in ((0, 0), (1, 1), (2, -1))
        )
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(node_id=node, host=address.host, port=address.port)
                for node, address in enumerate(self.addresses)
            ),
            topics=(MetadataResponseTopic(error_code=0, name="t", partitions=partitions),),
        )

    def coordinator(self, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        """The FindCoordinator reply: the last broker coordinates all groups."""
        node, address = len(self.addresses) - 1, self.addresses[-1]
        if version < 4:
            return FindCoordinatorResponse(node_id=node, host=address.host, port=address.port)
        found = Coordinator(
            key=request.coordinator_keys[0],
            node_id=node,
            host=address.host,
            port=address.port,
            error_code=0,
            error_message=None,
        )
        return FindCoordinatorResponse(coordinators=(found,))

    def run(self, *arguments: str, bootstrap: Address | None = None) -> Result:
        """Runs `groups` with these arguments against `bootstrap`, by default the first broker."""
        address = str(bootstrap or self.addresses[0])
        return CliRunner().invoke(groups_app, [*arguments, "--bootstrap", address], catch_exceptions=False)

    def json(self, *arguments: str) -> Any:
        """Runs `groups` with `--json` and returns the decoded output. Asserts that the run succeeded."""
        result = self.run(*arguments, "--json")
        assert (result.exit_code, result.stderr) == (0, "")
        return json.loads(result.stdout)


Answers = dict[type[Struct], Any]
StartShell = Callable[..., Shell]


@contextmanager
def shells() -> Iterator[StartShell]:
    """Yields a function that starts one broker per argument. Each also answers Metadata and FindCoordinator."""
    with ExitStack() as stack:

        def start(*answers: Answers, versions: dict[type[Struct], tuple[int, int]] | None = None) -> Shell:
            shell = Shell()
            common: Answers = {MetadataRequest: shell.metadata, FindCoordinatorRequest: shell.coordinator}
            shell.brokers = [ScriptedBroker({**common, **own}, versions) for own in answers]
            shell.addresses = stack.enter_context(listening(*shell.brokers))
            return shell

        yield start


def failed(result: Result, code: int, line: str) -> None:
    """Asserts that a run ended with this exit code and printed only this line, on standard error."""
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"group-sidecar: {line}\n")


def listed(*groups: tuple[str, str, str, str], error: int = 0) -> ListGroupsResponse:
    return ListGroupsResponse(
        error_code=error,
        groups=tuple(
            ListedGroup(group_id=name, protocol_type=protocol, group_state=state, group_type=kind)
            for name, kind, state, protocol in groups
        ),
    )


READS = TopicPartition(topic="t", partitions=(1, 0))
ASSIGNMENT = b"\0\3" + encode(ConsumerProtocolAssignment(assigned_partitions=(READS,)), 3)
SUBSCRIPTION = b"\0\3" + encode(ConsumerProtocolSubscription(topics=("t", "u")), 3)


def classic_member(assignment: bytes = ASSIGNMENT, **more: Any) -> classic.DescribedGroupMember:
    fields: dict[str, Any] = {
        "member_id": "m-1",
        "client_id": "app",
        "client_host": "/10.0.0.7",
        "member_metadata": SUBSCRIPTION,
        "member_assignment": assignment,
    }
    return classic.DescribedGroupMember(**(fields | more))


def classic_group(*members: classic.DescribedGroupMember, **more: Any) -> Answers:
    fields: dict[str, Any] = {
        "error_code": 0,
        "group_id": "g",
        "group_state": "Stable",
        "protocol_type": "consumer",
        "protocol_data": "range",
        "members": members,
    }
    group = classic.DescribedGroup(**(fields | more))
    return {DescribeGroupsRequest: classic.DescribeGroupsResponse(groups=(group,))}


def new_group(*members: new.Member, **more: Any) -> Answers:
    fields: dict[str, Any] = {
        "error_code": 0,
        "group_id": "g",
        "group_state": "Reconciling",
        "group_epoch": 5,
        "assignment_epoch": 4,
        "assignor_name": "uniform",
        "members": members,
    }
    group = new.DescribedGroup(**(fields | more))
    return {ConsumerGroupDescribeRequest: new.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=(group,))}


NOT_NEW = new_group(error_code=69, error_message="Group g is not a consumer group.", group_state="")


def assigned(*partitions: int) -> new.Assignment:
    return new.Assignment(
        topic_partitions=(new.TopicPartitions(topic_id=UUID(int=1), topic_name="t", partitions=partitions),)
    )


NEW_MEMBER = new.Member(
    member_id="m-1",
    instance_id="i-1",
    member_epoch=4,
    client_id="app",
    client_host="/10.0.0.7",
    subscribed_topic_names=("t",),
    assignment=assigned(0),
    target_assignment=assigned(0, 1),
)
