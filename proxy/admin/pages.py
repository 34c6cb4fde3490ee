"""The HTML pages about the groups and the sidecar, for an operator who is on call.

The paths are /, /group, /refusals, /status and /static/. Links are relative, so that the pages also work under a path
of a reverse proxy. A page depends only on its address, so it can be bookmarked. Pages work without JavaScript. The
script only reloads a page, and applies the filter while the user types.
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

from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.proxy.admin import json_models as m
from group_sidecar.proxy.admin import sentences
from group_sidecar.proxy.admin.group_data import GroupData
from group_sidecar.proxy.admin.http_replies import problem
from group_sidecar.proxy.admin.json_api import WrongParameter, parameters
from group_sidecar.proxy.admin.templating import FOLDER, render
from group_sidecar.proxy.admin.timeline_picture import Picture, draw_timeline, event_names, kind, picture_start, summary

MAX_ROWS = 500
"""Maximum number of members, and of partitions, on a group's page. The JSON contains all of them."""
REFUSALS = 200
REFRESH_SECONDS = {"groups": 3, "group": 3, "refusals": 5, "status": 5, "missing": 5}
"""Seconds after which a page reloads."""

DAY = timedelta(days=1)
SPANS = {
    900: "15 minutes",
    3600: "1 hour",
    6 * 3600: "6 hours",
    86400: "1 day",
    7 * 86400: "7 days",
}
"""The time spans of a timeline that the user can choose, in seconds, with their labels."""

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
    ("cause", "Cause of the last rebalance", list(sentences.CAUSE_LABELS.items())),
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
    """Selects one group and the span of its timeline."""

    span: int | None = None
    """Seconds, one of `SPANS`. By default the page uses the shortest span of at least an hour with an event."""


class _Event(NamedTuple):
    """A timeline entry as a row of a table. `group`: the entry's group; empty on the page of that group."""

    name: str
    at: str
    kind: str
    description: sentences.Sentence
    group: str = ""


def page_routes(data: GroupData, epoch: Callable[[], float] = time.time) -> list[BaseRoute]:
    """Returns the routes of pages and static files. `epoch`: returns the present time in seconds since the epoch."""
    pages = _Pages(data, epoch)
    return [
        Route("/", _page_handler(m.GroupsQuery, pages.groups), name="page-groups"),
        Route("/group", _page_handler(GroupPageQuery, pages.group), name="page-group"),
        Route("/refusals", _page_handler(m.Query, pages.refusals), name="page-refusals"),
        Route("/status", _page_handler(m.Query, pages.status), name="page-status"),
        Mount("/static", StaticFiles(directory=FOLDER / "static"), name="static"),
    ]


def _page_handler(query_type: type[m.Query], page: Callable[[Any], Awaitable[Response]]) -> _Endpoint:
    async def answer(request: Request) -> Response:
        try:
            query = parameters(query_type, request.query_params)
        except WrongParameter as wrong:
            return problem(request, 400, str(wrong), parameter=wrong.name)
        return await page(query)

    return answer


class _Pages:
    """The handlers of the pages."""

    def __init__(self, data: GroupData, epoch: Callable[[], float]) -> None:
        self._data = data
        self._epoch = epoch

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._epoch(), UTC)

    async def groups(self, query: m.GroupsQuery) -> Response:
        found = await self._data.groups(query)
        return await self._page(
            "groups",
            "./",
            query=query,
            default=_DEFAULT,
            found=found,
            columns=_COLUMNS,
            selects=_SELECTS,
            pages=_pagination(query, found.total),
            sorted_by=lambda key: _link(query, sort=key, order=_order(query, key), offset=0),
            from_row=lambda offset: _link(query, offset=offset),
        )

    async def group(self, query: GroupPageQuery) -> Response:
        group, offsets = await self._data.group(query.group), await self._data.offsets(query.group)
        timeline = await self._data.timeline(query.group)
        cells = timeline.timeline if timeline else []
        if group is None or offsets is None:
            return await self._page("missing", "", 404, id=query.group, events=_events(cells)[::-1])
        whys = [await self._data.why(query.group, seconds) for seconds in (3600, 86400)]
        now = self._now()
        span = query.span if query.span in SPANS else _eventful_span(cells, now)
        since = now - timedelta(seconds=span)
        members = [member.model_dump() for member in group.member_list]
        picture = draw_timeline(cells, members, picture_start(cells, members, since, now), now)
        shown = [event for event in _events(cells) if sentences.parse_time(event.at) >= since]
        return await self._page(
            "group",
            "",
            group=group,
            members=group.member_list[:MAX_ROWS],
            whys=[why for why in whys if why is not None],
            spans=[(word, _span_link(query.group, seconds), seconds == span) for seconds, word in SPANS.items()],
            picture=picture,
            described=summary(cells[len(cells) - len(shown) :]),
            legend=_legend(picture),
            events=shown[::-1],
            more_members=max(0, len(members) - MAX_ROWS),
            offsets=offsets.offsets[:MAX_ROWS],
            more_offsets=max(0, len(offsets.offsets) - MAX_ROWS),
        )

    async def refusals(self, query: m.Query) -> Response:
        found = await self._data.refusals(REFUSALS)
        return await self._page("refusals", "refusals", events=_events(found.refusals))

    async def status(self, query: m.Query) -> Response:
        return await self._page("status", "status", status=await self._data.status())

    async def _page(self, name: str, here: str, code: int = 200, **content: Any) -> Response:
        now = self._now()
        at = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        html = await render(
            f"{name}.html",
            here=here,
            now=now,
            at=at,
            every=REFRESH_SECONDS[name],
            unreachable=self._data.unreachable(),
            **content,
        )
        return HTMLResponse(html, code)


def _events(cells: Sequence[sentences.Cell]) -> list[_Event]:
    return [
        _Event(name, cell["at"], kind(cell), sentences.event(cell), cell.get("group", ""))
        for name, cell in zip(event_names(cells), cells, strict=True)
    ]


def _link(query: m.GroupsQuery, **changed: Any) -> str:
    """Returns the address of the list of groups with some parameters changed. Default values are left out."""
    given = {**query.model_dump(mode="json"), **changed}
    not_default = {name: value for name, value in given.items() if value != getattr(_DEFAULT, name)}
    return "?" + urlencode(not_default) if not_default else "./"


def _order(query: m.GroupsQuery, key: str) -> str:
    """Returns the order after a click on a heading: largest first, or names from A. Another click inverts the order."""
    if query.sort == key:
        return "desc" if query.order == "asc" else "asc"
    return "asc" if key == "group" else "desc"


def _pagination(query: m.GroupsQuery, total: int) -> list[tuple[str, int | None]]:
    """Returns the links to other pages of a list, each with its first row, or None if there is no such page."""
    last = max(0, (total - 1) // query.limit * query.limit)
    previous, following = max(0, query.offset - query.limit), query.offset + query.limit
    return [
        ("First", 0 if query.offset else None),
        ("Previous", previous if query.offset else None),
        ("Next", following if following < total else None),
        ("Last", last if query.offset < last else None),
    ]


def _span_link(group_id: str, seconds: int) -> str:
    return "group?" + urlencode({"group": group_id, "span": seconds}) + "#timeline"


def _eventful_span(cells: Sequence[sentences.Cell], now: datetime) -> int:
    """Returns the shortest span of at least an hour that contains an event, or an hour if there is no event."""
    if not cells:
        return 3600
    age = (now - sentences.parse_time(cells[-1]["at"])).total_seconds()
    return next((seconds for seconds in SPANS if seconds >= max(age, 3600)), max(SPANS))


def _legend(picture: Picture) -> list[tuple[str, str]]:
    seen = {mark.kind for lane in picture.lanes for mark in lane.marks}
    return [(name, word) for name, word in LEGEND.items() if name in seen]
