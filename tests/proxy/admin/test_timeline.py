"""The flight recorder on the admin port."""

import json
from typing import Any
from urllib.parse import quote

import pytest
import trio

from group_sidecar.coordinator.model.facts import ClientRefused, MemberJoined
from group_sidecar.metrics.flight_recorder import FlightRecorder, timeline_entry
from tests.proxy.admin.served_app import admin, served
from tests.proxy.fakes import read_to_end

PATH = "/api/v1/timeline"


async def ask(at: tuple[str, int], target: str) -> tuple[int, Any]:
    """Requests a path. Returns status and JSON body of the reply."""
    async with await trio.open_tcp_stream(*at) as stream:
        await stream.send_all(f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        head, _, body = (await read_to_end(stream)).partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    return int(head.split()[1]), json.loads(body)


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
    async with served(admin([], recorder=recorder)) as at:
        status, content = await ask(at, f"{PATH}?group={quote(group_id, safe='')}")
    timeline = [timeline_entry(joined(group_id, 1.0)), timeline_entry(refused)]
    assert (status, content) == (
        200,
        {"group": group_id, "timeline": timeline, "forgotten": ALL_KEPT, "unreachable": []},
    )
