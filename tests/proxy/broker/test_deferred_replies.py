"""Deferred replies are applied, in their order, before the state of a broker is read or changed."""

import ast
from collections.abc import Callable
from types import ModuleType

import pytest

from group_sidecar.codecs.headers import RequestHeader, encode_reply, encode_request
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.coordinator.model.facts import ClientRefused, Fact, OffsetsCommitted
from group_sidecar.proxy.broker import authorizer_state, client_access, coordinator_copy
from group_sidecar.proxy.broker.broker_state import BrokerState
from tests.as_python import ROOT
from tests.proxy.dataplane.playbook import (
    ANONYMOUS_CLIENT,
    SessionDriver,
    access_of,
    broker_state,
    complete_state,
    new_dispatcher,
)

VERSION = 2
ACCEPTED = OffsetCommitResponse(
    topics=(
        OffsetCommitResponseTopic(
            name="t", partitions=(OffsetCommitResponsePartition(partition_index=0, error_code=0),)
        ),
    )
)
REFUSAL = ClientRefused(
    group_id="g", at=0, policy="group_max_size", client_id="", client_host="", error_code=81, size=1, limit=1
)


def commit(line: SessionDriver, correlation: int) -> None:
    """A client commits, and the broker accepts it."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=correlation, committed_metadata="")
    topics = (OffsetCommitRequestTopic(name="t", partitions=(partition,)),)
    request = OffsetCommitRequest(group_id=f"g{correlation}", topics=topics)
    line.client(encode_request(request, RequestHeader(request.KEY, VERSION, correlation, "c")))
    line.upstream(encode_reply(ACCEPTED, VERSION, correlation))


def waits(state: BrokerState) -> bool:
    return state.deferred.waiting


ACCESSES: dict[str, Callable[[BrokerState], object]] = {
    "manager": lambda state: state.copy.manager,
    "rights": lambda state: access_of(state).rights,
    "principals": lambda state: access_of(state).principals,
    "allows_anonymous": lambda state: access_of(state).allows_anonymous,
    "apply": lambda state: state.copy.apply((), 0),
    "refresh": lambda state: state.copy.refresh("g", 0),
    "relearn": lambda state: state.copy.forget_group_state("g", 0),
    "refused": lambda state: state.copy.refused(REFUSAL),
    "learn_topic_names": lambda state: state.topic_names.learn({}),
    "may_see": lambda state: access_of(state).may_see(ANONYMOUS_CLIENT, (), 0),
    "learn_versions": lambda state: state.versions.learn({}),
    "coordinator": lambda state: state.coordinators.coordinator("g"),
    "partitions_with_stale_log_end": lambda state: state.log_bounds.partitions_with_stale_log_end((), 0),
    "learn_initial_groups": lambda state: state.learn_initial_groups([]),
    "broker_lost": lambda state: access_of(state).broker_lost(),
    "reset_access": lambda state: access_of(state).reset_learned(),
    "reset_learned": lambda state: state.reset_learned(),
}


@pytest.mark.parametrize("access", ACCESSES.values(), ids=ACCESSES)
def test_access_applies_deferred_replies_in_order(access: Callable[[BrokerState], object]) -> None:
    """Every access to a broker's state first applies the deferred replies in their order."""
    facts: list[Fact] = []
    state = complete_state(facts.append)
    line = SessionDriver(new_dispatcher(state))
    for correlation in range(3):
        commit(line, correlation)
    assert waits(state)
    assert facts == []
    access(state)
    assert not waits(state)
    assert [fact.group_id for fact in facts if isinstance(fact, OffsetsCommitted)] == ["g0", "g1", "g2"]
    assert facts[-1] == REFUSAL or REFUSAL not in facts
    commit(line, 3)
    access(state)
    assert [fact.group_id for fact in facts if isinstance(fact, OffsetsCommitted)][3:] == ["g3"]


GUARDED = {
    coordinator_copy: ("_manager",),
    authorizer_state: ("_rights",),
    client_access: ("_principals", "_allows_anonymous"),
}
"""The attributes that a deferred reply may change, by module. Each has a property of the same name."""


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in GUARDED.items() for name in names], ids=str
)
def test_only_its_property_reads_guarded_state(module: ModuleType, name: str) -> None:
    """State that deferred replies may change is read by its property alone, which applies them first."""
    source = (ROOT / "proxy" / "broker" / f"{module.__name__.rpartition('.')[2]}.py").read_text()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    readers = {
        function.name: function
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load)
    }
    assert readers.keys() == {name.removeprefix("_")}
    first = readers[name.removeprefix("_")].body[1]  # The body without the docstring.
    assert ast.unparse(first) == "self._deferred.apply_waiting()"


def test_closed_connection_applies_deferred_first() -> None:
    """A closed connection is forgotten after its deferred replies, which would otherwise look anonymous."""
    state = broker_state()
    line = SessionDriver(new_dispatcher(state))
    access_of(state).principals.distrust(line.session.origin)
    commit(line, 1)
    assert waits(state)
    line.upstream_closed()
    assert not waits(state)
    assert not access_of(state).allows_anonymous
