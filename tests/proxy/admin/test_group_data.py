"""The JSON of groups: the selection and the order of groups, and the fields of each."""

from typing import Any
from urllib.parse import quote

import pytest
import trio

from group_sidecar.coordinator.model.views import (
    CommittedOffset,
    GroupState,
    GroupView,
    MemberView,
)
from group_sidecar.metrics.records import timestamp
from group_sidecar.proxy.admin import group_data
from group_sidecar.proxy.broker.group_queries import Node
from tests.metrics.metrics_world import assignment
from tests.proxy.admin.api_client import COLD, ORDERS, get, get_content
from tests.proxy.admin.served_app import NOW


async def listed(query: str, *groups: GroupView, **others: Any) -> list[str]:
    return [group["group"] for group in (await get_content(f"groups?{query}", *groups, **others))["groups"]]


# Groups.


async def test_group_list_fields() -> None:
    """The list of groups contains every field of each group and the totals."""
    content = await get_content("groups")
    assert (content["at"], content["total"], content["all"]) == (timestamp(NOW), 3, 3)
    cold, newer, orders = content["groups"]
    assert orders == {
        "group": "orders",
        "protocol": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "range",
        "generation": 3,
        "members": 4,
        "members_known": True,
        "limit": None,
        "lag": 10,
        "lag_unknown_partitions": 1,
        "committed_partitions": 3,
        "last_rebalance_at": timestamp(NOW - 60),
        "last_cause": "session_expired",
        "last_reason": "expired",
        "rebalances": 2,
        "lacking": None,
        "offsets_lacking": None,
    }
    assert (cold["group"], cold["lacking"], cold["offsets_lacking"]) == ("cold", "cold", "stale")
    assert (cold["lag"], cold["last_rebalance_at"], cold["last_cause"], cold["rebalances"]) == (None, None, None, 0)
    assert (newer["protocol"], newer["generation"], newer["assignor"], newer["members"]) == (
        "consumer",
        9,
        "uniform",
        2,
    )


async def test_group_list_shows_limit() -> None:
    """The list of groups contains each group's limit."""
    (group,) = (await get_content("groups", ORDERS, max_members=lambda view: 5 if view.members else None))["groups"]
    assert group["limit"] == 5


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("search=RD", ["orders"]),
        ("search=nobody", []),
        ("search=&state=&type=&cause=&sort=&order=&limit=&offset=", ["cold", "newer", "orders"]),
        ("state=Stable", ["orders"]),
        ("type=consumer", ["newer"]),
        ("type=classic&state=Empty", ["cold"]),
        ("cause=session_expired", ["orders"]),
        ("cause=new_member", ["newer"]),
        ("cause=unknown", []),
        ("order=desc", ["orders", "newer", "cold"]),
        ("sort=members", ["cold", "newer", "orders"]),
        ("sort=members&order=desc", ["orders", "newer", "cold"]),
        ("sort=lag", ["orders", "cold", "newer"]),
        ("sort=lag&order=desc", ["orders", "cold", "newer"]),
        ("sort=last_rebalance_at", ["orders", "cold", "newer"]),
        ("sort=rebalances", ["cold", "newer", "orders"]),
        ("sort=rebalances&order=desc", ["orders", "newer", "cold"]),
        ("limit=1", ["cold"]),
        ("limit=1&offset=1", ["newer"]),
        ("offset=3", []),
        ("sort=rebalances&limit=1&offset=1&order=desc", ["newer"]),
    ],
)
async def test_group_list_filter_sort_and_page(query: str, found: list[str]) -> None:
    """Search, filters, sorting and paging select the expected groups in the expected order."""
    assert await listed(query) == found


async def test_total_counts_matches_before_paging() -> None:
    """The total counts all matching groups, including those on other pages."""
    content = await get_content("groups?search=e&limit=1")
    assert (content["total"], content["all"], len(content["groups"])) == (2, 3, 1)
    content = await get_content("groups?cause=new_member&limit=1&offset=1")
    assert (content["total"], content["all"], content["groups"]) == (1, 3, [])


async def test_sort_ties_are_ordered_by_id() -> None:
    """Groups with equal sort values are in ascending order of their ids in both directions."""
    groups = [GroupView(group_id=name, state=GroupState.EMPTY) for name in ("b", "a", "c")]
    assert await listed("sort=members", *groups) == ["a", "b", "c"]
    assert await listed("sort=members&order=desc", *groups) == ["a", "b", "c"]


# One group.


@pytest.mark.parametrize("node", [Node(2, "broker-2", 9092), None])
async def test_group_detail_shows_coordinator(node: Node | None) -> None:
    """The detail of a group contains its coordinator's node, or null if the coordinator is unknown."""
    content = await get_content("group?group=orders", coordinator={"orders": node}.get)
    where = {"id": 2, "host": "broker-2", "port": 9092}
    assert (content["coordinator"], content["leader"], content["generation"]) == (where if node else None, "m-1", 3)


async def test_group_detail_lists_members() -> None:
    """The detail of a group lists its members with their assignments."""
    content = await get_content("group?group=orders")
    assert (content["group"], content["lag"], content["rebalances"], content["leader"]) == ("orders", 10, 2, "m-1")
    assert (content["lag_unknown_partitions"], content["committed_partitions"]) == (1, 3)
    first, second, third, fourth = content["member_list"]
    assert first == {
        "member_id": "m-1",
        "instance_id": "i",
        "client_id": "a",
        "client_host": "/10.0.0.1",
        "principal": "User:CN=alice",
        "since": None,
        "assignment": {"sales": [0]},
        "assignment_bytes": len(assignment("sales", 0)),
    }
    assert (second["assignment"], second["since"], second["principal"]) == ({"sales": [1, 2]}, timestamp(NOW - 5), "")
    assert (third["assignment"], third["assignment_bytes"]) == (None, 3)
    assert (fourth["assignment"], fourth["assignment_bytes"]) == ({}, 0)


async def test_foreign_assignments_are_not_decoded() -> None:
    """Assignments of a protocol type other than consumer are not decoded."""
    members = (MemberView(member_id="w", assignment=assignment("sales", 0)),)
    view = GroupView(group_id="connect", state=GroupState.STABLE, protocol_type="connect", members=members)
    (member,) = (await get_content("group?group=connect", view))["member_list"]
    assert member["assignment"] is None
    assert (await get_content("offsets?group=connect", view))["offsets"] == []


async def test_repeated_assignment_topics_are_merged() -> None:
    """An assignment that names a topic twice yields that topic once with all its partitions."""
    one, other = assignment("sales", 3), assignment("sales", 1)
    both = one[:2] + (2).to_bytes(4, "big") + one[6:-4] + other[6:]
    view = GroupView(
        group_id="g",
        state=GroupState.STABLE,
        protocol_type="consumer",
        members=(MemberView(member_id="m", assignment=both),),
    )
    (member,) = (await get_content("group?group=g", view))["member_list"]
    assert member["assignment"] == {"sales": [1, 3]}


async def test_consumer_protocol_group_detail() -> None:
    """A consumer-protocol member has a decoded assignment, or null if a topic's name is unknown."""
    content = await get_content("group?group=newer")
    assert (content["members"], content["generation"], content["state"]) == (2, 9, "Reconciling")
    first, second = content["member_list"]
    assert (first["assignment"], first["assignment_bytes"]) == ({"sales": [0, 1]}, 8)
    assert second["assignment"] is None, "an assignment is null if a topic's name is unknown"


async def test_offsets() -> None:
    content = await get_content("offsets?group=orders")
    assert (content["group"], content["state"]) == ("orders", "Stable")
    old, first, second, third = content["offsets"]
    nobody = {"member_id": None, "client_id": None, "client_host": None, "principal": None}
    assert old == {
        "topic": "old",
        "partition": 0,
        "current_offset": 7,
        "log_end_offset": None,
        "log_end_at": None,
        "lag": None,
        "metadata": "",
        "committed_at": None,
        **nobody,
    }
    assert first == {
        "topic": "sales",
        "partition": 0,
        "current_offset": 100,
        "log_end_offset": 90,
        "log_end_at": timestamp(NOW),
        "lag": 0,
        "metadata": None,
        "committed_at": timestamp(NOW),
        "member_id": "m-1",
        "client_id": "a",
        "client_host": "/10.0.0.1",
        "principal": "User:CN=alice",
    }
    assert (second["lag"], second["metadata"], second["member_id"]) == (10, "<b>", "m-2")
    assert (third["partition"], third["current_offset"], third["lag"], third["member_id"]) == (2, None, None, "m-2")
    assert third["log_end_offset"] == 5


async def test_timeline_is_ordered_by_time() -> None:
    """The timeline of a group lists its events from the oldest to the newest."""
    content = await get_content("timeline?group=orders")
    assert [cell["at"] for cell in content["timeline"]] == [timestamp(NOW - ago) for ago in (4000, 3000, 60)]


@pytest.mark.parametrize("path", ["group", "offsets", "timeline", "why"])
@pytest.mark.parametrize("group_id", ["", "a/b", "a b+c", "größe ☂", "<script>&amp;\"'", "../x", "%2F", "\x00\n", "🦀"])
async def test_endpoints_accept_any_group_name(path: str, group_id: str) -> None:
    """Each endpoint of a group accepts any group name, and returns 404 for an unknown group."""
    target = f"{path}?group={quote(group_id, safe='')}"
    assert (await get_content(target, GroupView(group_id=group_id, state=GroupState.EMPTY)))["group"] == group_id
    reply = await get(target, COLD)
    assert (reply.status, reply.content) == (404, {"error": "no such group", "group": group_id, "unreachable": []})


async def test_deleted_group_keeps_its_history() -> None:
    """A deleted group keeps its timeline and its rebalances, while its detail is 404."""
    assert len((await get_content("timeline?group=orders", COLD))["timeline"]) == 3
    assert (await get_content("why?group=orders", COLD))["rebalances"] == 2
    assert (await get("group?group=orders", COLD)).status == 404


async def test_relearned_group_keeps_last_rebalance() -> None:
    """A group that the copy learns again still has the last rebalance from the flight recorder."""
    again = GroupView(group_id="orders", state=GroupState.STABLE)
    shown = await get_content("group?group=orders", again)
    [last] = [cell for cell in (await get_content("timeline?group=orders", again))["timeline"] if "generation" in cell][
        -1:
    ]
    assert (shown["last_rebalance_at"], shown["last_cause"]) == (last["at"], last["cause"])


# Turns.


@pytest.mark.parametrize("target", ["groups?sort=rebalances&limit=1000", "offsets?group=wide", "status"])
async def test_json_encoding_yields_to_other_tasks(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Other tasks run while the sidecar encodes a large reply."""
    monkeypatch.setattr(group_data, "SLICE_SECONDS", 0.0)
    wide = GroupView(
        group_id="wide", state=GroupState.EMPTY, offsets={("t", n): CommittedOffset(n) for n in range(500)}
    )
    groups = [wide, *(GroupView(group_id=f"g{n}", state=GroupState.EMPTY) for n in range(500))]
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        await get_content(target, *groups)
        nursery.cancel_scope.cancel()
    assert turns > 500
