"""The pages: the groups and the sidecar, for who was called at night.

Owns: what stands at /, /group, /refusals, /status and /static/, and how these link to each other. Must not know: where
anything is read, how templates are made into HTML.

Addresses are relative, so that the pages work under a path of somebody's proxy too. All that a page shows follows from
its address: it can be kept as a bookmark, and works without JavaScript, which only asks for the same address again.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from group_sidecar.coordinator.views import GroupKind, GroupState
from group_sidecar.proxy.admin import models as m
from group_sidecar.proxy.admin import words
from group_sidecar.proxy.admin.api import WrongParameter, parameters
from group_sidecar.proxy.admin.reading import GroupData
from group_sidecar.proxy.admin.rendering import FOLDER, render
from group_sidecar.proxy.admin.replies import problem
from group_sidecar.proxy.admin.timeline_picture import Picture, beginning, drawn, event_names, kind, summary

MOST_ROWS = 500
"""Members or partitions of a group that a page shows; the rest stands in the JSON."""
REFUSALS = 200
EVERY = {"groups": 3, "group": 3, "refusals": 5, "status": 5, "missing": 5}
"""Seconds after which a page asks for itself again."""

DAY = timedelta(days=1)
SPANS = {
    900: "15 minutes",
    3600: "1 hour",
    6 * 3600: "6 hours",
    86400: "1 day",
    7 * 86400: "7 days",
}
"""How much of a timeline can be drawn, in seconds."""

_COLUMNS = (
    ("group", "Group", ""),
    (None, "State", ""),
    (None, "Protocol", ""),
    ("members", "Members", "number"),
    ("lag", "Lag", "number"),
    ("last_rebalance_at", "Last rebalance", ""),
    (None, "Cause", ""),
    ("rebalances", "Rebalances in 1 h", "number"),
)
_SELECTS = (
    ("state", "State", [(state.value, state.value) for state in GroupState]),
    ("type", "Protocol", [(kind.value, kind.value) for kind in GroupKind]),
    ("cause", "Cause of the last rebalance", list(words.CAUSES.items())),
)
_DEFAULT = m.GroupsQuery()
_Endpoint = Callable[[Request], Awaitable[Response]]
LEGEND = {
    "join": "rebalance: a member joined",
    "leave": "rebalance: a member left",
    "metadata": "rebalance: subscription or topics changed",
    "expired": "rebalance, or a member's end: session expired",
    "unknown": "rebalance: cause not seen",
    "moved": "the broker does not coordinate the group: a restart, or another broker does",
    "left": "a member left",
    "dropped": "a member's end: rebalance timeout",
    "removed": "a member's end: removed by the sidecar",
    "kicked": "a member's end: removed by an admin",
    "fenced": "a member's end: fenced",
    "refused": "refused by a policy",
    "audited": "would have been refused",
    "failed": "commit failed",
}


class GroupPageQuery(m.GroupQuery):
    """One group, and how much of its timeline."""

    span: int | None = None
    """Seconds of `SPANS`; where it is missing, the shortest, from an hour on, in which something happened."""


class _Event(NamedTuple):
    """A cell of a timeline, for a row. `group`: whose, where it is not the page's own."""

    name: str
    at: str
    kind: str
    told: words.Sentence
    group: str = ""


def page_routes(data: GroupData, epoch: Callable[[], float] = time.time) -> list[BaseRoute]:
    """A route for each page, and for what pages load. `epoch`: seconds since the epoch, on the clock of the views."""
    pages = _Pages(data, epoch)
    return [
        Route("/", _asked(m.GroupsQuery, pages.groups), name="page-groups"),
        Route("/group", _asked(GroupPageQuery, pages.group), name="page-group"),
        Route("/refusals", _asked(m.Query, pages.refusals), name="page-refusals"),
        Route("/status", _asked(m.Query, pages.status), name="page-status"),
        Mount("/static", StaticFiles(directory=FOLDER / "static"), name="static"),
    ]


def _asked(query: type[m.Query], page: Callable[[Any], Awaitable[Response]]) -> _Endpoint:
    async def answer(request: Request) -> Response:
        try:
            asked = parameters(query, request.query_params)
        except WrongParameter as wrong:
            return problem(request, 400, str(wrong), parameter=wrong.name)
        return await page(asked)

    return answer


class _Pages:
    """What stands on each page."""

    def __init__(self, data: GroupData, epoch: Callable[[], float]) -> None:
        self._data = data
        self._epoch = epoch

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._epoch(), UTC)

    async def groups(self, asked: m.GroupsQuery) -> Response:
        found = await self._data.groups(asked)
        return await self._page(
            "groups",
            "./",
            asked=asked,
            default=_DEFAULT,
            found=found,
            columns=_COLUMNS,
            selects=_SELECTS,
            pages=_table_pages(asked, found.total),
            sorted_by=lambda key: _link(asked, sort=key, order=_order(asked, key), offset=0),
            from_row=lambda offset: _link(asked, offset=offset),
        )

    async def group(self, asked: GroupPageQuery) -> Response:
        group, offsets = await self._data.group(asked.group), await self._data.offsets(asked.group)
        timeline = await self._data.timeline(asked.group)
        cells = timeline.timeline if timeline else []
        if group is None or offsets is None:
            return await self._page("missing", "", 404, id=asked.group, events=_events(cells)[::-1])
        whys = [await self._data.why(asked.group, seconds) for seconds in (3600, 86400)]
        now = self._now()
        span = asked.span if asked.span in SPANS else _telling_span(cells, now)
        since = now - timedelta(seconds=span)
        members = [member.model_dump() for member in group.member_list]
        picture = drawn(cells, members, beginning(cells, members, since, now), now)
        shown = [event for event in _events(cells) if words.moment(event.at) >= since]
        return await self._page(
            "group",
            "",
            group=group,
            members=group.member_list[:MOST_ROWS],
            whys=[why for why in whys if why is not None],
            spans=[(word, _span_link(asked.group, seconds), seconds == span) for seconds, word in SPANS.items()],
            picture=picture,
            described=summary(cells[len(cells) - len(shown) :]),
            legend=_legend(picture),
            events=shown[::-1],
            more_members=max(0, len(members) - MOST_ROWS),
            offsets=offsets.offsets[:MOST_ROWS],
            more_offsets=max(0, len(offsets.offsets) - MOST_ROWS),
        )

    async def refusals(self, asked: m.Query) -> Response:
        told = await self._data.refusals(REFUSALS)
        return await self._page("refusals", "refusals", events=_events(told.refusals))

    async def status(self, asked: m.Query) -> Response:
        return await self._page("status", "status", status=await self._data.status())

    async def _page(self, name: str, here: str, code: int = 200, **content: Any) -> Response:
        now = self._now()
        at = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        html = await render(
            f"{name}.html",
            here=here,
            now=now,
            at=at,
            every=EVERY[name],
            unreachable=self._data.unreachable(),
            **content,
        )
        return HTMLResponse(html, code)


def _events(cells: Sequence[words.Cell]) -> list[_Event]:
    return [
        _Event(name, cell["at"], kind(cell), words.event(cell), cell.get("group", ""))
        for name, cell in zip(event_names(cells), cells, strict=True)
    ]


def _link(asked: m.GroupsQuery, **changed: Any) -> str:
    """The address of the groups with other parameters; those that say nothing new are left out."""
    given = {**asked.model_dump(mode="json"), **changed}
    query = {name: value for name, value in given.items() if value != getattr(_DEFAULT, name)}
    return "?" + urlencode(query) if query else "./"


def _order(asked: m.GroupsQuery, key: str) -> str:
    """In which order a heading sorts: what is most first, names from A; the other way when it is clicked again."""
    if asked.sort == key:
        return "desc" if asked.order == "asc" else "asc"
    return "asc" if key == "group" else "desc"


def _table_pages(asked: m.GroupsQuery, total: int) -> list[tuple[str, int | None]]:
    """Where a reader can go from here, and from which row that is; None where there is nothing."""
    last = max(0, (total - 1) // asked.limit * asked.limit)
    before, after = max(0, asked.offset - asked.limit), asked.offset + asked.limit
    return [
        ("First", 0 if asked.offset else None),
        ("Previous", before if asked.offset else None),
        ("Next", after if after < total else None),
        ("Last", last if asked.offset < last else None),
    ]


def _span_link(group_id: str, seconds: int) -> str:
    return "group?" + urlencode({"group": group_id, "span": seconds}) + "#timeline"


def _telling_span(cells: Sequence[words.Cell], now: datetime) -> int:
    """The shortest span, from an hour on, in which something happened; an hour where nothing ever did."""
    if not cells:
        return 3600
    age = (now - words.moment(cells[-1]["at"])).total_seconds()
    return next((seconds for seconds in SPANS if seconds >= max(age, 3600)), max(SPANS))


def _legend(picture: Picture) -> list[tuple[str, str]]:
    seen = {mark.kind for lane in picture.lanes for mark in lane.marks}
    return [(name, word) for name, word in LEGEND.items() if name in seen]
