"""With ``answers: exclusive``, the sidecar answers itself, and its answers equal the broker's answers.

All clients of this broker connect through the sidecar, so the copy of its groups is complete. As a member's host, the
sidecar reports the client's host, and the broker reports the sidecar's host. Here both are the loopback address.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.schema import Struct
from tests.conformance.held_groups import SETTLED, UNSETTLED, population
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import CONSUMER_GROUPS, kafka_tool
from tests.kafka.wire import ask

LIST_VERSIONS = range(0, 6)
DESCRIBE_VERSIONS = range(0, 7)
FETCH_VERSIONS = range(1, 10)


@dataclass(frozen=True)
class Pair:
    """A broker, and the sidecar through which all of its clients connect."""

    broker: Address
    sidecar: SidecarProcess
    run: Run

    def both(self, request: Struct, version: int) -> tuple[Any, Any]:
        """Returns the broker's answer, and the answer through the sidecar, which the sidecar may have forwarded."""
        return ask(self.broker, request, version), ask(self.sidecar.listen, request, version)

    def becomes_certain(self) -> None:
        """Waits until the sidecar answers ListGroups itself.

        A request of a lost connection may still reach the broker within a second. Afterwards, the sidecar learns the
        request's effect from a ListGroups reply of the broker.
        """
        before = self.answers("ListGroups")

        def certain() -> bool:
            ask(self.sidecar.listen, ListGroupsRequest(), 4)
            return self.answers("ListGroups") > before

        self.sidecar.process.wait_until(certain)

    def own(self, api: str, request: Struct, version: int) -> tuple[Any, Any]:
        """Returns the broker's answer and the sidecar's answer. Asserts that the sidecar answered itself."""
        direct = ask(self.broker, request, version)
        before = self._fallbacks(api)
        answered = self.answers(api)
        own = ask(self.sidecar.listen, request, version)
        assert self._fallbacks(api) == before, "the sidecar left the question to the broker"
        assert self.answers(api) == answered + 1
        return direct, own

    def answers(self, api: str) -> float:
        """Returns how many questions of this API the sidecar has answered itself."""
        return self.sidecar.metric("group_sidecar_mirror_answers_total", api=api)

    def _fallbacks(self, api: str) -> dict[str, float]:
        """Returns how many questions of this API the sidecar has left to the broker, by reason."""
        samples = self.sidecar.samples("group_sidecar_mirror_fallbacks_total")
        return {sample.labels["reason"]: sample.value for sample in samples if sample.labels["api"] == api}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A broker with the population's groups. All members connected through the sidecar."""
    folder = tmp_path_factory.mktemp("exclusive")
    settings = {"answers": {"exclusive": True}}
    with (
        KafkaBroker(folder / "broker") as broker,
        SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=settings) as sidecar,
    ):
        # While a broker creates its offsets topic, it returns NOT_COORDINATOR, which puts its groups in doubt.
        broker.wait_for_coordinator()
        sidecar.wait_for_log()
        run = Run(Route("sidecar", broker.sidecar, broker.sidecar), f"t{secrets.token_hex(5)}")
        with population(run, SETTLED):
            yield Pair(broker.direct, sidecar, run)


@pytest.mark.parametrize("version", LIST_VERSIONS)
def test_list_groups(pair: Pair, version: int) -> None:
    """The sidecar lists groups itself, with the broker's answer."""
    direct, own = pair.own("ListGroups", ListGroupsRequest(), version)
    assert by_id(own) == by_id(direct)
    assert {pair.run.name(group) for group in SETTLED} <= {group.group_id for group in own.groups}


@pytest.mark.parametrize(
    "request_",
    [
        ListGroupsRequest(states_filter=("Stable",)),
        ListGroupsRequest(states_filter=("empty", "PREPARINGREBALANCE")),
        ListGroupsRequest(states_filter=("NoSuchState",)),
        ListGroupsRequest(types_filter=("classic",)),
        ListGroupsRequest(types_filter=("CONSUMER",)),
        ListGroupsRequest(types_filter=("nosuchtype",)),
        ListGroupsRequest(states_filter=("Stable",), types_filter=("consumer",)),
    ],
    ids=lambda request: f"{request.states_filter} {request.types_filter}",
)
def test_list_groups_filtered(pair: Pair, request_: ListGroupsRequest) -> None:
    """The sidecar answers filtered ListGroups requests itself, with the broker's answer."""
    direct, own = pair.own("ListGroups", request_, 5)
    assert by_id(own) == by_id(direct)


def by_id(reply: ListGroupsResponse) -> ListGroupsResponse:
    """Returns the reply with sorted groups, because a broker guarantees no order."""
    return replace(reply, groups=tuple(sorted(reply.groups, key=lambda group: group.group_id)))


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
@pytest.mark.parametrize("group", [*SETTLED, "unknown"])
def test_describe_groups(pair: Pair, group: str, version: int) -> None:
    """The sidecar describes each settled group and an unknown group itself, with the broker's answer."""
    direct, own = pair.own("DescribeGroups", DescribeGroupsRequest(groups=(pair.run.name(group),)), version)
    assert members_by_id(own) == members_by_id(direct)


def test_describe_many_groups(pair: Pair) -> None:
    """The sidecar describes many groups in one request itself, with the broker's answer."""
    names = tuple(pair.run.name(group) for group in (*SETTLED, "unknown"))
    direct, own = pair.own("DescribeGroups", DescribeGroupsRequest(groups=names), 6)
    assert members_by_id(own) == members_by_id(direct)


@pytest.mark.parametrize("group", UNSETTLED)
def test_unsettled_group_matches_broker(pair: Pair, group: str) -> None:
    """For a group between states, replies through the sidecar equal the broker's, whether the sidecar or the broker
    answers.
    """
    run = Run(pair.run.route, f"t{secrets.token_hex(5)}")
    with population(run, [group]):
        for version in LIST_VERSIONS:
            direct, through = pair.both(ListGroupsRequest(), version)
            assert by_id(through) == by_id(direct)
        for version in DESCRIBE_VERSIONS:
            direct, through = pair.both(DescribeGroupsRequest(groups=(run.name(group),)), version)
            assert members_by_id(through) == members_by_id(direct)
        for version in FETCH_VERSIONS:
            direct, through = pair.both(fetch(run, group, version, everything=version > 1), version)
            assert in_order(through) == in_order(direct)
    deleted = ask(pair.sidecar.listen, DeleteGroupsRequest(groups_names=(run.name(group),)), 2)
    assert [result.error_code for result in deleted.results] == [0]
    pair.becomes_certain()


def members_by_id(reply: DescribeGroupsResponse) -> DescribeGroupsResponse:
    """Returns the reply with sorted groups and members, because a broker guarantees no order."""
    groups = [
        replace(group, members=tuple(sorted(group.members, key=lambda member: member.member_id)))
        for group in reply.groups
    ]
    return replace(reply, groups=tuple(sorted(groups, key=lambda group: group.group_id)))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("group", [*SETTLED, "unknown"])
@pytest.mark.parametrize("everything", [True, False], ids=["all", "named"])
def test_offset_fetch(pair: Pair, group: str, version: int, everything: bool) -> None:
    """The sidecar answers OffsetFetch for each settled group and an unknown group itself, with the broker's answer."""
    if everything and version < 2:
        everything = False  # Null topics exist since v2.
    request = fetch(pair.run, group, version, everything)
    direct, own = pair.own("OffsetFetch", request, version)
    assert in_order(own) == in_order(direct)


def fetch(run: Run, group: str, version: int, everything: bool) -> OffsetFetchRequest:
    """Returns a request for all offsets, or for partitions with and without a commit of existing and unknown topics."""
    topics = (
        None
        if everything
        else (
            OffsetFetchRequestTopic(name=run.name("topic"), partition_indexes=(1, 0, 3, 99)),
            OffsetFetchRequestTopic(name=run.name("nowhere"), partition_indexes=(0,)),
        )
    )
    if version < 8:
        return OffsetFetchRequest(group_id=run.name(group), topics=topics)
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=run.name(group), topics=topics),))


def in_order(reply: OffsetFetchResponse) -> OffsetFetchResponse:
    """Returns the reply with sorted topics and partitions, because a broker guarantees no order."""
    groups = tuple(replace(group, topics=_topics_in_order(group.topics)) for group in reply.groups)
    return replace(reply, topics=_topics_in_order(reply.topics), groups=groups)


def _topics_in_order(topics: tuple[OffsetFetchResponseTopic, ...]) -> tuple[OffsetFetchResponseTopic, ...]:
    ordered = (
        replace(topic, partitions=tuple(sorted(topic.partitions, key=lambda part: part.partition_index)))
        for topic in topics
    )
    return tuple(sorted(ordered, key=lambda topic: topic.name))


@pytest.mark.parametrize("options", ["", "--members --verbose", "--state"])
def test_command_prints_the_same(pair: Pair, options: str) -> None:
    """kafka-consumer-groups --describe prints the same from the broker and from the sidecar's own answers."""
    names = [part for group in SETTLED for part in ("--group", pair.run.name(group))]
    answered = pair.answers("DescribeGroups")
    direct, own = (
        kafka_tool(CONSUMER_GROUPS, "--bootstrap-server", host_port(place), "--describe", *names, *options.split())
        for place in (pair.broker, pair.sidecar.listen)
    )
    assert pair.answers("DescribeGroups") > answered
    assert own.replace(host_port(pair.sidecar.listen), host_port(pair.broker)) == direct
