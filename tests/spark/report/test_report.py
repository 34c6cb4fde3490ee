"""The contents of a report on tables with literal rows."""

import base64
import hashlib
import os
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark.report import write_report
from group_sidecar.spark.report.html_page import replace_file
from tests.spark.report.fleet_tables import BACKWARDS, EVIL, GROUPS, TITLE, Rows, at, fleet, tables


class Page(HTMLParser):
    """The contents of a report: facts, the rows of tables by caption, and texts by element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.facts: dict[str, list[str]] = {}
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str, str | None]] = []
        self._tags: list[str] = []
        self._caption = self._fact = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag in ("td", "dt", "dd", "title", "p", "figcaption", "caption", "h1"):
            self.texts.setdefault(tag, []).append("")
            self._tags.append(tag)
        if tag == "tr":
            self.tables.setdefault(self._caption, []).append([])

    def handle_endtag(self, tag: str) -> None:
        if self._tags and tag == self._tags[-1]:
            self._tags.pop()
            text = self.texts[tag][-1] = self.texts[tag][-1].strip()
            if tag == "caption":
                self._caption = text
            elif tag == "td":
                self.tables[self._caption][-1].append(text)
            elif tag == "dt":
                self._fact = text
            elif tag == "dd":
                self.facts.setdefault(self._fact, []).append(text)

    def handle_data(self, data: str) -> None:
        if self._tags:
            self.texts[self._tags[-1]][-1] += data

    def rows(self, caption: str) -> list[list[str]]:
        """Returns the rows of a table, without its headings."""
        return [row for row in self.tables[caption] if row]


@pytest.fixture(scope="module")
def page(report_file: Path) -> Page:
    return Page(report_file.read_text())


def total(rows: Rows, column: str) -> int:
    return sum(row[column] for row in rows)


def test_head_summarizes_fleet(page: Page) -> None:
    """The head of the report contains the fleet's key figures and time span."""
    tables = fleet()
    newest = [row["lag"] for row in tables["group_lag"] if row["window"] == at(29.5)]
    assert page.facts == {
        "Groups": ["31", "28 Stable, 3 Empty, 1 gone"],
        "Total lag": [f"{sum(newest):,}", "at most 2 h 39 min"],
        "Rebalances": [f"{total(tables['rebalances'], 'rebalances'):,}"],
        "Lost consumer time": ["32 min", "at most: members times the length of rebalances"],
        "Refusals": [f"{total(tables['refusals'], 'refusals'):,}", "and 79 more in audit mode"],
        "Silent sidecars": ["1", "of 4, for more than 5 min"],
        # broker-3 lost 1,000 records while it was cut off, and broker-2 lost 10 in each of 26 windows.
        "Missing records": ["1,260"],
        "Lines in quarantine": ["12"],
        "Newest window": ["2025-02-01 03:30:00"],
    }
    assert page.texts["p"][1] == "2025-01-30 22:00:00 to 2025-02-01 04:00:00, UTC"


def test_charts_report_omitted_groups(page: Page) -> None:
    """Charts report how many groups they leave out."""
    assert "10 more groups have a smaller lag." in page.texts["p"]
    assert "7 more groups rebalanced less often." in page.texts["p"]
    assert "5 more groups had fewer." in page.texts["p"]


def test_tooltips_have_figures(page: Page) -> None:
    """Tooltips of the charts contain the figures."""
    shown = set(page.texts["title"])
    assert f"{EVIL}: 95,490 messages, 2 h 39 min" in shown
    assert f"{EVIL}, 2025-01-30 22:00:00: 30,000 messages, 50 min" in shown
    assert f"2025-01-31 01:00:00: {EVIL}, 12 rebalances: session expired 12" in shown
    assert "2025-01-30 22:00:00: joined 5" in shown
    assert f"{EVIL}: group_max_size 40" in shown
    assert "broker-4 <b>: silent, 2025-02-01 00:00:00 to 2025-02-01 04:00:00" in shown
    assert "broker-3: no records, 2025-01-31 08:00:00 to 2025-01-31 13:00:00" in shown
    assert "broker-3: records without a heartbeat, 2025-01-30 22:00:00 to 2025-01-31 00:00:00" in shown
    assert "broker-2: restarted, 2025-01-31 14:30:00" in shown
    assert "not json object: 4 lines" in shown


def test_each_chart_has_table(page: Page) -> None:
    """Each chart has a table with its figures."""
    groups = page.rows("Groups, largest lag first")
    assert (len(groups), groups[0][0]) == (GROUPS, EVIL)
    assert page.rows("The largest lag of each group")[0] == [
        EVIL,
        "95,490",
        "2 h 39 min",
        "2025-02-01 03:30:00",
        "30,000",
    ]
    partitions = page.rows("Partitions, largest lag first")
    assert [row[:6] for row in partitions] == [[EVIL, "t", f"{n}", "10", f"{10 + n}", f"{n}"] for n in (2, 1, 0)]
    assert sum(int(row[1].replace(",", "")) for row in page.rows("Causes")) == total(
        fleet()["rebalances"], "rebalances"
    )
    assert [row[0] for row in page.rows("Sidecars")] == ["broker-4 <b>", "broker-3", "broker-2", "broker-1"]
    assert page.rows("Members that joined and left, by group")[0] == ["group-02", "joined", "75"]
    assert page.rows("Metrics, summed over all sidecars")[0][:4] == ["connections", "7", "-", "4"]
    assert page.rows("Faults, by the sidecar where it can be read")[1][:4] == ["not_json_object", "-", "4", "{<i>0"]


def test_names_are_escaped_everywhere(report_file: Path, page: Page) -> None:
    """Names with markup or control characters appear as text in tables, charts and the title."""
    html = report_file.read_text()
    assert "<script>alert" not in html
    assert html.count("<script>") == 1
    assert "<i>" not in html
    assert not set(BACKWARDS[:1] + "\x1b") & set(html)
    assert page.texts["h1"] == [TITLE]
    assert {"tables", "charts"} <= {
        "tables" if EVIL in page.texts["td"] else "",
        "charts" if EVIL in page.texts["title"] else "",
    }


def test_page_runs_only_own_content(report_file: Path, page: Page) -> None:
    """The content security policy allows only the page's own style and script."""
    html = report_file.read_text()
    (policy,) = (
        value or ""
        for tag, name, value in page.attributes
        if (tag, name) == ("meta", "content") and value and "default-src" in value
    )
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (inner,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()}'" in policy
    assert "unsafe" not in policy
    assert not [value for _, name, value in page.attributes if name in ("src", "style") or name.startswith("on")]
    assert all((value or "").startswith("#") for _, name, value in page.attributes if name == "href")


def test_requested_span_is_drawn_in_full(spark: SparkSession, tmp_path: Path) -> None:
    """A report of an idle fleet covers the whole requested time, with a note in place of each empty chart."""
    one = {"window": at(2), "sidecar": "b", "boot": "1", "first_seq": 1, "last_seq": 9, "records": 9, "heartbeats": 9}
    read = tables(spark, {"sidecars": [{**one, "last_record": at(2.1), "last_heartbeat": at(2.1)}]})
    write_report(
        read, tmp_path / "idle.html", since=datetime(2025, 1, 30, tzinfo=UTC), until=datetime(2025, 2, 1, tzinfo=UTC)
    )
    page = Page((tmp_path / "idle.html").read_text())
    assert page.texts["p"][1] == "2025-01-30 00:00:00 to 2025-02-01 00:00:00, UTC"
    assert page.facts["Groups"] == ["0"]
    assert page.facts["Total lag"] == ["0"]
    assert page.facts["Silent sidecars"][0] == "0"
    assert {
        "No group is behind.",
        "No group rebalanced.",
        "No policy refused a request.",
        "No policy in audit mode would have refused a request.",
        "No member joined or left.",
        "No sidecar reported its metrics.",
        "Every line was a record.",
    } <= set(page.texts["p"])
    assert "b: heartbeats, 2025-01-31 00:00:00 to 2025-01-31 01:00:00" in page.texts["title"]


def test_report_without_records(spark: SparkSession, tmp_path: Path) -> None:
    """A report without records states that nothing is known and shows the quarantine only."""
    read = tables(spark, {"quarantine": fleet()["quarantine"]})
    write_report(read, tmp_path / "none.html")
    page = Page((tmp_path / "none.html").read_text())
    assert "There are no records of sidecars in this time." in page.texts["p"]
    assert page.facts == {"Lines in quarantine": ["12"]}
    assert page.texts["figcaption"] == ["Lines in quarantine by fault"]


def test_failed_report_keeps_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that cannot be written leaves the old file and no temporary file."""
    file = tmp_path / "report.html"
    replace_file(file, "old")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        replace_file(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
