"""The contents and the use of the pages in a real browser. Screenshots are kept under build/screenshots/."""

import re

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.page.browser import NAMES, Browser, group_page
from tests.page.fleet import CHECKOUT, COUNT

MOST_ELEMENTS = 2_500
"""The maximum number of elements of a page, with any number of groups."""


# Ten thousand groups.


def test_ten_thousand_groups_fit_small_page(browser: Browser, large: str) -> None:
    """With ten thousand groups, the page shows 100 rows and stays below MOST_ELEMENTS elements."""
    browser.driver.get(large)
    assert browser.one(".pager p").text == f"1 to 100 of {COUNT + 1:,} groups"
    assert len(browser.all("tbody tr")) == 100
    assert browser.run("return document.querySelectorAll('*').length") < MOST_ELEMENTS
    browser.picture("groups-light")


def test_filter_applies_while_typing(browser: Browser, large: str) -> None:
    """The filter applies while the user types, and the address keeps it across a reload."""
    browser.driver.get(large)
    browser.one("#search").send_keys("CHECK")
    browser.until(lambda: browser.texts(NAMES) == [CHECKOUT], "only the searched group is listed")
    assert browser.driver.current_url == f"{large}/?search=CHECK"
    assert browser.run("return document.activeElement.id") == "search"
    browser.driver.refresh()
    assert browser.texts(NAMES) == [CHECKOUT]
    assert browser.one("#search").get_attribute("value") == "CHECK"


def test_selected_filters_apply_at_once(browser: Browser, large: str) -> None:
    """Filters by state and cause apply as soon as they are selected."""
    browser.driver.get(large)
    browser.one("select[name=state]").send_keys("Empty")
    browser.until(lambda: set(browser.texts("tbody .state")) == {"Empty"}, "only empty groups are listed")
    assert re.fullmatch(rf"1 to 100 of [\d,]+ groups, filtered from {COUNT + 1:,}", browser.one(".pager p").text)
    browser.one("select[name=cause]").send_keys("session expired")
    browser.until(
        lambda: set(browser.texts("tbody td:nth-child(7)")) == {"session expired"},
        "only groups with this cause are listed",
    )


def test_sorting_by_heading(browser: Browser, large: str) -> None:
    """A click on the lag heading sorts by lag, and a second click reverses the order."""

    def lags() -> list[int]:
        return [int(re.sub(r"\D", "", text)) for text in browser.texts("tbody td:nth-child(5)")]

    browser.driver.get(large)
    browser.one("thead th:nth-child(5) a").click()
    assert browser.one("th[aria-sort=descending]").text == "Lag"
    assert lags() == sorted(lags(), reverse=True)
    browser.one("thead th:nth-child(5) a").click()
    assert browser.one("th[aria-sort=ascending]").text == "Lag"
    assert lags() == sorted(lags())


def test_pager_shows_other_groups(browser: Browser, large: str) -> None:
    """The pager leads to a page with other groups."""
    browser.driver.get(large)
    first = browser.texts(NAMES)
    browser.one(".pager li:nth-child(3) a").click()
    assert browser.one(".pager p").text.startswith("101 to 200 of")
    assert not {*first} & {*browser.texts(NAMES)}


def test_keyboard_navigation(browser: Browser, large: str) -> None:
    """A user can reach, filter and open groups by keyboard alone."""

    def focused() -> str:
        told: str = browser.run("return document.activeElement.textContent.trim() || document.activeElement.name")
        return told

    def press(*keys: str) -> None:
        ActionChains(browser.driver).send_keys(*keys).perform()

    browser.driver.get(large)
    order = []
    for _ in range(6):
        press(Keys.TAB)
        order.append(focused())
    assert order == ["Skip to the content", "Groups", "Refusals", "Status", "Live", "search"]
    ActionChains(browser.driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
    press("/", "checkout", Keys.ENTER)
    assert browser.one("#search").get_attribute("value") == "checkout"
    browser.until(lambda: browser.texts(NAMES) == [CHECKOUT], "only the searched group is listed")
    browser.run("document.querySelector('tbody th a').focus()")
    assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(Keys.ENTER)
    assert browser.one("h1").text.startswith(CHECKOUT)
    assert browser.driver.current_url == group_page(large, CHECKOUT)
    press(Keys.TAB, Keys.ENTER)
    assert browser.run("return document.activeElement.id") == "content"


# One group.


def test_group_timeline(browser: Browser, large: str) -> None:
    """The timeline of a group shows its members, rebalances and refusals, and its marks link to the events."""
    browser.size(1280, 2900)
    browser.driver.get(group_page(large, CHECKOUT))
    browser.picture("group-light")
    lanes = browser.texts("svg.timeline .label")
    assert [lane.split()[0] for lane in lanes] == [
        "Rebalances",
        *(f"checkout-{n}" for n in range(1, 9)),
        "Refusals",
        "Failed",
    ]
    assert len(browser.all("svg.timeline .stay")) == 8 + 6
    assert len(browser.all("svg.timeline .mark-refused")) == 2
    assert len(browser.all("svg.timeline .run")) == 2
    [title] = browser.texts("svg.timeline .mark-left title")
    assert title == "checkout-6 at 10.0.3.16 left, saying “the consumer is being closed”"
    browser.one("svg.timeline .mark-left").click()
    [row] = browser.texts("tr:target")
    assert row.endswith("checkout-6 at 10.0.3.16 left, saying “the consumer is being closed”")


def test_dark_and_light_schemes(browser: Browser, large: str) -> None:
    """The dark and light color schemes have a contrast of more than 7."""

    def luminance(what: str) -> float:
        channels: list[float] = browser.run(
            "return getComputedStyle(document.body)[arguments[0]].match(/[0-9.]+/g).slice(0, 3).map(Number)", what
        )
        linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    grounds = {}
    for scheme in ("light", "dark"):
        browser.prefers(prefers_color_scheme=scheme)
        browser.driver.get(large)
        ground, text = luminance("backgroundColor"), luminance("color")
        grounds[scheme] = ground
        assert (max(ground, text) + 0.05) / (min(ground, text) + 0.05) > 7, "the contrast is below 7 (WCAG 2.2, 1.4.6)"
        browser.picture(f"groups-{scheme}")
        browser.size(1280, 2900)
        browser.driver.get(group_page(large, CHECKOUT))
        browser.picture(f"group-{scheme}")
        browser.driver.get(f"{large}/status")
        browser.picture(f"status-{scheme}")
        browser.size(1280, 900)
    assert grounds["light"] > 0.8
    assert grounds["dark"] < 0.05


def test_phone_width_has_no_overflow(browser: Browser, large: str) -> None:
    """On a phone screen, no page is wider than the window."""
    browser.size(390, 844)
    for target in (large, group_page(large, CHECKOUT), f"{large}/refusals", f"{large}/status"):
        browser.driver.get(target)
        assert browser.run("return document.documentElement.scrollWidth") == 390
    browser.driver.get(group_page(large, CHECKOUT))
    browser.picture("group-telephone")
