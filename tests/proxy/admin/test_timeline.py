"""The flight recorder on the admin port."""

import json
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import quote

import pytest
import trio

from group_sidecar.coordinator.model.facts import ClientRefused, MemberJoined
from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.metrics.flight_recorder import FlightRecorder, timeline_entry
from tests.proxy.admin.served_app import admin, served
from tests.proxy.fakes import read_to_end

PATH = "/api/v1/timeline"


def recorded(recorder: FlightRecorder, groups: Iterable[str] = ()) -> AbstractAsyncContextManager[tuple[str, int]]:
    """An admin port that has this recorder, and knows these groups."""
    return served(admin([GroupView(group_id=group_id) for group_id in groups], recorder=recorder))


async def ask(at: tuple[str, int], target: str, method: str = "GET") -> tuple[int, Any]:
    """Status, and what the body says as JSON; None where it is empty."""
    async with await trio.open_tcp_stream(*at) as stream:
        await stream.send_all(f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        head, _, body = (await read_to_end(stream)).partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    return int(head.split()[1]), json.loads(body) if body else None


ALL_KEPT = {"changes": None, "commits": None, "refusals": None}


def joined(group_id: str, at: float) -> MemberJoined:
    return MemberJoined(group_id=group_id, at=at, member_id="m", client_id="<b>&amp;", client_host="/h")


@pytest.mark.parametrize(
    "group_id", ["orders", "", "a b", "a+b", "a&group=b", "100%41", "größe ☂", "<b>\"'\\", "\x00\r\n", "�", "x" * 3000]
)
async def test_timeline_accepts_any_group_name(group_id: str) -> None:
    """The timeline of a group with any name contains exactly that group's facts, in order of time."""
    refused = ClientRefused(
        group_id=group_id,
        at=2.0,
        policy="group_max_size",
        error_code=81,
        client_id=group_id,
        client_host="/h",
        size=5,
        limit=5,
    )
    recorder = FlightRecorder(1 << 20)
    for fact in (refused, joined(group_id, 1.0), joined("another", 1.5)):
        recorder.observe(fact)
    async with recorded(recorder) as at:
        status, content = await ask(at, f"{PATH}?group={quote(group_id, safe='')}")
    timeline = [timeline_entry(joined(group_id, 1.0)), timeline_entry(refused)]
    assert (status, content) == (
        200,
        {"group": group_id, "timeline": timeline, "forgotten": ALL_KEPT, "unreachable": []},
    )


async def test_timeline_of_unknown_group_is_404() -> None:
    """The timeline of an unknown group is 404, and the timeline of a known group without events is empty."""
    async with recorded(FlightRecorder(1 << 20), ["known"]) as at:
        assert await ask(at, f"{PATH}?group=gone%2Fwild") == (
            404,
            {"error": "no such group", "group": "gone/wild", "unreachable": []},
        )
        assert await ask(at, f"{PATH}?group=known") == (
            200,
            {"group": "known", "timeline": [], "forgotten": ALL_KEPT, "unreachable": []},
        )


@pytest.mark.parametrize("query", ["", "?", "?groups=a", "?group=a&group=b", "?a"])
async def test_query_needs_exactly_one_group(query: str) -> None:
    """A query without exactly one group parameter gets 400."""
    async with recorded(FlightRecorder(1 << 20), ["a", "b", ""]) as at:
        status, content = await ask(at, PATH + query)
    assert (status, list(content)) == (400, ["error", "parameter"])


async def test_timeline_is_read_only() -> None:
    """The timeline path answers HEAD with 200 and DELETE with 405."""
    async with recorded(FlightRecorder(1 << 20), ["a"]) as at:
        assert await ask(at, f"{PATH}?group=a", "HEAD") == (200, None)
        assert (await ask(at, f"{PATH}?group=a", "DELETE"))[0] == 405
