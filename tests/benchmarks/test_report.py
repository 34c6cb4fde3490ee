"""The page: what stands in it, and where it is written."""

import argparse
from pathlib import Path

import pytest

from benchmarks import __main__ as command_line
from benchmarks.report import DATA_PATH, FLEET, machine, markdown, write
from benchmarks.section import Section
from benchmarks.targets import Further

SECTIONS = [
    Section("Forwarding", "\nAs fast as it gets.\n\n"),
    Section("Growth", "![](charts/connections.svg)", {"connections.svg": "<svg/>"}),
]


def test_sections_stand_in_their_order_below_the_machine() -> None:
    text = markdown(DATA_PATH, "python -m benchmarks", {"CPU": "a fast one"}, SECTIONS)
    assert text.startswith("# Performance\n\nWritten by `python -m benchmarks`")
    assert text.endswith(
        "| CPU | a fast one |\n"
        "\n## Forwarding\n\nAs fast as it gets.\n"
        "\n## Growth\n\n![](charts/connections.svg)\n"
    )  # fmt: skip


def test_the_page_and_its_charts_are_written(tmp_path: Path) -> None:
    write(tmp_path / "docs", DATA_PATH, "the page\n", SECTIONS)
    assert (tmp_path / "docs" / "performance.md").read_text() == "the page\n"
    assert (tmp_path / "docs" / "charts" / "connections.svg").read_text() == "<svg/>"


def test_the_machine_is_told_whole() -> None:
    facts = machine((0.25, 1.0, 12.0))
    assert all(facts.values())
    assert facts["load before it began"] == "0.2, 1.0, 12.0 (1, 5, 15 minutes)"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "python -m benchmarks"),
        ({"fleet": True, "quick": True}, "python -m benchmarks --fleet --quick"),
        (
            {"quick": True, "broker_port": 19092, "others": [Further("kafka-proxy 0.4.3", ("127.0.0.1", 19101))]},
            "python -m benchmarks --quick --broker-port 19092 'kafka-proxy 0.4.3=127.0.0.1:19101'",
        ),
    ],
)
def test_the_command_can_be_given_again(given: dict[str, object], expected: str) -> None:
    options = {"fleet": False, "quick": False, "broker_port": None, "others": [], **given}
    assert command_line.command(argparse.Namespace(**options)) == expected


def test_a_section_that_fails_is_told_and_the_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def measured(module: str, quick: bool, **options: object) -> Section:
        assert quick
        name = module.removeprefix("benchmarks.")
        if name == "growth":
            raise RuntimeError("no room to grow")
        return Section(name.title(), f"{name} {sorted(options)}")

    monkeypatch.setattr(command_line, "measured", measured)
    monkeypatch.setattr("sys.argv", ["benchmarks", "--quick", "--docs", str(tmp_path)])
    assert command_line.main() == 1
    text = (tmp_path / "performance.md").read_text()
    assert "## Forwarding\n\nforwarding ['broker_port', 'others']\n" in text
    assert "## growth\n\nNot measured: it failed in this run.\n" in text
    assert "## Codecs\n\ncodecs []\n" in text
    error = capfd.readouterr().err
    assert "benchmarks.growth failed" in error
    assert error.rstrip().endswith("RuntimeError: no room to grow")


def test_the_fleet_has_a_page_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "measured", lambda module, _quick: Section("The fleet", f"by {module}"))
    monkeypatch.setattr("sys.argv", ["benchmarks", "--fleet", "--docs", str(tmp_path)])
    assert command_line.main() == 0
    text = (tmp_path / FLEET.file).read_text()
    assert text.startswith(f"# {FLEET.title}\n\nWritten by `python -m benchmarks --fleet`")
    assert text.endswith("## The fleet\n\nby benchmarks.fleet\n")
    assert not (tmp_path / DATA_PATH.file).exists()


@pytest.mark.parametrize("given", ["kafka-proxy=127.0.0.1:19101", "--broker-port=19092"])
def test_no_proxy_is_named_beside_the_fleet(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "--fleet", given])
    with pytest.raises(SystemExit):
        command_line.arguments()
    assert "--fleet: no proxy is measured" in capsys.readouterr().err
