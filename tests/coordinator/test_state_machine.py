"""Compares the copy with the model: whenever the copy may answer, its state equals the broker's state.

Requests are handled and replies are delivered in any order that each connection allows. Connections break, and sessions
expire. A request of a broken connection may still arrive.
"""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.schema import decode
from group_sidecar.coordinator.answers import group_replies
from group_sidecar.coordinator.model.events import FOREVER, NEVER
from group_sidecar.coordinator.model.facts import ClientBypassed
from group_sidecar.coordinator.model.views import FallbackReason, GroupView
from group_sidecar.coordinator.rules import bypasses
from group_sidecar.coordinator.state import exclusivity
from tests.coordinator.all_groups import all_groups
from tests.coordinator.model import Broker
from tests.coordinator.model_groups import EMPTY, STABLE
from tests.coordinator.plain_list import list_groups
from tests.coordinator.world import Client, World, asks_about, commit_of

GROUPS = ("g", "h")
CLIENTS = (("a", "g", None), ("b", "g", None), ("c", "g", "i"), ("d", "g", "i"), ("e", "h", None), ("old", "g", None))
numbers = st.integers(0, len(CLIENTS) - 1)
groups = st.sampled_from(GROUPS)
SETTLE_SECONDS = 5.0
"""Replaces the product's constant of this name, because the runs are shorter than the real time."""


Offsets = dict[tuple[str, int], tuple[int, int, str | None]]


class Copy(RuleBasedStateMachine):
    """Clients, a broker, and the copy of its groups."""

    reads_log = False
    exclusive = True

    def __init__(self) -> None:
        super().__init__()
        self.has_late_replies = False
        self.patches = [patch.object(module, "SETTLE_SECONDS", SETTLE_SECONDS) for module in (bypasses, exclusivity)]
        for each in self.patches:
            each.start()

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()

    @initialize(
        delay=st.sampled_from((0.0, 3.0)),
        size=st.sampled_from((None, 2)),
        eager=st.booleans(),
        late=st.booleans(),
    )
    def start(self, delay: float, size: int | None, eager: bool, late: bool) -> None:
        self.eager = eager
        self.world = World(Broker(initial_delay=delay, max_size=size), exclusive=self.exclusive)
        if self.reads_log and not late:
            self.read_log()
        self.clients = [
            Client(self.world, name, group, instance, 2 if name == "old" else 9) for name, group, instance in CLIENTS
        ]
        self.admins = [self.world.connect(), self.world.connect()]

    def read_log(self) -> None:
        """Begins to read the log. The copy judges records as soon as the log has been read to its end once.

        The product waits, because older records may be from a previous leader. This broker has always been the leader.
        """
        self.world.read_log(eager=self.eager)
        for _, partition in self.world.manager.log.partitions:
            partition.loaded_at = NEVER

    # Clients.

    @rule(number=numbers, changed=st.booleans())
    def join(self, number: int, changed: bool) -> None:
        client = self.clients[number]
        if changed:
            client.metadata += b"!"
        client.join(("range", "sticky") if number % 2 else ("sticky", "range"))

    @rule(number=numbers, salt=st.sampled_from("xy"))
    def sync(self, number: int, salt: str) -> None:
        self.clients[number].sync(salt)

    @rule(number=numbers)
    def heartbeat(self, number: int) -> None:
        self.clients[number].heartbeat()

    @rule(number=numbers, partition=st.integers(0, 1), offset=st.integers(0, 3))
    def commit(self, number: int, partition: int, offset: int) -> None:
        self.clients[number].commit(partition, offset)

    @rule(number=numbers, version=st.sampled_from((0, 3)))
    def leave(self, number: int, version: int) -> None:
        self.clients[number].leave(version)

    @rule(number=numbers, forgets=st.booleans())
    def reconnect(self, number: int, forgets: bool) -> None:
        client = self.clients[number]
        client.restart() if forgets else client.reconnect()

    @rule(number=numbers)
    def go_on(self, number: int) -> None:
        self.clients[number].go_on()

    @rule(who=st.sampled_from(((0, 1), (0, 1, 2), (0, 1, 3, 5), (2, 4), (3, 5))))
    def gather(self, who: tuple[int, ...]) -> None:
        self.world.gather(*(self.clients[number] for number in who))

    # Others.

    def _ask(self, admin: bool, request: Any, version: int, **fields: Any) -> None:
        self.world.send(self.admins[admin], request, version, "admin", **fields)

    @rule(admin=st.booleans(), number=numbers, what=st.sampled_from(("member", "instance", "group", "offset")))
    def remove(self, admin: bool, number: int, what: str) -> None:
        client = self.clients[number]
        group = client.group_id
        if what == "group":
            self._ask(admin, DeleteGroupsRequest(groups_names=(group,)), 1)
        elif what == "offset":
            partition = OffsetDeleteRequestPartition(partition_index=number % 2)
            gone = OffsetDeleteRequestTopic(name="t", partitions=(partition,))
            self._ask(admin, OffsetDeleteRequest(group_id=group, topics=(gone,)), 0)
        else:
            who = MemberIdentity(member_id=client.member_id)
            if what == "instance":
                who = MemberIdentity(member_id="", group_instance_id="i")
            self._ask(admin, LeaveGroupRequest(group_id=group, members=(who,)), 3)

    @rule(admin=st.booleans(), group=groups, partition=st.integers(0, 1), offset=st.integers(0, 3))
    def commit_for_nobody(self, admin: bool, group: str, partition: int, offset: int) -> None:
        self._ask(admin, commit_of(group, partition, offset), 7)

    @rule(
        admin=st.booleans(),
        number=numbers,
        what=st.sampled_from(("commit", "delete", "delete offset", "leave")),
        named=st.booleans(),
    )
    def send_unread(self, admin: bool, number: int, what: str, named: bool) -> None:
        client = self.clients[number]
        group = client.group_id
        partition = OffsetDeleteRequestPartition(partition_index=number % 2)
        request, version = {
            "commit": (commit_of(group, number % 2, 3), 7),
            "delete": (DeleteGroupsRequest(groups_names=(group,)), 1),
            "delete offset": (
                OffsetDeleteRequest(
                    group_id=group, topics=(OffsetDeleteRequestTopic(name="t", partitions=(partition,)),)
                ),
                0,
            ),
            "leave": (LeaveGroupRequest(group_id=group, members=(MemberIdentity(member_id=client.member_id),)), 3),
        }[what]
        self.world.send_unread(self.admins[admin], request, version, group if named else None)

    @rule(admin=st.booleans(), group=groups)
    def describe(self, admin: bool, group: str) -> None:
        as_of = {group: self.world.manager.changes_of(group)}
        self._ask(admin, DescribeGroupsRequest(groups=(group,)), 5, as_of=as_of)

    @rule(admin=st.booleans())
    def list_groups(self, admin: bool) -> None:
        self._ask(admin, ListGroupsRequest(), 4, note_count=self.world.manager.note_count)

    @rule(admin=st.booleans(), group=groups, version=st.sampled_from((2, 5)))
    def fetch(self, admin: bool, group: str, version: int) -> None:
        as_of = {group: self.world.manager.changes_of(group)}
        self._ask(admin, OffsetFetchRequest(group_id=group, topics=None), version, as_of=as_of)

    # The network, and time.

    @rule(number=st.integers(0, 7))
    def handle(self, number: int) -> None:
        self.world.handle(self.world.connections[number])

    @rule(number=st.integers(0, 7))
    def deliver(self, number: int) -> None:
        self.world.deliver(self.world.connections[number])

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @rule(seconds=st.sampled_from((0.5, 2.0, 4.0, 11.0, 21.0)))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(what=st.sampled_from(("sweep", "clean up", "late")))
    def happen(self, what: str) -> None:
        if what == "sweep":
            self.world.sweep()
        elif what == "clean up":
            self.world.clean_up()
        elif self.world.limbo:
            self.world.handle_lost(0)

    # Invariants.

    @invariant()
    def reported_state_is_the_brokers(self) -> None:
        if not hasattr(self, "world"):
            return
        now = self.world.now()
        shown = {group: self.world.manager.view(group, now) for group in GROUPS}
        for group, view in shown.items():
            if view.fallback_reason is None and not self._under_way(group):
                _agree(view, self.world)
            if view.offsets_fallback_reason is None and not self._under_way(group):
                self.check_offsets(group, _offsets(view))
        self._is_listed_as_it_is(now)
        if self.world.manager.listing_fallback_reason(now) is None and not any(map(self._under_way, GROUPS)):
            listed = list_groups(ListGroupsRequest(), all_groups(self.world.manager, now))
            truth = {(g.group_id, g.protocol_type, g.state) for g in self.world.broker.groups.values()}
            assert {(g.group_id, g.protocol_type, g.group_state) for g in listed} == truth

    @invariant()
    def reason_names_the_missing_statement(self) -> None:
        """Asserts that groups and the list are NOT_EXCLUSIVE in each copy that is not exclusive, and in no other."""
        if not hasattr(self, "world"):
            return
        now, manager = self.world.now(), self.world.manager
        reasons = {manager.view(group, now).fallback_reason for group in manager.group_metadata_cache}
        reasons.add(manager.listing_fallback_reason(now))
        if not self.exclusive:
            assert reasons == {FallbackReason.NOT_EXCLUSIVE}
        elif not any(isinstance(fact, ClientBypassed) for fact in self.world.facts):
            assert FallbackReason.NOT_EXCLUSIVE not in reasons

    @invariant()
    def no_client_bypasses_the_sidecar(self) -> None:
        if not hasattr(self, "world"):
            return
        sent = (each.sent_at for connection in self.world.connections for each in connection.exchanges())
        self.has_late_replies |= min(sent, default=FOREVER) + SETTLE_SECONDS <= self.world.now()
        assert self.has_late_replies or not any(isinstance(fact, ClientBypassed) for fact in self.world.facts)

    def check_offsets(self, group: str, shown: Offsets) -> None:
        """Asserts that the copy may report these offsets of a group."""
        assert shown == self._true_offsets(group)

    def _is_listed_as_it_is(self, now: float) -> None:
        """Asserts that the maintained list equals a list that is newly built from all groups."""
        manager = self.world.manager
        if manager.listing_fallback_reason(now) is None:
            assert not any(manager.view(group, now).fallback_reason for group in manager.group_metadata_cache)
        kept = decode(ListGroupsResponse, 5, manager.listing(now).reply(ListGroupsRequest(), 5))
        assert {*kept.groups} == {*list_groups(ListGroupsRequest(), all_groups(manager, now))}

    def _under_way(self, group: str) -> bool:
        """Whether the broker has changed the group and the reply has not been delivered yet."""
        changes = (LeaveGroupRequest, DeleteGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest)
        replies = (exchange for connection in self.world.connections for exchange, _ in connection.down)
        return any(isinstance(x.request, changes) and group in asks_about(x) for x in replies)

    def _true_offsets(self, group_id: str) -> dict[tuple[str, int], tuple[int, int, str]]:
        group = self.world.broker.groups.get(group_id)
        return group.offsets if group else {}


def _agree(view: GroupView, world: World) -> None:
    """Asserts that a view agrees with the broker's description. Hosts are compared separately.

    The broker reports the first host of a static member that has returned.
    """
    description = world.broker.describe(view.group_id)
    assert _without_hosts(_described(view)) == _without_hosts(description)
    hosts = {member.member_id: member.client_host for member in description.members}
    true = {client.member_id: f"/host-of-{client.name}" for client in world.clients}
    for member in view.members:
        assert member.broker_host in ("", hosts[member.member_id])
        assert member.client_host in (true.get(member.member_id, member.client_host), member.broker_host)
    _has_true_principals(view, world)


def _has_true_principals(view: GroupView, world: World) -> None:
    """Asserts that each member has the principal of the request that showed its host, or no principal."""
    group = world.manager.group_metadata_cache.get(view.group_id)
    members = group.members if group else {}
    assert {each.member_id: each.principal for each in view.members} == {
        member_id: member.true_host.replace("/host-of-", "User:") for member_id, member in members.items()
    }


def _without_hosts(group: DescribedGroup) -> DescribedGroup:
    return replace(group, members=tuple(replace(member, client_host="") for member in group.members))


def _described(view: GroupView) -> DescribedGroup:
    described = group_replies.describe_groups(DescribeGroupsRequest(groups=(view.group_id,)), 5, {view.group_id: view})
    (group,) = described.groups
    members = tuple(sorted(group.members, key=lambda member: member.member_id))
    return DescribedGroup(**{name: getattr(group, name) for name in _FIELDS} | {"members": members})


_FIELDS = ("error_code", "group_id", "group_state", "protocol_type", "protocol_data")


def _offsets(view: GroupView) -> Offsets:
    return {
        partition: (offset.offset, offset.leader_epoch if offset.epoch_known else 3, offset.metadata)
        for partition, offset in view.offsets.items()
    }


class Followed(Copy):
    """Like Copy, but the copy also reads the log."""

    reads_log = True

    @rule(what=st.sampled_from(("send", "handle", "deliver", "catch up")))
    def tail(self, what: str) -> None:
        if self.world.log is None:
            self.read_log()
        tail = self.world.tail
        match what:
            case "send":
                tail.send(self.world.now())
            case "handle":
                tail.handle()
            case "deliver":
                tail.deliver(self.world.now())
            case _:
                tail.catch_up(self.world.now())


class Around(Followed):
    """Like Followed, but other clients bypass the sidecar and change groups.

    The copy must have at least the state that the broker had at the last Fetch of the log.
    """

    exclusive = False

    @rule(group=groups, partition=st.integers(0, 1), offset=st.integers(0, 3))
    def commit_around(self, group: str, partition: int, offset: int) -> None:
        self.world.bypass(commit_of(group, partition, offset), 7, "stranger")

    @rule(group=groups)
    def delete_around(self, group: str) -> None:
        self.world.bypass(DeleteGroupsRequest(groups_names=(group,)), 1, "stranger")

    def check_offsets(self, group: str, shown: Offsets) -> None:
        log, since = self.world.log, self.world.tail.reached
        assert log is not None
        had = log.had(group, since)
        for partition in {*shown, *(each for offsets in had for each in offsets)}:
            assert shown.get(partition) in [offsets.get(partition) for offsets in had]


class Calm(RuleBasedStateMachine):
    """No connection breaks and no client bypasses the sidecar, so the copy is complete if nothing is in flight."""

    @initialize(delay=st.sampled_from((0.0, 3.0)))
    def start(self, delay: float) -> None:
        self.world = World(Broker(initial_delay=delay))
        self.may_doubt = False
        self.clients = [Client(self.world, f"c{n}", "g", "i" if n == 2 else None, (9, 9, 9, 2)[n]) for n in range(4)]

    @rule(number=st.integers(0, 3))
    def go_on(self, number: int) -> None:
        self.clients[number].go_on()

    @rule(number=st.integers(0, 3))
    def join(self, number: int) -> None:
        client = self.clients[number]
        if not any(True for _ in client.connection.exchanges()):  # No client joins again before it has its reply.
            client.metadata += b"!"
            client.join()

    @rule(number=st.integers(0, 3), offset=st.integers(0, 3))
    def commit(self, number: int, offset: int) -> None:
        self.clients[number].commit(number, offset)

    @rule(number=st.integers(0, 3), version=st.sampled_from((0, 3)))
    def leave(self, number: int, version: int) -> None:
        client = self.clients[number]
        # The leave of an id that was only issued leaves a doubt. So does a leave during a rebalance if its reply
        # arrives after that of a join of the next generation. In these cases the sidecar asks the broker.
        if client.synced and not any(True for _ in client.connection.exchanges()):
            self.may_doubt |= self.world.broker.groups["g"].state != STABLE
            client.leave(version)
            client.forget()

    @rule(number=st.integers(0, 3))
    def handle(self, number: int) -> None:
        self.world.handle(self.clients[number].connection)

    @rule(number=st.integers(0, 3))
    def deliver(self, number: int) -> None:
        self.world.deliver(self.clients[number].connection)

    @rule(who=st.sets(st.integers(0, 3)))
    def rest(self, who: set[int]) -> None:
        self.world.gather(*(self.clients[number] for number in who))
        group = self.world.broker.groups.get("g")
        settled = group is None or group.state == STABLE or (group.state == EMPTY and group.offsets)
        if settled and not any(True for client in self.clients for _ in client.connection.exchanges()):
            assert self.world.lacking() == (None, None) or self.may_doubt
            _agree(self.world.view(), self.world)


Copy.TestCase.settings = settings(
    max_examples=125, stateful_step_count=70, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCopy = Copy.TestCase
Followed.TestCase.settings = settings(Copy.TestCase.settings, max_examples=50)
TestFollowed = Followed.TestCase
Around.TestCase.settings = Followed.TestCase.settings
TestAround = Around.TestCase
Calm.TestCase.settings = settings(Copy.TestCase.settings, max_examples=40)
TestCalm = Calm.TestCase
