"""How a running sidecar reports its policies: metrics, journal, flight recorder."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families as parse_text

from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.metrics.fact_counters import error_name
from group_sidecar.policies.all_policies import POLICIES
from group_sidecar.proxy.broker.kafka_client import CLIENT_ID, connect
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.sidecar import Addresses
from group_sidecar.proxy.sidecar_process import run_sidecar
from tests.proxy.dataplane.playbook import joining
from tests.proxy.fakes import FakeBroker, read_to_end
from tests.proxy.scripted_broker import ScriptedBroker

Series = dict[tuple[str, ...], float]


@asynccontextmanager
async def sidecar(**settings: Any) -> AsyncIterator[Addresses]:
    """Runs a sidecar until the block ends."""
    config = Config.model_validate({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", **settings})
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(run_sidecar, config, stop=stop))
        stop.set()


async def get(address: Address | None, path: str) -> str:
    """Returns the body of a page of the admin port."""
    assert address is not None
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        return (await read_to_end(stream)).partition(b"\r\n\r\n")[2].decode()


async def policy_series(at: Addresses) -> dict[str, Series]:
    """Returns the policy families by name without prefix, each with its values by policy and, if present, error."""
    families = parse_text(await get(at.admin, "/metrics"))
    return {
        family.name.removeprefix("group_sidecar_"): {
            tuple(sample.labels[label] for label in ("policy", "error") if label in sample.labels): sample.value
            for sample in family.samples
        }
        for family in families
        if family.name.startswith("group_sidecar_policy_")
    }


FAMILIES = (
    *("policy_evaluations", "policy_confirmations"),
    *("policy_rejections", "policy_audited_rejections", "policy_broker_rejections"),
)


async def test_policy_series_start_at_zero() -> None:
    """All metric series of every policy in force exist with value 0 from the start."""
    settings: dict[str, Any] = {policy.name: {"limit": 1} for policy in POLICIES}
    async with sidecar(upstream="127.0.0.1:1", policies=settings) as at:
        found = await policy_series(at)
    every = [policy(policy.Settings.model_validate(settings[policy.name])) for policy in POLICIES]
    by_policy: Series = {(policy.name,): 0 for policy in every}
    by_error: Series = {(policy.name, error_name(code)): 0 for policy in every for code in policy.error_codes}
    brokers: Series = {(policy.name, error_name(policy.broker_error)): 0 for policy in every}
    assert found == dict(zip(FAMILIES, (by_policy, by_policy, by_error, by_error, brokers), strict=True))


async def test_broker_refusal_series_start_at_zero() -> None:
    """Without policies, the series of the broker's refusals exist with value 0, and no other policy series."""
    async with sidecar(upstream="127.0.0.1:1") as at:
        found = await policy_series(at)
    brokers: Series = {(policy.name, error_name(policy.broker_error)): 0 for policy in POLICIES}
    assert found == dict(zip(FAMILIES, ({}, {}, {}, {}, brokers), strict=True))


def one_member(group_id: str) -> DescribeGroupsResponse:
    """Returns the broker's description of a stable group with one member."""
    member = DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b""
    )
    group = DescribedGroup(
        error_code=0,
        group_id=group_id,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=(member,),
    )
    return DescribeGroupsResponse(groups=(group,))


REBALANCING = JoinGroupResponse(error_code=27, generation_id=-1, protocol_name="", leader="", member_id="", members=())


def written_records(folder: Path) -> list[dict[str, Any]]:
    """Returns all records of a journal."""
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("mode", "code", "family", "kind", "what"),
    [
        ("enforce", 77, "policy_rejections", "refusal", "client_refused"),
        ("audit", 27, "policy_audited_rejections", "audit", "client_audited"),
    ],
)
async def test_refusal_reaches_metrics_and_journal(
    nursery: trio.Nursery, tmp_path: Path, mode: str, code: int, family: str, kind: str, what: str
) -> None:
    """A refusal or audit appears with its kind in the metrics, the journal and the flight recorder."""
    group_id, error = "a group/ü", ("group_max_size", "GROUP_MAX_SIZE_REACHED_KIP_389")
    broker = ScriptedBroker({DescribeGroupsRequest: one_member(group_id), JoinGroupRequest: REBALANCING})
    upstream: Address = await nursery.start(FakeBroker(broker.serve).run)
    settings = {"policies": {"group_max_size": {"limit": 1, "mode": mode}}, "journal": {"folder": str(tmp_path)}}
    async with sidecar(upstream=str(upstream), **settings) as at:
        async with connect(*at.listen) as client:
            assert (await client.ask(joining(group_id), 3)).error_code == code
        found = await policy_series(at)
        timeline = json.loads(await get(at.admin, "/api/v1/timeline?group=a%20group/%C3%BC"))
    assert found["policy_confirmations"] == {("group_max_size",): 1}
    assert found["policy_evaluations"] == {("group_max_size",): 1}
    assert {name: series[error] for name, series in found.items() if series.get(error)} == {family: 1}
    verdict = {
        "policy": "group_max_size",
        "error_code": 77,
        "client_id": CLIENT_ID,
        "client_host": "/127.0.0.1",
        "size": 1,
        "limit": 1,
    }
    (entry,) = timeline["timeline"]
    moment = entry.pop("at")
    assert timeline["group"] == group_id
    once = {"count": 1, "first_at": moment}
    assert entry == {"what": what, **verdict, "principal": "", "error": error[1], "enforced": mode == "enforce", **once}
    (record,) = (record for record in written_records(tmp_path) if record["kind"] in ("refusal", "audit"))
    assert (
        record.items() >= {"kind": kind, "group": group_id, "observed_at": moment, **verdict, "principal": None}.items()
    )
    nursery.cancel_scope.cancel()
