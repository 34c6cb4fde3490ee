"""What the broker refuses by the rules of the policies, counted from its replies."""

import dataclasses
from typing import Any

import pytest

from group_sidecar.codecs.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from group_sidecar.codecs.messages.join_group import JoinGroupResponse
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.codecs.registry import APIS
from group_sidecar.codecs.schema import Struct
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.policies.policy import Policy
from group_sidecar.policies.registry import POLICIES
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.broker_refusals import BrokerRefusals
from tests.codecs.declarations import full_sample
from tests.proxy.playbook import Line, broker_copy, certain_copy, joining, settled

FULL, TOO_LONG = ("group_max_size", 81), ("offset_metadata_max_bytes", 12)


def saying(reply: Any, error_code: int) -> Any:
    """A reply with this in every place for an error."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(reply):
        value = getattr(reply, field.name)
        if field.name == "error_code":
            changes[field.name] = error_code
        elif isinstance(value, tuple):
            changes[field.name] = tuple(saying(v, error_code) if isinstance(v, Struct) else v for v in value)
    return dataclasses.replace(reply, **changes)


@pytest.mark.parametrize(("policy", "key"), [(policy, key) for policy in POLICIES for key in sorted(policy.judges)])
def test_the_refusal_of_every_policy_is_found_in_every_reply_it_may_stand_in(policy: type[Policy], key: int) -> None:
    traffic, sample = Traffic(), full_sample(APIS[key].response)
    refusals = BrokerRefusals(traffic)
    silent = {(policy.name, int(policy.broker_error)): 0 for policy in POLICIES}
    assert traffic.broker_rejections == silent
    refusals.count(key, saying(sample, 0))
    refusals.count(key, saying(sample, 1))
    assert traffic.broker_rejections == silent
    refusals.count(key, saying(sample, policy.broker_error))
    assert traffic.broker_rejections == {**silent, (policy.name, policy.broker_error): 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_an_error_is_no_refusal_in_the_reply_to_what_its_policy_does_not_judge(policy: type[Policy]) -> None:
    traffic = Traffic()
    for key in APIS.keys() - policy.judges:
        BrokerRefusals(traffic).count(key, saying(full_sample(APIS[key].response), policy.broker_error))
    assert set(traffic.broker_rejections.values()) == {0}


# On a connection.


def of_both(copy: BrokerCopy) -> dict[tuple[str, int], int]:
    """What is counted of the two policies that are looked at here."""
    return {rule: copy.traffic.broker_rejections[rule] for rule in (FULL, TOO_LONG)}


def refused_join(error_code: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error_code, generation_id=-1, protocol_name="", leader="", member_id="", members=()
    )


def committing(*metadata: str) -> OffsetCommitRequest:
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=n, committed_offset=1, committed_metadata=text)
        for n, text in enumerate(metadata)
    )
    return OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="t", partitions=partitions),))


def committed(*error_codes: int) -> OffsetCommitResponse:
    partitions = tuple(
        OffsetCommitResponsePartition(partition_index=n, error_code=code) for n, code in enumerate(error_codes)
    )
    return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=partitions),))


def test_the_broker_s_refusals_pass_and_are_counted_where_no_policy_is_in_force() -> None:
    copy = broker_copy()
    line = Line(copy)
    line.exchange(joining(), refused_join(81), 3)
    line.exchange(joining(), refused_join(25), 3)
    line.exchange(committing("short", "long", "long"), committed(0, 12, 12), 3)
    heartbeat = ConsumerGroupHeartbeatRequest(group_id="n", member_id="m", member_epoch=0)
    told = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=81, error_message="full", member_id=None, member_epoch=0, heartbeat_interval_ms=0
    )
    line.exchange(heartbeat, told, 0)
    assert of_both(copy) == {FULL: 2, TOO_LONG: 1}
    assert copy.traffic.policy_rejections == copy.traffic.policy_audits == {}


def test_what_the_sidecar_refuses_is_not_the_broker_s() -> None:
    copy = certain_copy(policies={"group_max_size": {"limit": 1, "error_code": 81}})
    settled(copy, "a")
    line, message = Line(copy), joining()
    assert line.reads(line.says(message, 3), message, 3).error_code == 81
    assert copy.traffic.policy_rejections == {FULL: 1}
    assert of_both(copy) == {FULL: 0, TOO_LONG: 0}


def test_partitions_that_the_sidecar_withholds_are_not_the_broker_s() -> None:
    copy = broker_copy(policies={"offset_metadata_max_bytes": {"limit": 5}})
    line, message = Line(copy), committing("far too long", "short")
    line.says(message, 3)
    reply = line.reads(line.broker_says(committed(0), 3), message, 3)
    assert 12 in [partition.error_code for partition in reply.topics[0].partitions]
    assert copy.traffic.policy_rejections == {TOO_LONG: 1}
    assert of_both(copy) == {FULL: 0, TOO_LONG: 0}


def test_in_audit_mode_both_have_their_say() -> None:
    copy = certain_copy(policies={"group_max_size": {"limit": 1, "error_code": 81, "mode": "audit"}})
    settled(copy, "a")
    Line(copy).exchange(joining(), refused_join(81), 3)
    assert copy.traffic.policy_rejections == {}
    assert copy.traffic.policy_audits == {FULL: 1}
    assert of_both(copy) == {FULL: 1, TOO_LONG: 0}
