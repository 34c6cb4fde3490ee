"""What people see on the pages and do there, in a real browser. What is seen is kept under build/screenshots/."""

import re

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.page.browser import NAMES, Browser, group_page
from tests.page.fleet import CHECKOUT, COUNT

MOST_ELEMENTS = 2_500
"""What a page may have, however many groups there are."""


# Ten thousand groups.


def test_ten_thousand_groups_are_a_small_page(browser: Browser, large: str) -> None:
    browser.driver.get(large)
    assert browser.one(".pager p").text == f"1 to 100 of {COUNT + 1:,} groups"
    assert len(browser.all("tbody tr")) == 100
    assert browser.run("return document.querySelectorAll('*').length") < MOST_ELEMENTS
    browser.picture("groups-light")


def test_the_filter_applies_as_one_types(browser: Browser, large: str) -> None:
    browser.driver.get(large)
    browser.one("#search").send_keys("CHECK")
    browser.until(lambda: browser.texts(NAMES) == [CHECKOUT], "one group is left")
    assert browser.driver.current_url == f"{large}/?search=CHECK"
    assert browser.run("return document.activeElement.id") == "search"
    browser.driver.refresh()
    assert browser.texts(NAMES) == [CHECKOUT]
    assert browser.one("#search").get_attribute("value") == "CHECK"


def test_a_choice_applies_at_once(browser: Browser, large: str) -> None:
    browser.driver.get(large)
    browser.one("select[name=state]").send_keys("Empty")
    browser.until(lambda: set(browser.texts("tbody .state")) == {"Empty"}, "empty groups only")
    assert re.fullmatch(rf"1 to 100 of [\d,]+ groups, filtered from {COUNT + 1:,}", browser.one(".pager p").text)
    browser.one("select[name=cause]").send_keys("session expired")
    browser.until(lambda: set(browser.texts("tbody td:nth-child(7)")) == {"session expired"}, "and by cause")


def test_sorting_by_a_heading(browser: Browser, large: str) -> None:
    def lags() -> list[int]:
        return [int(re.sub(r"\D", "", text)) for text in browser.texts("tbody td:nth-child(5)")]

    browser.driver.get(large)
    browser.one("thead th:nth-child(5) a").click()
    assert browser.one("th[aria-sort=descending]").text == "Lag"
    assert lags() == sorted(lags(), reverse=True)
    browser.one("thead th:nth-child(5) a").click()
    assert browser.one("th[aria-sort=ascending]").text == "Lag"
    assert lags() == sorted(lags())


def test_from_page_to_page(browser: Browser, large: str) -> None:
    browser.driver.get(large)
    first = browser.texts(NAMES)
    browser.one(".pager li:nth-child(3) a").click()
    assert browser.one(".pager p").text.startswith("101 to 200 of")
    assert not {*first} & {*browser.texts(NAMES)}


def test_by_keyboard_alone(browser: Browser, large: str) -> None:
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
    browser.until(lambda: browser.texts(NAMES) == [CHECKOUT], "one group is left")
    browser.run("document.querySelector('tbody th a').focus()")
    assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(Keys.ENTER)
    assert browser.one("h1").text.startswith(CHECKOUT)
    assert browser.driver.current_url == group_page(large, CHECKOUT)
    press(Keys.TAB, Keys.ENTER)
    assert browser.run("return document.activeElement.id") == "content"


# One group.


def test_a_group_and_its_picture(browser: Browser, large: str) -> None:
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


def test_dark_and_light(browser: Browser, large: str) -> None:
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
        assert (max(ground, text) + 0.05) / (min(ground, text) + 0.05) > 7, "WCAG 2.2, 1.4.6"
        browser.picture(f"groups-{scheme}")
        browser.size(1280, 2900)
        browser.driver.get(group_page(large, CHECKOUT))
        browser.picture(f"group-{scheme}")
        browser.driver.get(f"{large}/status")
        browser.picture(f"status-{scheme}")
        browser.size(1280, 900)
    assert grounds["light"] > 0.8
    assert grounds["dark"] < 0.05


def test_on_a_telephone_nothing_sticks_out(browser: Browser, large: str) -> None:
    browser.size(390, 844)
    for target in (large, group_page(large, CHECKOUT), f"{large}/refusals", f"{large}/status"):
        browser.driver.get(target)
        assert browser.run("return document.documentElement.scrollWidth") == 390
    browser.driver.get(group_page(large, CHECKOUT))
    browser.picture("group-telephone")
