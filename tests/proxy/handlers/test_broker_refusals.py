"""Refusals of the broker by the rules of the policies are counted from its replies."""

import dataclasses
from typing import Any

import pytest

from group_sidecar.codecs.api_registry import APIS
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
from group_sidecar.codecs.schema import Struct
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.policies.all_policies import POLICIES
from group_sidecar.policies.policy import Policy
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.handlers.broker_refusals import BrokerRefusals
from tests.codecs.declarations import full_sample
from tests.proxy.dataplane.playbook import Line, broker_state, complete_state, joining, stable_group

FULL, TOO_LONG = ("group_max_size", 81), ("offset_metadata_max_bytes", 12)


def saying(reply: Any, error_code: int) -> Any:
    """Returns a reply with this code in every error field."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(reply):
        value = getattr(reply, field.name)
        if field.name == "error_code":
            changes[field.name] = error_code
        elif isinstance(value, tuple):
            changes[field.name] = tuple(saying(v, error_code) if isinstance(v, Struct) else v for v in value)
    return dataclasses.replace(reply, **changes)


@pytest.mark.parametrize(
    ("policy", "key"), [(policy, key) for policy in POLICIES for key in sorted(policy.judged_apis)]
)
def test_each_policy_error_is_counted(policy: type[Policy], key: int) -> None:
    """A policy's error code counts as a refusal by the broker in the reply of each API that the policy judges."""
    traffic, sample = TrafficCounters(), full_sample(APIS[key].response)
    refusals = BrokerRefusals(traffic)
    silent = {(policy.name, int(policy.broker_error)): 0 for policy in POLICIES}
    assert traffic.broker_rejections == silent
    refusals.count(key, saying(sample, 0))
    refusals.count(key, saying(sample, 1))
    assert traffic.broker_rejections == silent
    refusals.count(key, saying(sample, policy.broker_error))
    assert traffic.broker_rejections == {**silent, (policy.name, policy.broker_error): 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_error_of_unjudged_api_is_not_counted(policy: type[Policy]) -> None:
    """A policy's error code does not count as a refusal in replies of APIs that the policy does not judge."""
    traffic = TrafficCounters()
    for key in APIS.keys() - policy.judged_apis:
        BrokerRefusals(traffic).count(key, saying(full_sample(APIS[key].response), policy.broker_error))
    assert set(traffic.broker_rejections.values()) == {0}


# On a connection.


def of_both(state: BrokerState) -> dict[tuple[str, int], int]:
    """Returns the counters of the two policies of these tests."""
    return {rule: state.traffic.broker_rejections[rule] for rule in (FULL, TOO_LONG)}


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


def test_broker_refusals_without_policy() -> None:
    """Without a policy in force, the broker's refusals pass to the client and are counted once per reply."""
    state = broker_state()
    line = Line(state)
    line.exchange(joining(), refused_join(81), 3)
    line.exchange(joining(), refused_join(25), 3)
    line.exchange(committing("short", "long", "long"), committed(0, 12, 12), 3)
    heartbeat = ConsumerGroupHeartbeatRequest(group_id="n", member_id="m", member_epoch=0)
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=81, error_message="full", member_id=None, member_epoch=0, heartbeat_interval_ms=0
    )
    line.exchange(heartbeat, response, 0)
    assert of_both(state) == {FULL: 2, TOO_LONG: 1}
    assert state.traffic.policy_rejections == state.traffic.policy_audits == {}


def test_sidecar_refusal_is_not_brokers() -> None:
    """A join that the sidecar refuses does not count as a refusal by the broker."""
    state = complete_state(policies={"group_max_size": {"limit": 1, "error_code": 81}})
    stable_group(state, "a")
    line, message = Line(state), joining()
    assert line.reads_reply(line.sends(message, 3), message, 3).error_code == 81
    assert state.traffic.policy_rejections == {FULL: 1}
    assert of_both(state) == {FULL: 0, TOO_LONG: 0}


def test_withheld_partitions_are_not_brokers() -> None:
    """Partitions that the sidecar withholds from a commit do not count as refused by the broker."""
    state = broker_state(policies={"offset_metadata_max_bytes": {"limit": 5}})
    line, message = Line(state), committing("far too long", "short")
    line.sends(message, 3)
    reply = line.reads_reply(line.broker_replies(committed(0), 3), message, 3)
    assert 12 in [partition.error_code for partition in reply.topics[0].partitions]
    assert state.traffic.policy_rejections == {TOO_LONG: 1}
    assert of_both(state) == {FULL: 0, TOO_LONG: 0}


def test_audit_mode_counts_both_refusals() -> None:
    """In audit mode, the policy's audit and the broker's refusal of the same join are both counted."""
    state = complete_state(policies={"group_max_size": {"limit": 1, "error_code": 81, "mode": "audit"}})
    stable_group(state, "a")
    Line(state).exchange(joining(), refused_join(81), 3)
    assert state.traffic.policy_rejections == {}
    assert state.traffic.policy_audits == {FULL: 1}
    assert of_both(state) == {FULL: 1, TOO_LONG: 0}
