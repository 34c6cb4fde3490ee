"""Open pages show changes as they happen."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from group_sidecar.coordinator.model.facts import Departure
from group_sidecar.coordinator.model.views import GroupState, GroupView
from group_sidecar.demo.cluster import EmbeddedCluster
from group_sidecar.demo.gateway import Gateway
from group_sidecar.demo.group_clients import GroupClients
from group_sidecar.metrics.group_snapshot import GroupSnapshot, group_snapshot
from group_sidecar.proxy.runtime.shared_snapshot import run_in_slices
from tests.page.browser import NAMES, Browser, group_page, served_aside
from tests.page.fleet import CHECKOUT, LIMIT, checkout, crowd, log_ends, recorded
from tests.proxy.admin.served_app import NOW, admin


class Stage:
    """The copy of a broker with a few groups that a test changes, and the sidecar's pages."""

    def __init__(self) -> None:
        view, self.story = checkout()
        views, _ = crowd(3)
        self.group_metadata_cache = {group.group_id: group for group in (view, *views)}
        self.log_ends = {partition: (end, NOW) for partition, end in log_ends().items()}
        self._recorder = recorded(self.story.facts)
        self._told = len(self.story.facts)
        self.app = admin(
            recorder=self._recorder, group_snapshot=self._surveyed, find_group=self.group_metadata_cache.get
        )

    def existing(self, group_id: str, now: float) -> GroupView | None:
        return self.group_metadata_cache.get(group_id)

    def put(self, group: GroupView) -> None:
        self.group_metadata_cache[group.group_id] = group

    def remove(self, group_id: str) -> None:
        del self.group_metadata_cache[group_id]

    def record(self) -> None:
        """Passes new facts of the story to the flight recorder."""
        for fact in self.story.facts[self._told :]:
            self._recorder.observe(fact)
        self._told = len(self.story.facts)

    async def _surveyed(self) -> GroupSnapshot:
        return await run_in_slices(group_snapshot([self], NOW, lambda _: LIMIT))


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def small(stage: Stage) -> Iterator[str]:
    """The address of the stage's pages."""
    with served_aside(stage.app) as address:
        yield address


def test_rows_follow_groups(browser: Browser, small: str, stage: Stage) -> None:
    """The list of groups follows changed, new and deleted groups without a reload, and keeps the focus."""
    browser.driver.get(small)
    before = browser.texts(NAMES)
    browser.run("window.unloaded = false; document.querySelector('tr[data-key=checkout] a').focus()")
    stage.put(replace(stage.group_metadata_cache[CHECKOUT], state=GroupState.PREPARING_REBALANCE, members=()))
    stage.remove(before[-1])
    stage.put(GroupView(group_id="another", state=GroupState.EMPTY, roster_known=True))
    browser.until(
        lambda: browser.texts(NAMES) == ["another", *before[:-1]],
        "the new group is listed first and the removed group is gone",
    )
    [row] = browser.texts("tr[data-key=checkout]")
    assert "PreparingRebalance" in row
    assert "0 / 8" in row
    assert browser.run("return [window.unloaded, document.activeElement.textContent]") == [False, CHECKOUT]


def test_selection_survives_update(browser: Browser, small: str, stage: Stage) -> None:
    """Selected text stays selected when the list of groups changes."""
    stage.put(GroupView(group_id="another", state=GroupState.EMPTY))
    browser.driver.get(small)
    browser.run("getSelection().selectAllChildren(document.querySelector('tr[data-key=checkout] a'))")
    stage.remove("another")
    browser.until(lambda: browser.texts(NAMES)[0] == CHECKOUT, "the row above is removed")
    assert browser.run("return getSelection().toString()") == CHECKOUT


def test_group_page_shows_new_events(browser: Browser, small: str, stage: Stage) -> None:
    """The open page of a group shows a new event in its table, timeline and summary."""
    browser.driver.get(group_page(small, CHECKOUT) + "&span=900")
    lanes = len(browser.all("svg.timeline .label"))
    stage.story.goes(NOW - 10, 1, Departure.EXPIRED)
    group = stage.group_metadata_cache[CHECKOUT]
    stage.put(replace(group, members=group.members[1:]))
    stage.record()
    gone = "checkout-1 at 10.0.3.11 was not heard of within its session timeout"
    browser.until(lambda: any(gone in row for row in browser.texts("tbody tr")), "the timeline has the event")
    assert gone in browser.texts("svg.timeline .mark-expired title")
    assert len(browser.all("svg.timeline .label")) == lanes
    assert gone in browser.one(".why").text


def test_group_page_follows_creation_and_deletion(browser: Browser, small: str, stage: Stage) -> None:
    """The open page of a group follows its creation and deletion."""
    browser.driver.get(group_page(small, "another"))
    assert browser.one("h1").text == "No such group"
    assert [c for c in browser.complaints() if "404" not in c] == []
    stage.put(GroupView(group_id="another", state=GroupState.EMPTY))
    browser.until(lambda: browser.texts("h1 bdi") == ["another"], "the page shows the group")
    assert browser.driver.title.startswith("another")
    stage.remove("another")
    browser.until(lambda: browser.texts("h1") == ["No such group"], "the page reports that the group does not exist")
    assert [c for c in browser.complaints() if "404" not in c] == []


WATCH_TIMERS = """
window.timers = new Set();
const start = window.setTimeout, stop = window.clearTimeout;
window.setTimeout = (then, after) => {
  const id = start(() => { window.timers.delete(id); then(); }, after);
  window.timers.add(id);
  return id;
};
window.clearTimeout = (id) => { window.timers.delete(id); stop(id); };
"""


def test_live_updates_can_be_disabled(browser: Browser, small: str, stage: Stage) -> None:
    """The Live button stops the updates and resumes them at once."""
    watch = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH_TIMERS})
    browser.driver.get(small)
    browser.until(lambda: browser.run("return window.timers.size") == 1, "the page has scheduled its next request")
    browser.one("#live").click()
    assert browser.run("return window.timers.size") == 0
    assert re.fullmatch(r"Stopped at \d\d:\d\d:\d\d", browser.one("#live-status").text)
    assert browser.one("#live").get_attribute("aria-pressed") == "false"
    stage.remove(CHECKOUT)
    assert CHECKOUT in browser.texts(NAMES)
    browser.one("#live").click()
    browser.until(lambda: CHECKOUT not in browser.texts(NAMES), "the page shows the new list")
    assert browser.one("#live-status").text == ""
    browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", watch)


def test_hidden_page_does_not_poll(browser: Browser, small: str, stage: Stage) -> None:
    """A hidden page does not poll, and a page that becomes visible polls at once."""

    def hide(hidden: bool) -> None:
        browser.run(
            "Object.defineProperty(document, 'hidden', { value: arguments[0], configurable: true });"
            "document.dispatchEvent(new Event('visibilitychange'));",
            hidden,
        )

    watch = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH_TIMERS})
    browser.driver.get(small)
    browser.until(lambda: browser.run("return window.timers.size") == 1, "the page has scheduled its next request")
    hide(True)
    assert browser.run("return window.timers.size") == 0
    browser.one("#search").send_keys(CHECKOUT)
    browser.until(lambda: browser.texts(NAMES) == [CHECKOUT], "the page shows the filtered list")
    assert browser.run("return window.timers.size") == 0
    stage.remove(CHECKOUT)
    hide(False)
    browser.until(lambda: CHECKOUT not in browser.texts(NAMES), "the page shows the new list")
    browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", watch)


def test_unreachable_sidecar(browser: Browser, small: str, stage: Stage) -> None:
    """The page reports an unreachable sidecar, keeps its content and resumes when the sidecar is reachable again."""
    browser.driver.get(small)
    browser.offline(True)
    browser.until(
        lambda: "Not reached since" in browser.one("#live-status").text,
        "the page reports that the sidecar is not reached",
    )
    assert CHECKOUT in browser.texts(NAMES)
    browser.picture("not-reached")
    browser.offline(False)
    stage.remove(CHECKOUT)
    browser.until(lambda: CHECKOUT not in browser.texts(NAMES), "the page shows the new list")
    assert browser.one("#live-status").text == ""
    assert [c for c in browser.complaints() if "ERR_INTERNET_DISCONNECTED" not in c] == []


# A real sidecar, real clients.


def test_real_clients_are_shown(browser: Browser, tmp_path: Path) -> None:
    """The page shows groups, joins and departures of real clients with their causes."""
    cluster = EmbeddedCluster()
    with Gateway(cluster.broker, tmp_path, limit=3) as gateway:
        crowd = GroupClients(gateway.bootstrap)
        try:
            browser.driver.get(f"http://{gateway.admin}/")
            assert "No group is known yet" in browser.one(".empty").text
            crowd.produce("orders", 40)
            crowd.join("billing", "orders", 3)
            # A rebalance of the embedded cluster may leave a doubt, and the cluster cannot describe groups. The page
            # shows "≥ 3" then.
            browser.until(
                lambda: [text.removeprefix("≥ ") for text in browser.texts("tbody td:nth-child(4)")] == ["3 / 3"],
                "the page shows the group without a reload",
            )
            browser.one(NAMES).click()
            browser.until(lambda: len(browser.all("svg.timeline .stay")) >= 3, "the chart shows the members")
            first, second, _ = crowd.of("billing")
            first.leave()
            browser.until(lambda: browser.texts("svg.timeline .mark-left title") != [], "the chart marks the leave")
            assert browser.texts("svg.timeline .mark-left title")[0].startswith("billing-1 at 127.0.0.1 left")
            # The embedded cluster may have begun an earlier rebalance by itself, which has no cause.
            browser.until(
                lambda: any("1 member went" in said for said in browser.texts("svg.timeline title")),
                "the chart shows the end of the rebalance",
            )
            # A leave during such a rebalance is not its cause.
            second.leave()
            browser.until(
                lambda: any(f"billing-{n} at 127.0.0.1 left" in browser.one(".why").text for n in (1, 2)),
                "the page names a leave as the cause",
            )
            browser.picture("real-clients")
        finally:
            crowd.leave_all()
