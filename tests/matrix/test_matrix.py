"""Tests the matrix: verdicts, the running of programs, the page, and one client with a real broker.

The client is librdkafka from the project's own packages, so this test downloads nothing but the broker.
"""

import sys
from pathlib import Path

import pytest

from tests.kafka.maven import CACHE_VARIABLE
from tests.kafka.releases import NEWEST
from tests.matrix import toolchains
from tests.matrix.outcomes import Cell, Outcome, Verdict
from tests.matrix.page import page
from tests.matrix.programs import run_steps
from tests.matrix.results import Results
from tests.matrix.rows import CLIENT_STEPS, ROWS, Program, Row
from tests.matrix.run import BrokerResult, failures, run_broker

GOOD, BAD = (
    Outcome(ok=True),
    Outcome(ok=False, error="Error: at 127.0.0.1:20001 in librdkafka-direct-0a1b-group of /home/a/b.jar"),
)
UNSUPPORTED = Outcome(ok=False, error="not supported by the client: none", unsupported=True)
PLACE = ("127.0.0.1:1", "topic", "group")
PROGRAM = """\
import sys, time
for step in sys.argv[4].split(","):
    if step == "hang":
        time.sleep(60)
    if step == "die":
        sys.exit(3)
    print("a line of a logger", flush=True)
    print('{"step": "%s", "ok": %s, "error": null}' % (step, str(step != "produce").lower()), flush=True)
"""


@pytest.mark.parametrize(
    ("direct", "through", "verdict"),
    [
        (GOOD, GOOD, Verdict.SAME),
        (GOOD, BAD, Verdict.FAIL),
        (BAD, GOOD, Verdict.ADDED),
        (BAD, BAD, Verdict.NEITHER),
        (UNSUPPORTED, UNSUPPORTED, Verdict.UNSUPPORTED),
    ],
)
def test_verdict(direct: Outcome, through: Outcome, verdict: Verdict) -> None:
    assert Cell(direct, through).verdict is verdict


def run_program(steps: tuple[str, ...], folder: Path) -> dict[str, Outcome]:
    return run_steps((sys.executable, "-c", PROGRAM), PLACE, steps, (), folder / "log", {})


def test_steps_continue_after_end(tmp_path: Path) -> None:
    """A program that ends early is started again for the remaining steps."""
    outcomes = run_program(("consume", "die", "admin"), tmp_path)
    assert outcomes == {
        "consume": GOOD,
        "die": Outcome(ok=False, error="the program ended with status 3"),
        "admin": GOOD,
    }


def test_steps_continue_after_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that hangs is ended, and started again for the remaining steps."""
    monkeypatch.setattr("tests.matrix.programs.SECONDS_PER_STEP", 2.0)
    outcomes = run_program(("hang", "admin"), tmp_path)
    assert outcomes == {"hang": Outcome(ok=False, error="no result within 2 s"), "admin": GOOD}


def test_steps_stop_without_records(tmp_path: Path) -> None:
    """If the first step fails, the others fail without running."""
    outcomes = run_program(("produce", "hang"), tmp_path)
    assert not outcomes["produce"].ok
    assert outcomes["hang"] == Outcome(ok=False, error="produce failed")


def test_page(tmp_path: Path) -> None:
    """The page has a sign for each step, and a reason for each failure without ports, paths and names of the run."""
    results = Results(tmp_path / "results.json")
    steps = dict(zip(CLIENT_STEPS, [Cell(GOOD, GOOD), Cell(BAD, GOOD), Cell(BAD, BAD)], strict=False))
    steps |= {"transactions": Cell(UNSUPPORTED, UNSUPPORTED), "admin": Cell(GOOD, BAD)}
    results.add(NEWEST, BrokerResult({"librdkafka": steps}, local_answers=7, forwarded_questions=2))
    results.add_missing("sarama", "go is missing")
    text = page(Results(tmp_path / "results.json"))
    assert f"| librdkafka | {ROWS['librdkafka'].version} | ✓ + no n/a **FAIL** | ? |" in text
    assert f"| librdkafka | admin | {NEWEST} | FAIL | `Error: at BROKER in NAME of PATH` |" in text
    assert "`sarama` was not run: go is missing." in text
    assert f"| {NEWEST} | 7 | 2 |" in text


def test_missing_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose toolchain is missing does not run, and the reason names the toolchain."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(toolchains.Missing, match=r"^go is missing$"):
        ROWS["sarama"].prepare()


def test_build_is_repeated_after_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build is kept until one of its files changes, and a failed build is not kept."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    file, builds = tmp_path / "file", list[Path]()
    file.write_text("one")

    def failing(target: Path) -> None:
        raise toolchains.Missing("no compiler")

    with pytest.raises(toolchains.Missing):
        toolchains.built("name", [file], failing)
    first = toolchains.built("name", [file], builds.append)
    assert toolchains.built("name", [file], builds.append) == first
    file.write_text("two")
    second = toolchains.built("name", [file], builds.append)
    assert builds == [first, second]


def test_client_works_through_sidecar(tmp_path: Path) -> None:
    """librdkafka performs all steps on both routes, and the sidecar answers questions from its copy."""
    program = Program((sys.executable, str(toolchains.SOURCES / "python" / "librdkafka.py")))
    row = Row("librdkafka", "any", lambda: program)
    result = run_broker(NEWEST, {row: program}, jobs=1, keep=tmp_path)
    assert failures(result.cells) == []
    assert {step: cell.verdict for step, cell in result.cells["librdkafka"].items()} == dict.fromkeys(
        CLIENT_STEPS, Verdict.SAME
    )
    assert result.local_answers > 0
