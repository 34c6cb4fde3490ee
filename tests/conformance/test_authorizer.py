"""With an authorizer, the sidecar answers itself, and hides from each user the same groups as the broker does.

Each user repeatedly asks the same questions directly and through the sidecar. Knowledge that the sidecar gained from
one user's questions must never appear in the answers to another user.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
)

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest
from group_sidecar.codecs.schema import Struct
from tests.conformance.authorized_broker import (
    ADMIN,
    ANONYMOUS,
    GROUP,
    GROUPS,
    OPEN_GROUPS,
    USERS,
    AuthorizedBroker,
    Question,
    administrator,
    alike,
    authorizing,
    become_stable,
    commit,
    connected,
    done,
    log_in,
    password,
    prepare,
    rules,
    started,
)
from tests.kafka.broker import KafkaBroker
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizedBroker]:
    """A broker whose groups have offsets of both topics. Group b has a member."""
    folder = tmp_path_factory.mktemp("authorizer")
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(folder / "broker", properties=authorizing(), sasl=True))
        prepare(broker)
        own = {"sasl": {"mechanism": "PLAIN", "username": ADMIN, "password": password(ADMIN)}}
        answers = {"exclusive": True, "rights_seconds": 300, "verify": 0}
        sidecar = stack.enter_context(started(folder / "sasl", broker, answers, own))
        with Wire(broker.sasl_sidecar) as wire:
            log_in(wire, ADMIN)
            for group in (*GROUPS, *OPEN_GROUPS):
                commit(wire, group)
        member = connected(stack, broker.sasl_sidecar, ADMIN)
        become_stable(member, "b")
        yield AuthorizedBroker(broker, sidecar)


# Questions.


def fetching(version: int, groups: tuple[str, ...], topics: tuple[str, ...] | None) -> Question:
    request_topics = None if topics is None else tuple(map(some, topics))
    if version < 8:
        return OffsetFetchRequest(group_id=groups[0], topics=request_topics), version
    return OffsetFetchRequest(
        groups=tuple(OffsetFetchRequestGroup(group_id=g, topics=request_topics) for g in groups)
    ), version


def some(topic: str) -> OffsetFetchRequestTopic:
    return OffsetFetchRequestTopic(name=topic, partition_indexes=(0, 1))


def questions(groups: tuple[str, ...]) -> list[Question]:
    """Returns all questions about these groups and about an unknown group."""
    first, second = groups[:2]
    found: list[Question] = [(ListGroupsRequest(), version) for version in ListGroupsRequest.VERSIONS]
    found.append((ListGroupsRequest(states_filter=("Stable",)), 4))
    found.append((ListGroupsRequest(types_filter=("classic",)), 5))
    for version in DescribeGroupsRequest.VERSIONS:
        for names in ((first,), (second,), (first, second), ("unknown",)):
            found.append((DescribeGroupsRequest(groups=names), version))
    for version in range(1, 10):
        for group in (first, second):
            for topics in (("t1",), ("t2",), ("t1", "t2"), ("t1", "nowhere")):
                found.append(fetching(version, (group,), topics))
            if version > 1:
                found.append(fetching(version, (group,), None))
        if version > 7:
            found += [fetching(version, groups, ("t1", "t2")), fetching(version, groups, None)]
    return found


EVERYTHING = questions(GROUPS)


def tell_apart(user: str, question: Question, reply: Struct, expected: Struct) -> None:
    assert reply == expected, f"{user} must get the broker's answer to {question}"


def test_each_user_gets_the_brokers_answer(guarded: AuthorizedBroker) -> None:
    """Each user gets the broker's answer for this user through the sidecar, in any order of users and requests."""
    before = {api: answers(guarded.sidecar, api) for api in ("ListGroups", "DescribeGroups", "OffsetFetch")}
    for users in (USERS, tuple(reversed(USERS))):
        with ExitStack() as stack:
            wires = {user: connected(stack, guarded.broker.sasl_sidecar, user) for user in users}
            for _ in range(2):
                for question in EVERYTHING:
                    for user, wire in wires.items():
                        tell_apart(user, question, alike(wire.ask(*question)), guarded.directly(user, question))
    for api, count in before.items():
        assert answers(guarded.sidecar, api) > count, f"{api} was never answered by the sidecar"
    assert guarded.sidecar.metric("group_sidecar_mirror_fallbacks_total", reason="unauthorized") > 0
    assert guarded.sidecar.metric("group_sidecar_remembered_rights") > 0


def answers(sidecar: SidecarProcess, api: str) -> float:
    """Returns how many questions of this API a sidecar has answered itself."""
    return sidecar.metric("group_sidecar_mirror_answers_total", api=api)


SEEN: list[tuple[str, Question]] = [
    ("alice", (DescribeGroupsRequest(groups=("a",)), 5)),
    ("alice", fetching(5, ("a",), None)),
    ("alice", fetching(1, ("a",), ("t1",))),
    ("bob", (DescribeGroupsRequest(groups=("b",)), 6)),
    ("bob", fetching(8, ("b",), ("t2",))),
    ("carol", (ListGroupsRequest(), 4)),
    ("dave", (DescribeGroupsRequest(groups=("a",)), 5)),
    ("dave", fetching(7, ("a",), ("t1",))),
    ("erin", (DescribeGroupsRequest(groups=GROUPS), 5)),
]
UNSEEN: list[tuple[str, Question]] = [
    ("alice", (DescribeGroupsRequest(groups=("a", "b")), 5)),
    ("alice", fetching(5, ("b",), None)),
    ("alice", (ListGroupsRequest(), 4)),
    ("bob", fetching(5, ("b",), None)),
    ("bob", fetching(5, ("b",), ("t1",))),
    ("carol", (DescribeGroupsRequest(groups=("a",)), 5)),
    ("dave", (DescribeGroupsRequest(groups=("b",)), 5)),
    ("dave", fetching(7, ("a",), ("t2",))),
    ("erin", fetching(5, ("a",), None)),
    ("nobody", (ListGroupsRequest(), 4)),
]


@pytest.mark.parametrize(("user", "question"), [*SEEN, *UNSEEN])
def test_remembered_rights_allow_own_answers(guarded: AuthorizedBroker, user: str, question: Question) -> None:
    """The sidecar answers a user itself only after the broker has shown this user all requested resources."""
    sidecar, api = guarded.sidecar, type(question[0]).__name__.removesuffix("Request")
    with ExitStack() as stack:
        one, another = (connected(stack, guarded.broker.sasl_sidecar, user) for _ in range(2))

        def answered_here() -> float:
            """Asks over both connections. Returns how many questions the sidecar answered."""
            before = answers(sidecar, api)
            for wire in (one, another):
                tell_apart(user, question, alike(wire.ask(*question)), guarded.directly(user, question))
            return answers(sidecar, api) - before

        answered_here()
        if (user, question) in SEEN:  # While the copy is in doubt, the broker answers even these questions.
            sidecar.process.wait_until(lambda: answered_here() == 2)
        else:
            assert [answered_here() for _ in range(3)] == [0, 0, 0]


def test_same_user_by_other_mechanism(guarded: AuthorizedBroker) -> None:
    """A user who logs in by SCRAM gets the same answers as directly, some of them from the sidecar."""
    with ExitStack() as stack:
        scram = connected(stack, guarded.broker.sasl_sidecar, "alice", "SCRAM-SHA-256")
        before = answers(guarded.sidecar, "DescribeGroups")
        for question in EVERYTHING * 2:
            tell_apart("alice", question, alike(scram.ask(*question)), guarded.directly("alice", question))
    assert answers(guarded.sidecar, "DescribeGroups") > before


def test_unauthenticated_client_gets_no_answer(guarded: AuthorizedBroker) -> None:
    """A client without a successful authentication gets no group answer."""
    with ExitStack() as stack:
        alice = connected(stack, guarded.broker.sasl_sidecar, "alice")
        for _ in range(2):
            alice.ask(DescribeGroupsRequest(groups=("a",)), 5)
        stranger = stack.enter_context(Wire(guarded.broker.sasl_sidecar))
        stranger.send_request(DescribeGroupsRequest(groups=("a",)), 5)
        assert stranger.closed()
        refused = stack.enter_context(Wire(guarded.broker.sasl_sidecar))
        refused.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert refused.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2).error_code == 58
        with pytest.raises(OSError):
            refused.ask(DescribeGroupsRequest(groups=("a",)), 5)


def test_anonymous_users_without_sasl(
    guarded: AuthorizedBroker,
) -> None:
    """On a listener without SASL, each client gets the broker's answer for the anonymous user."""
    sidecar = guarded.sidecar
    everything = questions(OPEN_GROUPS)
    sidecar.process.wait_until(lambda: asked_alone(guarded, fetching(5, ("open-a",), ("t1",))))
    for _ in range(2):
        with ExitStack() as stack:
            wires = [connected(stack, guarded.broker.sidecar, ANONYMOUS) for _ in range(2)]
            for question in everything:
                for wire in wires:
                    reply = alike(wire.ask(*question))
                    tell_apart(ANONYMOUS, question, reply, guarded.directly(ANONYMOUS, question))
    assert answers(sidecar, "OffsetFetch") > 0


def asked_alone(guarded: AuthorizedBroker, question: Question) -> bool:
    """Asks over a new connection. Returns whether the sidecar answered."""
    before = answers(guarded.sidecar, "OffsetFetch")
    with Wire(guarded.broker.sidecar) as wire:
        tell_apart(ANONYMOUS, question, alike(wire.ask(*question)), guarded.directly(ANONYMOUS, question))
    return answers(guarded.sidecar, "OffsetFetch") > before


def test_revoked_right_is_gone_at_once(guarded: AuthorizedBroker) -> None:
    """A right that is revoked through the sidecar no longer lets its user see the group, even while the user asks
    continuously.
    """
    broker, question = guarded.broker, (DescribeGroupsRequest(groups=("frank",)), 5)
    with ExitStack() as stack:
        frank = connected(stack, broker.sasl_sidecar, "frank")
        direct = connected(stack, broker.sasl_direct, "frank")
        before = answers(guarded.sidecar, "DescribeGroups")
        shown = [alike(frank.ask(*question)) for _ in range(2)]
        assert shown == [alike(direct.ask(*question))] * 2
        assert {group.error_code for group in shown[0].groups} == {0}
        assert answers(guarded.sidecar, "DescribeGroups") > before
        filters = ResourcePatternType.LITERAL, "User:frank", "*", AclOperation.ANY, AclPermissionType.ANY
        through, around = administrator(broker.sasl_sidecar), administrator(broker.sasl_direct)
        done(through.delete_acls([AclBindingFilter(GROUP, "frank", *filters)]))

        def hidden() -> bool:
            frank.ask(*question)
            return bool(direct.ask(*question).groups[0].error_code)

        try:
            guarded.sidecar.process.wait_until(hidden)
            [group] = frank.ask(*question).groups
            assert (group.error_code, group.members) == (30, ())
            assert frank.ask(ListGroupsRequest(), 4).groups == ()
        finally:
            done(around.create_acls(rules()))

            def answered_here() -> bool:
                before = answers(guarded.sidecar, "DescribeGroups")
                shown = {group.error_code for _ in range(2) for group in frank.ask(*question).groups}
                return shown == {0} and answers(guarded.sidecar, "DescribeGroups") > before

            guarded.sidecar.process.wait_until(answered_here)
