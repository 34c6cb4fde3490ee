"""The contents of the page, and the files to which it is written."""

import argparse
from pathlib import Path

import pytest

from benchmarks import __main__ as command_line
from benchmarks.markdown_pages import DATA_PATH, FLEET, machine, markdown, write
from benchmarks.section import Section
from benchmarks.targets import ExternalProxy

SECTIONS = [
    Section("Forwarding", "\nAs fast as it gets.\n\n"),
    Section("Growth", "![](charts/connections.svg)", {"connections.svg": "<svg/>"}),
]


def test_page_lists_machine_and_sections() -> None:
    """The page contains the machine's facts and the sections in their order."""
    text = markdown(DATA_PATH, "python -m benchmarks", {"CPU": "a fast one"}, SECTIONS)
    assert text.startswith("# Performance\n\n`python -m benchmarks` measures")
    assert text.endswith(
        "| CPU | a fast one |\n"
        "\n## Forwarding\n\nAs fast as it gets.\n"
        "\n## Growth\n\n![](charts/connections.svg)\n"
    )  # fmt: skip


def test_page_and_charts_are_written(tmp_path: Path) -> None:
    """The page and its charts are written to their files."""
    write(tmp_path / "docs", DATA_PATH, "the page\n", SECTIONS)
    assert (tmp_path / "docs" / "performance.md").read_text() == "the page\n"
    assert (tmp_path / "docs" / "charts" / "connections.svg").read_text() == "<svg/>"


def test_machine_facts_are_complete() -> None:
    """The facts of the machine are complete and include the load before the run."""
    facts = machine((0.25, 1.0, 12.0))
    assert all(facts.values())
    assert facts["load before it began"] == "0.2, 1.0, 12.0 (1, 5, 15 minutes)"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "python -m benchmarks"),
        ({"fleet": True, "quick": True}, "python -m benchmarks --fleet --quick"),
        (
            {"quick": True, "broker_port": 19092, "others": [ExternalProxy("kafka-proxy 0.4.3", ("127.0.0.1", 19101))]},
            "python -m benchmarks --quick --broker-port 19092 'kafka-proxy 0.4.3=127.0.0.1:19101'",
        ),
    ],
)
def test_command_is_reproducible(given: dict[str, object], expected: str) -> None:
    """The printed command repeats the given options."""
    options = {"fleet": False, "quick": False, "broker_port": None, "others": [], **given}
    assert command_line.command(argparse.Namespace(**options)) == expected


def test_failed_section_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A section that fails is reported on the page and on standard error, and the others are written."""

    def measured_in_subprocess(module: str, quick: bool, **options: object) -> Section:
        assert quick
        name = module.removeprefix("benchmarks.")
        if name == "growth":
            raise RuntimeError("no room to grow")
        return Section(name.title(), f"{name} {sorted(options)}")

    monkeypatch.setattr(command_line, "measured_in_subprocess", measured_in_subprocess)
    monkeypatch.setattr("sys.argv", ["benchmarks", "--quick", "--docs", str(tmp_path)])
    assert command_line.main() == 1
    text = (tmp_path / "performance.md").read_text()
    assert "## Forwarding\n\nforwarding ['broker_port', 'others']\n" in text
    assert "## growth\n\nNot measured: it failed in this run.\n" in text
    assert "## Codecs\n\ncodecs []\n" in text
    error = capfd.readouterr().err
    assert "benchmarks.growth failed" in error
    assert error.rstrip().endswith("RuntimeError: no room to grow")


def test_fleet_has_own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fleet benchmark writes a page of its own."""
    monkeypatch.setattr(
        command_line, "measured_in_subprocess", lambda module, _quick: Section("The fleet", f"by {module}")
    )
    monkeypatch.setattr("sys.argv", ["benchmarks", "--fleet", "--docs", str(tmp_path)])
    assert command_line.main() == 0
    text = (tmp_path / FLEET.file).read_text()
    assert text.startswith(f"# {FLEET.title}\n\n`python -m benchmarks --fleet` measures")
    assert text.endswith("## The fleet\n\nby benchmarks.fleet\n")
    assert not (tmp_path / DATA_PATH.file).exists()


@pytest.mark.parametrize("given", ["kafka-proxy=127.0.0.1:19101", "--broker-port=19092"])
def test_fleet_refuses_proxy_options(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fleet benchmark refuses options for proxies."""
    monkeypatch.setattr("sys.argv", ["benchmarks", "--fleet", given])
    with pytest.raises(SystemExit):
        command_line.arguments()
    assert "--fleet: no proxy is measured" in capsys.readouterr().err
