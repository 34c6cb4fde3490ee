"""The report in a real browser, from a file. Screenshots are kept under build/screenshots/."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.page.browser import Browser
from tests.spark.report.fleet_tables import EVIL

CHARTS = ["lag-now", "lag-over-time", "rebalance-heat", "rebalance-causes", "refusals", "audits", "sidecars", "churn"]
FIRST = "#figure-lag-now"


@pytest.fixture
def browser(report_browser: Browser, report_file: Path) -> Iterator[Browser]:
    """The browser with the report. Fails the test if the browser logs an error or requests another address."""
    report_browser.size(1280, 900)
    report_browser.prefers()
    report_browser.complaints()
    report_browser.asked()
    report_browser.driver.get(report_file.as_uri())
    yield report_browser
    assert report_browser.complaints() == []
    assert {address.partition("#")[0] for address in report_browser.asked()} == {report_file.as_uri()}


def test_every_chart_is_drawn_and_named(browser: Browser) -> None:
    """Every chart is drawn within its edges and has an accessible name."""
    named = browser.run(
        "return [...document.querySelectorAll('svg.chart')].map((chart) => [chart.closest('figure').id,"
        " document.getElementById(chart.getAttribute('aria-labelledby').split(' ')[0]).textContent !== '',"
        " chart.getBoundingClientRect().height > 50])"
    )
    assert named == [[f"figure-{name}", True, True] for name in [*CHARTS, "quarantine"]]
    assert browser.run("return document.querySelectorAll('*').length") < 9_000
    outside = browser.run(
        "return [...document.querySelectorAll('svg.chart')].flatMap((chart) => {"
        " const edge = chart.getBoundingClientRect();"
        " return [...chart.querySelectorAll('rect, text, path, polyline')].filter((shape) => {"
        "  const box = shape.getBoundingClientRect();"
        "  return box.left < edge.left - 1 || box.right > edge.right + 1 || box.bottom > edge.bottom + 1;"
        " }).map((shape) => shape.outerHTML); })"
    )
    assert outside == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_follows_color_scheme(browser: Browser, scheme: str) -> None:
    """The report uses the light or dark colors that the browser prefers."""
    browser.prefers(prefers_color_scheme=scheme)
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[scheme]
    bar = browser.run("return getComputedStyle(document.querySelector('svg .series-0')).fill")
    assert bar == {"light": "rgb(9, 105, 218)", "dark": "rgb(121, 184, 255)"}[scheme]
    browser.size(1280, browser.run("return document.documentElement.scrollHeight"))
    browser.picture(f"fleet-report-{scheme}")


def test_keyboard_navigation(browser: Browser) -> None:
    """A reader can open chapters and tables and sort them by keyboard alone."""

    def press(*keys: str) -> None:
        ActionChains(browser.driver).send_keys(*keys).perform()

    def focused() -> str:
        text: str = browser.run("return document.activeElement.textContent.trim()")
        return text

    press(Keys.TAB)
    assert focused() == "Skip to the content"
    press(Keys.TAB)
    assert focused() == "Lag"
    press(Keys.ENTER)
    browser.until(lambda: browser.driver.current_url.endswith("#lag"), "the browser is at the chapter")
    press(Keys.TAB, Keys.TAB)
    assert focused().startswith("Groups, largest lag first")
    press(Keys.ENTER)
    browser.until(lambda: browser.all(f"{FIRST} details[open]"), "the chart's table is open")
    press(Keys.TAB, Keys.TAB)
    assert focused() == "group"
    press(Keys.ENTER)
    assert browser.one(f"{FIRST} th[aria-sort=ascending]").text.startswith("group")


def test_table_sorts_by_heading(browser: Browser) -> None:
    """A click on a table heading sorts the table by that column, and a second click reverses the order."""

    def lags() -> list[float]:
        cells = f"{FIRST} tbody td:nth-child({column + 1})"
        found = browser.run(f"return [...document.querySelectorAll('{cells}')].map((cell) => cell.dataset.sort)")
        return [-1.0 if lag is None else float(lag) for lag in found]

    headings = browser.texts(f"{FIRST} thead th")
    column = headings.index("lag")
    browser.one(f"{FIRST} summary").click()
    button = browser.all(f"{FIRST} thead button")[column]
    button.click()
    assert lags() == sorted(lags(), reverse=True)
    assert button.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    button.click()
    assert lags() == sorted(lags())
    assert len(browser.all(f"{FIRST} th[aria-sort]")) == 1
    browser.all(f"{FIRST} thead button")[0].click()
    assert browser.texts(f"{FIRST} tbody td:first-child").index(EVIL) < 3


def test_names_are_shown_but_not_run(browser: Browser) -> None:
    """A group name with markup appears as text and adds no script."""
    assert browser.run("return document.querySelectorAll('script').length") == 1
    assert EVIL in browser.texts(f"{FIRST} .label")


def test_phone_width_has_no_overflow(browser: Browser) -> None:
    """On a phone screen, nothing is wider than the window."""
    browser.size(390, 844)
    assert browser.run("return document.documentElement.scrollWidth") <= 390
