"""Deferred replies are applied, in their order, before the state of a broker is read or changed."""

from collections.abc import Callable

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
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.handlers.dispatcher import BrokerDispatcher
from tests.proxy.dataplane.playbook import SessionDriver, broker_copy, complete_copy

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


def waits(copy: BrokerState) -> bool:
    return copy.deferred.waiting


ACCESSES: dict[str, Callable[[BrokerState], object]] = {
    "manager": lambda copy: copy.manager,
    "rights": lambda copy: copy.rights,
    "principals": lambda copy: copy.principals,
    "allows_anonymous": lambda copy: copy.allows_anonymous,
    "apply": lambda copy: copy.apply((), 0),
    "refresh": lambda copy: copy.refresh("g", 0),
    "relearn": lambda copy: copy.forget_group_state("g", 0),
    "refused": lambda copy: copy.refused(REFUSAL),
    "learn_topic_names": lambda copy: copy.learn_topic_names({}),
    "reset_learned": lambda copy: copy.reset_learned(),
}


@pytest.mark.parametrize("access", ACCESSES.values(), ids=ACCESSES)
def test_access_applies_deferred_replies_in_order(access: Callable[[BrokerState], object]) -> None:
    """Every access to a broker's state first applies the deferred replies in their order."""
    facts: list[Fact] = []
    copy = complete_copy(facts.append)
    line = SessionDriver(BrokerDispatcher(copy))
    for correlation in range(3):
        commit(line, correlation)
    assert waits(copy)
    assert facts == []
    access(copy)
    assert not waits(copy)
    assert [fact.group_id for fact in facts if isinstance(fact, OffsetsCommitted)] == ["g0", "g1", "g2"]
    assert facts[-1] == REFUSAL or REFUSAL not in facts
    commit(line, 3)
    access(copy)
    assert [fact.group_id for fact in facts if isinstance(fact, OffsetsCommitted)][3:] == ["g3"]


def test_closed_connection_applies_deferred_first() -> None:
    """A closed connection is forgotten after its deferred replies, which would otherwise look anonymous."""
    copy = broker_copy()
    line = SessionDriver(BrokerDispatcher(copy))
    copy.principals.distrust(line.session.origin)
    commit(line, 1)
    assert waits(copy)
    line.upstream_closed()
    assert not waits(copy)
    assert not copy.allows_anonymous
