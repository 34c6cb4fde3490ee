"""The pages without a browser: their contents, their links, and that no name can inject markup."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp

from group_sidecar.coordinator.model.facts import (
    ClientRefused,
    Departure,
    Fact,
    MemberGone,
    MemberInfo,
    MemberJoined,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceReason,
    RebalanceStarted,
    SlowestMember,
)
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupState, GroupView, MemberView
from group_sidecar.proxy.admin import pages, templating
from tests.page.fleet import CHECKOUT, checkout, fleet, recorded
from tests.proxy.admin.served_app import NOW, Reply, admin, ask, figures, served

HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</title></svg></table><h1>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "&lt;b&gt;&amp;",
    "a\x00b\r\nc\x1b[31m\x85",
    "\u202egnp.exe\u2066\u200f",
    "größe ☂ 𝒳",
    "a/b?c=d&e#f%2F+g h",
    "x" * 2000,
]
VOID = {"meta", "link", "img", "input"}


class Parsed(HTMLParser):
    """A parsed page: its elements and its texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.visible_texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"elements without an end tag: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.visible_texts.append(data)

    @property
    def shape(self) -> list[tuple[str, list[str]]]:
        """Returns the elements with the names of their attributes. No group name may change them."""
        return [(tag, list(attributes)) for tag, attributes in self.elements]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.visible_texts).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def parsed(reply: Reply) -> Parsed:
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    return Parsed(reply.body.decode())


async def page(app: ASGIApp, target: str) -> Parsed:
    reply = await ask(app, target)
    assert reply.status == 200
    return parsed(reply)


def of(group_id: str) -> str:
    return f"/group?group={quote(group_id, safe='')}"


def named(name: str) -> ASGIApp:
    """Returns the pages of a sidecar in which every name that a client can choose is `name`."""
    client = {"client_id": name, "client_host": f"/{name}", "principal": name}
    who: dict[str, Any] = {"member_id": name, "instance_id": name, **client}
    by, slowest = MemberInfo(**who), SlowestMember(**who, seconds=1.0)
    why: dict[str, Any] = {"group_id": name, "cause": RebalanceCause.NEW_MEMBER, "by": by, "said": name}
    result: dict[str, Any] = {
        "generation": 1,
        "protocol": name,
        "members": 1,
        "duration_seconds": 1.0,
        "slowest": slowest,
    }
    refused: dict[str, Any] = {
        "policy": "p",
        "error_code": 81,
        **client,
        "size": 2,
        "limit": 1,
    }
    facts: list[Fact] = [
        MemberJoined(group_id=name, at=NOW - 9, **who, said=name),
        RebalanceStarted(at=NOW - 8, **why),
        RebalanceCompleted(at=NOW - 7, **why, **result),
        ClientRefused(group_id=name, at=NOW - 6, **refused),
        MemberGone(group_id=name, at=NOW - 5, **who, how=Departure.LEFT, said=name),
    ]
    member = MemberView(since=NOW, **who)
    view = GroupView(
        group_id=name,
        state=GroupState.STABLE,
        protocol=name,
        leader=name,
        members=(member,),
        offsets={(name, 0): CommittedOffset(1, metadata=name, at=NOW)},
    )
    readiness = {name: {"listening": True}}
    return admin([view], recorder=recorded(facts), readiness=lambda: readiness)


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_keep_page_structure(name: str) -> None:
    """Hostile names change no element or attribute name of a page."""
    hostile, tame = named(name), named("tame")
    for target, twin in ((of(name), of("tame")), ("/", "/"), ("/refusals", "/refusals"), ("/status", "/status")):
        html_page = await page(hostile, target)
        assert html_page.shape == (await page(tame, twin)).shape
        assert templating.visible(name) in "".join(html_page.visible_texts).replace("\r", "") or target == "/status"


@settings(max_examples=20)
@given(st.text(min_size=1, max_size=40))
async def test_random_name_keeps_page_structure(name: str) -> None:
    """For any name, the group page has the same elements and the list links to that group."""
    app = named(name)
    html_page = await page(app, of(name))
    assert html_page.shape == (await page(named("tame"), of("tame"))).shape
    [link] = [a["href"] for a in (await page(app, "/")).all("a") if a["href"].startswith("group?")]
    assert parse_qs(urlsplit(link).query, keep_blank_values=True) == {"group": [name]}


@pytest.mark.parametrize("principal", ["", "User:CN=alice"])
async def test_principals_are_a_column_if_known(principal: str) -> None:
    """The table of members has a column of principals if the principal of any member is known."""
    members = (MemberView(member_id="a", client_id="a"), MemberView(member_id="b", client_id="b", principal=principal))
    view = GroupView(group_id="g", state=GroupState.STABLE, members=members)
    texts = [each.strip() for each in (await page(admin([view]), of("g"))).visible_texts]
    assert ("Principal" in texts, "User:CN=alice" in texts) == (bool(principal), bool(principal))


async def test_nameless_group_has_link() -> None:
    """A group with an empty name has a link in the list and a page."""
    app = admin([GroupView(group_id="", state=GroupState.EMPTY)])
    assert "group?group=" in [a["href"] for a in (await page(app, "/")).all("a")]
    assert "(empty)" in (await page(app, "/group?group=")).text


@pytest.fixture
def app() -> ASGIApp:
    """The pages of a fleet."""
    return fleet(400)


TARGETS = ["/", of(CHECKOUT), "/refusals", "/status"]


@pytest.mark.parametrize("target", TARGETS)
async def test_pages_load_nothing_inline_or_foreign(app: ASGIApp, target: str) -> None:
    """Pages have no inline styles or scripts, and all their addresses are relative."""
    html_page = await page(app, target)
    assert "style" not in {tag for tag, _ in html_page.elements}
    for tag, attributes in html_page.elements:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        if tag == "script":
            assert attributes["src"]
        for name in ("src", "href", "action"):
            where = urlsplit(attributes.get(name, ""))
            assert (where.scheme, where.netloc, where.path[:1] == "/") == ("", "", False), (
                f"{name} of <{tag}> must be relative to the page: {attributes[name]}"
            )


@pytest.mark.parametrize("target", TARGETS)
async def test_pages_have_valid_structure(app: ASGIApp, target: str) -> None:
    """Pages have unique ids, one heading, scoped table headers and links to existing ids."""
    html_page = await page(app, target)
    ids = [attributes["id"] for _, attributes in html_page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(attributes.get("scope") in ("row", "col") for attributes in html_page.all("th"))
    assert len(html_page.all("h1")) == len(html_page.all("main")) == 1
    labels = " ".join(attributes.get("aria-labelledby", "") for _, attributes in html_page.elements)
    assert set(labels.split()) <= set(ids)
    assert next(a["href"] for a in html_page.all("a")) == "#content"
    assert {a["href"][1:] for a in html_page.all("a") if a["href"].startswith("#")} <= set(ids)


async def test_group_row_text(app: ASGIApp) -> None:
    """The row of a group shows its state, members, lag, last rebalance and cause."""
    html_page = await page(app, "/?search=checkout")
    assert (
        "checkout Stable classic 8 / 8 3,552 +? 5 min ago new member 14 1 to 1 of 1 group, filtered from 401"
        in html_page.text
    )


async def test_view_state_is_in_the_address(app: ASGIApp) -> None:
    """The form and all links keep the search, filters, sorting and limit of the current address."""
    html_page = await page(
        app, "/?search=BILLING&state=Stable&type=classic&cause=session_expired&sort=lag&order=desc&limit=3"
    )
    fields = {field["name"]: field["value"] for field in html_page.all("input")}
    assert fields == {"search": "BILLING", "sort": "lag", "order": "desc", "limit": "3"}
    assert [o["value"] for o in html_page.all("option") if "selected" in o] == ["Stable", "classic", "session_expired"]
    assert [th.get("aria-sort") for th in html_page.all("th") if "aria-sort" in th] == ["descending"]
    kept = {"search": ["BILLING"], "state": ["Stable"], "type": ["classic"], "cause": ["session_expired"]}
    queries = [parse_qs(urlsplit(a["href"]).query) for a in html_page.all("a") if a["href"].startswith("?")]
    assert queries[:2] == [{**kept, "limit": ["3"]}, {**kept, "sort": ["members"], "order": ["desc"], "limit": ["3"]}]
    assert {**kept, "sort": ["lag"], "limit": ["3"]} in queries
    assert {**kept, "sort": ["lag"], "order": ["desc"], "limit": ["3"], "offset": ["3"]} in queries


@pytest.mark.parametrize(
    ("target", "link"),
    [
        ("/", "?order=desc"),
        ("/?order=desc", "./"),
        ("/", "?sort=lag&order=desc"),
        ("/?sort=lag&order=desc&offset=100", "?sort=lag"),
        ("/?sort=lag&offset=100", "?sort=lag&order=desc"),
    ],
)
async def test_heading_toggles_sort_order(app: ASGIApp, target: str, link: str) -> None:
    """The link of a table heading sorts by its column, or reverses the order of the sorted column."""
    html = (await ask(app, target)).body.decode()
    heading = "Lag" if "lag" in link else "Group"
    [leads] = re.findall(rf'<a href="([^"]*)">{heading}</a>\s*</th>', html)
    assert leads.replace("&amp;", "&") == link


async def test_paging_links(app: ASGIApp) -> None:
    """The paging links lead to the first, previous, next and last page where these exist."""

    async def leads(target: str) -> dict[str, int]:
        html = (await ask(app, target)).body.decode()
        found = re.findall(r'<a href="([^"]*)">(First|Previous|Next|Last)</a>', html)
        return {word: int(parse_qs(urlsplit(href).query).get("offset", ["0"])[0]) for href, word in found}

    assert await leads("/") == {"Next": 100, "Last": 400}
    assert await leads("/?offset=50") == {"First": 0, "Previous": 0, "Next": 150, "Last": 400}
    assert await leads("/?offset=400") == {"First": 0, "Previous": 300}
    assert await leads("/?limit=401") == {}


async def test_empty_pages_explain_themselves(app: ASGIApp) -> None:
    """Each page without entries explains why it is empty."""
    empty = admin()
    assert "No group is known yet" in (await page(empty, "/")).text
    assert "None of 401 groups matches the filter" in (await page(app, "/?search=nothing-like-it")).text
    assert "nothing on this page of the table any more" in (await page(app, "/?offset=10000")).text
    assert "Nobody was refused anything lately" in (await page(empty, "/refusals")).text
    assert "No group is known yet" in (await page(empty, "/status")).text


async def test_group_page_shows_all_sections(app: ASGIApp) -> None:
    """The page of a group shows its rebalances, members, lag, refusals and commits, with unique row keys."""
    html_page = await page(app, of(CHECKOUT))
    for text in (
        "Rebalanced 14 times in the last hour",
        "Members 8 / 8",
        "Lag 3,552",
        "checkout-3 at 10.0.3.13 was not heard of within its session timeout",
        "checkout-9 at 10.0.3.19 was refused 3 times in ",
        " with GROUP_MAX_SIZE_REACHED by group_max_size, 9 of 8",
        "Commit refused: UNKNOWN_MEMBER_ID for 3 partitions",
        "orders.placed : 0, 8 payments.settled : 0",
    ):
        assert text in html_page.text
    keys = [tr["data-key"] for tr in html_page.all("tr") if "data-key" in tr]
    assert len(keys) == len(set(keys)) == len(checkout()[1].facts) - 24 + 8 + 24


@pytest.mark.parametrize(
    ("query", "shown", "events"),
    [("", "1 hour", 46), ("&span=900", "15 minutes", 12), ("&span=21600", "6 hours", 67), ("&span=7", "1 hour", 46)],
)
async def test_group_page_timeline_span(app: ASGIApp, query: str, shown: str, events: int) -> None:
    """The group page shows the events of the requested time span, or of one hour by default."""
    html = (await ask(app, of(CHECKOUT) + query)).body.decode()
    assert re.findall(r'aria-current="true">([^<]*)<', html) == [shown]
    assert html.count('<tr id="event-') == events


async def test_group_page_extends_to_last_event() -> None:
    """The default time span grows until it contains the last event."""
    fact = RebalanceStarted(group_id="g", at=NOW - 5 * 3600, cause=RebalanceCause.UNKNOWN)
    app = admin([GroupView(group_id="g", state=GroupState.EMPTY)], recorder=recorded([fact]))
    html = (await ask(app, of("g"))).body.decode()
    assert re.findall(r'aria-current="true">([^<]*)<', html) == ["6 hours"]
    assert "Rebalance began" in html


async def test_large_group_page_is_truncated() -> None:
    """The page of a large group shows a limited number of rows and links to the complete JSON."""
    members = tuple(MemberView(member_id=str(number), client_id=str(number)) for number in range(pages.MAX_ROWS + 7))
    offsets = {("t", partition): CommittedOffset(1) for partition in range(pages.MAX_ROWS + 9)}
    view = GroupView(group_id="g/h", state=GroupState.STABLE, members=members, offsets=offsets)
    html_page = await page(admin([view]), of("g/h"))
    assert len([tr for tr in html_page.all("tr") if "data-key" in tr]) == 2 * pages.MAX_ROWS
    assert "467 members more not drawn" in html_page.text
    assert "7 members more: all as JSON" in html_page.text
    assert "9 partitions more: all as JSON" in html_page.text
    links = [a["href"] for a in html_page.all("a")]
    assert {"api/v1/group?group=g%2Fh", "api/v1/offsets?group=g%2Fh"} <= set(links)


@pytest.mark.parametrize("reason", [FallbackReason.NOT_EXCLUSIVE, FallbackReason.COLD])
async def test_group_page_names_setting_for_not_exclusive(reason: FallbackReason) -> None:
    """The group page shows why the broker answers, and names `answers.exclusive` only for `not_exclusive`."""
    view = GroupView(group_id="g", state=GroupState.EMPTY, fallback_reason=reason)
    text = (await page(admin((view,)), of("g"))).text
    assert f"leaves questions about this group to the broker: {reason.replace('_', ' ')} for its members." in text
    assert ("answers.exclusive" in text) is (reason is FallbackReason.NOT_EXCLUSIVE)
    assert ("usual for some seconds after a start" in text) is (reason is FallbackReason.COLD)


async def test_unknown_group_page_is_404(app: ASGIApp) -> None:
    """The page of an unknown group is 404 and links to a search for its escaped name."""
    reply = await ask(app, of("check<out"))
    assert reply.status == 404
    html_page = parsed(reply)
    assert "This sidecar knows no group check<out ." in html_page.text
    assert "./?search=check%3Cout" in [a["href"] for a in html_page.all("a")]


@dataclass
class Health:
    """The figures of an outlet."""

    records_written: int
    records_dropped: dict[str, int]
    failures: int
    last_flush: float


@pytest.mark.parametrize(
    ("exclusive", "effect"),
    [
        (False, "So answers.exclusive is not in force: the broker answers."),
        (True, "None was found in the last ten minutes, so answers.exclusive is in force."),
    ],
)
async def test_status_page_explains_bypasses(exclusive: bool, effect: str) -> None:
    """The status page shows how many records bypassed the sidecar, and whether `answers.exclusive` is in force."""
    log_status = {"read": True, "bypassed": {"commits": 1, "members": 2, "exclusive": exclusive}}
    app = admin(readiness=lambda: {"a:1": {"upstream": True}}, log_statuses=lambda: {"a:1": log_status})
    html_page = await page(app, "/status")
    assert f"read: yes 1 commit and 2 members bypassed this sidecar. {effect}" in html_page.text


async def test_status_page_shows_sidecar_figures() -> None:
    """The status page shows answers, fallbacks, journal outlets and broker states, or that there are none."""
    fallbacks = {(11, FallbackReason.IN_DOUBT): 2, (9, FallbackReason.IN_DOUBT): 1, (9, FallbackReason.COLD): 0}
    outlets = {"topic": Health(9, {"refused": 2}, 1, 0.0), "folder": Health(12_345, {"queue_full": 6}, 0, NOW - 2)}
    told_figures = replace(figures(), answers={9: 1_700, 16: 0}, fallbacks=fallbacks, outlets=outlets)
    failing = {"a:1": {"listening": True, "upstream": False}}
    app = admin(
        figures=lambda: told_figures, readiness=lambda: failing, log_statuses=lambda: {"a:1": {"owned": [1, 50]}}
    )
    html_page = await page(app, "/status")
    for text in (
        "Status not ready",
        "OffsetFetch, answered here 1,700 Left to the broker: in doubt 3 Journal",
        "Records written to the folder 12,345 Last written 2 s ago Failures 0 Dropped: queue full 6",
        "Records written to the topic 9 Last written",
        "a:1 listening upstream: not yet owned: 1 50",
    ):
        assert text in html_page.text
    assert (await ask(app, "/api/v1/status")).content["fallbacks"] == {"in_doubt": 3, "cold": 0}
    idle = (
        await page(admin(figures=lambda: replace(told_figures, answers={}, fallbacks={}, outlets={})), "/status")
    ).text
    assert "Nobody has asked for groups" in idle
    assert "No records are written." in idle


async def test_deleted_group_page_shows_history() -> None:
    """The page of a deleted group is 404 and still shows the recorded events."""
    _, story = checkout()
    reply = await ask(admin(recorder=recorded(story.facts)), of(CHECKOUT))
    assert reply.status == 404
    assert "checkout-6 at 10.0.3.16 left" in parsed(reply).text


@pytest.mark.parametrize(
    "target", ["/?sort=colour", "/?limit=0", "/?state=Stable&state=Empty", "/group", "/status?a=b"]
)
async def test_invalid_page_parameters_get_400(app: ASGIApp, target: str) -> None:
    """A page address with an invalid parameter gets status 400."""
    assert (await ask(app, target)).status == 400
    assert (await ask(app, target, accept="text/html")).headers["content-type"].startswith("text/html")


async def test_empty_form_fields_are_ignored(app: ASGIApp) -> None:
    """Empty filter fields, as a form without JavaScript sends them, do not filter."""
    html_page = await page(app, "/?search=checkout&state=&type=&cause=")
    assert "1 to 1 of 1 group" in html_page.text


async def test_static_files_have_type_and_etag(app: ASGIApp) -> None:
    """The static files have their content types and answer 304 to their ETag. Other paths are 404."""
    kinds = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
    async with served(app) as (host, port), httpx.AsyncClient(base_url=f"http://{host}:{port}/static/") as client:
        for path, kind in kinds.items():
            reply = await client.get(path)
            assert (reply.status_code, reply.headers["content-type"].split(";")[0]) == (200, kind)
            again = await client.get(path, headers={"if-none-match": reply.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        assert (await client.get("%2e%2e/pages.py")).status_code == 404


async def test_rendering_yields_to_other_tasks(app: ASGIApp) -> None:
    """Other tasks run while a large page is rendered."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await trio.lowlevel.checkpoint()
        before = turns
        html = await templating.render("refusals.html", **refusals_content(3000))
        assert turns - before > 5
        nursery.cancel_scope.cancel()
    assert html.count("<tr data-key") == 3000


def refusals_content(count: int) -> dict[str, Any]:
    event = {"at": "2026-11-18T09:00:00.000Z", "kind": "refused", "description": ("a", "b"), "group": "g"}
    now = datetime.fromtimestamp(NOW, UTC)
    events = [{**event, "name": str(number)} for number in range(count)]
    return {"here": "refusals", "now": now, "at": event["at"], "every": 5, "unreachable": [], "events": events}


@pytest.mark.parametrize("names", [list(RebalanceReason), list(Departure)])
def test_legend_covers_every_mark(names: Iterable[str]) -> None:
    """The legend explains every rebalance reason and every kind of departure."""
    assert set(names) <= pages.LEGEND.keys()
