"""Names that clients chose are shown as text only."""

from dataclasses import replace
from urllib.parse import quote

import pytest
from selenium.common.exceptions import NoAlertPresentException

from group_sidecar.coordinator.model.facts import MemberJoined
from group_sidecar.coordinator.model.views import GroupState, GroupView, MemberView
from tests.page.browser import NAMES, Browser, group_page, served_aside
from tests.page.fleet import CHECKOUT, Story, checkout, recorded
from tests.proxy.admin.served_app import NOW, admin

ALERTING = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def test_names_are_shown_as_text(browser: Browser) -> None:
    """Names with markup appear as text, run no script and load nothing."""
    member = MemberView(member_id=ALERTING, client_id=ALERTING, client_host=f"/{ALERTING}", since=NOW)
    story = Story()
    story.joins(NOW - 60, 1)
    facts = [replace(fact, group_id=ALERTING) for fact in story.facts]
    facts = [replace(f, client_id=ALERTING, said=ALERTING) if isinstance(f, MemberJoined) else f for f in facts]
    group = GroupView(group_id=ALERTING, state=GroupState.STABLE, members=(member,))
    with served_aside(admin([group], recorder=recorded(facts))) as address:
        browser.driver.get(f"{address}/?search={quote(ALERTING)}")
        assert browser.texts(NAMES) == [ALERTING]
        assert browser.one("#search").get_attribute("value") == ALERTING
        browser.picture("names")
        browser.one(NAMES).click()
        browser.until(lambda: browser.texts("h1 bdi") == [ALERTING], "the group's page opens")
        assert f"{ALERTING} at 10.0.3.11 joined, saying “{ALERTING}”" in browser.texts("tbody td:nth-child(2)")
        assert browser.run("return document.images.length") == 1, "the page must have only the image in its bar"
        assert browser.driver.current_url == group_page(address, ALERTING)
        with pytest.raises(NoAlertPresentException):
            browser.driver.switch_to.alert.accept()
        assert {url for url in browser.asked() if not url.startswith((f"{address}/", "about:", "data:"))} == set()


def test_principals_are_shown(browser: Browser) -> None:
    """The principals of a group's members are a column of their table, and are part of sentences and of owners."""
    view, story = checkout()
    member, other, *_ = view.members
    known = replace(member, principal="User:CN=shop, O=x")
    joined = MemberJoined(
        group_id=CHECKOUT, at=NOW - 1, member_id="m", client_id="c", client_host="/h", principal=known.principal
    )
    app = admin([replace(view, members=(known, other))], recorder=recorded([*story.facts, joined]))
    with served_aside(app) as address:
        browser.size(1280, 2900)
        browser.driver.get(group_page(address, CHECKOUT))
        members = "section[aria-labelledby=members]"
        assert browser.texts(f"{members} thead th")[:3] == ["Client", "Host", "Principal"]
        assert browser.texts(f"{members} tbody td:nth-child(3)") == [known.principal, "–"]
        assert f"c at h as {known.principal} joined" in browser.texts("tbody td:nth-child(2)")
        owners = browser.texts("section[aria-labelledby=offsets] tbody td:last-child")
        assert f"checkout-1 10.0.3.11 as {known.principal}" in owners
        browser.picture("principals")


def test_inline_scripts_are_blocked(browser: Browser, large: str) -> None:
    """The content security policy blocks inline scripts."""
    browser.driver.get(large)
    browser.run("document.querySelector('h1').insertAdjacentHTML('beforeend', '<b onclick=\"window.ran = 1\">x</b>')")
    browser.one("h1 b").click()
    assert browser.run("return window.ran") is None
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def test_pages_load_only_own_resources(browser: Browser, large: str) -> None:
    """The pages load resources only from the sidecar."""
    for target in ("/", f"/group?group={CHECKOUT}", "/refusals", "/status"):
        browser.driver.get(large + target)
        browser.one("main")
    asked = {url for url in browser.asked() if not url.startswith(("about:", "data:"))}
    assert f"{large}/static/page.js" in asked
    assert {url for url in asked if not url.startswith(f"{large}/")} == set()
