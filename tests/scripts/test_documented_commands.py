"""Every command in README.md and docs/ works: its program, its flags and the files that it names exist.

A command of a fenced `sh` block or of a code span is checked in one of three ways. Cheap commands run. Commands of
this project are parsed by the program's own parser, so that an unknown flag fails. Tools of others are listed with the
test or the make target that runs them. A command that fits none of these fails.
"""

import argparse
import contextlib
import importlib.util
import io
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import typer
import yaml
from typer.main import get_command

from group_sidecar.proxy.cli import app
from group_sidecar.proxy.commandline import healthcheck
from group_sidecar.proxy.commandline.groups import groups_app
from group_sidecar.proxy.config.loading import load_config
from group_sidecar.spark.command_arguments import arguments
from tests.scripts.documents import GENERATED, ROOT, blocks, pages, spans, text_of

SHELL, CONSOLE = "sh", "console"
LANGUAGES = {SHELL, CONSOLE, "text", "yaml", "properties", "python", "mermaid", "promql"}
PROGRAMS = frozenset(
    {
        "curl",
        "deploy/spark/kubernetes.sh",
        "deploy/spark/yarn.sh",
        "docker",
        "group-sidecar",
        "make",
        "mypy",
        "pip",
        "promtool",
        "pytest",
        "python",
        "ruff",
        "spark-pipelines",
    }
)
"""Programs whose commands are also checked in code spans."""
NICE = "nice -n "
VARIABLE = re.compile(r"[A-Z_]+=")
"""Matches a variable of the environment before a command."""
PLACEHOLDERS = {"..."}
LINTERS = {"ruff", "mypy", "lint-imports"}
RUN_ELSEWHERE = {
    "deploy/spark/kubernetes.sh": ("tests/spark/test_pipelines.py", "kubernetes.sh"),
    "deploy/spark/yarn.sh": ("tests/spark/test_pipelines.py", "yarn.sh"),
    "spark-pipelines": ("tests/spark/test_pipelines.py", "spark-pipeline.yml"),
    "curl": ("tests/proxy/admin/test_app.py", "/-/reload"),
    "kill": ("tests/proxy/test_hot_restart.py", "SIGUSR2"),
    "jq": ("tests/proxy/commandline/test_documented.py", "GroupSummary"),
    "openssl": ("tests/deploy/test_compose.py", "admin-token"),
    "promtool": ("tests/deploy/test_rules.py", "promtool"),
    "kubectl": ("tests/deploy/test_kubernetes.py", "overlays/sidecar"),
    "helm": ("tests/deploy/test_helm.py", "example-brokers"),
}
"""Commands of other tools, with the test that runs or checks them, and a word in that test."""
PRINTED = {
    "group_sidecar.proxy.config.page": "docs/configuration.md",
    "group_sidecar.metrics": "docs/metrics.md",
    "group_sidecar.metrics.records": "docs/records.md",
    "group_sidecar.metrics.records_schema": "docs/records.schema.json",
    "group_sidecar.spark.tables_page": "docs/tables.md",
}
"""Modules that print a file of `docs`. They run, and the file is compared."""
FAULTS = (AssertionError, SystemExit, argparse.ArgumentError, ImportError, typer.TyperException, pytest.UsageError)
"""The exceptions that a wrong command raises."""
FOREIGN_FLAGS = frozenset({"--collector.textfile.directory"})
"""Flags of node_exporter."""
HISTORY = "CHANGELOG.md"
"""A page with commands of earlier versions."""
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


class Command(NamedTuple):
    """One command of a page, as words; `output` is the file after `>`."""

    page: str
    words: tuple[str, ...]
    output: str | None = None

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


class _ParsedError(Exception):
    """Ends a program that has parsed its arguments."""


def commands() -> list[Command]:
    """Every command of every page, each once."""
    found: dict[Command, None] = {}
    for page in sorted({*pages()} - {HISTORY}):
        shell = [block.text.replace("\\\n", " ") for block in blocks(page) if block.language == SHELL]
        lines = [line for text in shell for line in text.splitlines()]
        shown = [line for block in blocks(page) if block.language == CONSOLE for line in block.text.splitlines()]
        lines += [line.removeprefix("$ ") for line in shown if line.startswith("$ ")]
        lines += [span for span in spans(page) if " " in span.strip() and _program(span) in PROGRAMS]
        lines += [span for span in spans(page) if span.startswith(NICE)]
        for line in lines:
            found.update(dict.fromkeys(_split(page, line)))
    return list(found)


def _program(line: str) -> str:
    words = [*dropwhile(VARIABLE.match, line.split())]
    return words[0].removeprefix(".venv/bin/") if words else ""


def _split(page: str, line: str) -> list[Command]:
    """The commands of a line, which pipes separate. Comments, variables and placeholders are left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            parts.append([])
        elif word not in PLACEHOLDERS:
            parts[-1].append(word)
    return [_command(page, part) for part in parts if part]


def _command(page: str, words: list[str]) -> Command:
    output = words[words.index(">") + 1] if ">" in words else None
    words = [*dropwhile(VARIABLE.match, takewhile(lambda word: word != ">", words))]
    if " ".join(words).startswith(NICE):
        words = words[3:]
    words[0] = words[0].removeprefix(".venv/bin/")
    return Command(page, tuple(words), output)


COMMANDS = commands()


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_command_works(command: Command, pytestconfig: pytest.Config) -> None:
    """Each documented command is accepted by its program's parser, by a check, or by the test that runs it."""
    program, *argv = command.words
    checks: dict[str, Callable[[list[str]], None]] = {
        "group-sidecar": _check_group_sidecar,
        "make": _check_make,
        "docker": _check_docker,
        "pip": _check_pip,
        "pytest": lambda argv: _check_pytest(argv, pytestconfig),
        "python": lambda argv: _check_module(argv, command.output),
    }
    checks |= dict.fromkeys(LINTERS, lambda argv: _check_linter(program, argv))
    checks |= dict.fromkeys(RUN_ELSEWHERE, lambda argv: _check_run_elsewhere(program))
    assert program in checks, "no check knows this program"
    checks[program](argv)


def _check_group_sidecar(argv: list[str]) -> None:
    match argv:
        case ["fleet", *rest]:
            _parse_fleet(rest)
        case [healthcheck.COMMAND, *rest]:
            healthcheck.parser().parse_args(rest)
        case ["groups", *rest]:
            _parse_typer(get_command(groups_app), rest)
        case _:
            _parse_typer(get_command(app), argv)


def _parse_typer(command: Any, argv: list[str]) -> None:
    """Parses arguments as the command does. A command without arguments is only named, and not parsed."""
    if not argv:
        return
    context = command.make_context("group-sidecar", list(argv), resilient_parsing="--install-completion" in argv)
    if rest := [*context._protected_args, *context.args]:
        _, subcommand, words = command.resolve_command(context, rest)
        assert subcommand is not None
        _parse_typer(subcommand, words)


def _parse_fleet(argv: list[str]) -> None:
    """Parses arguments as the fleet job does, except that folders need not exist. A bare command is only named."""
    if len(argv) == 1:
        with contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as ended:
            arguments([*argv, "--help"])
        assert ended.value.code == 0
    elif argv:
        _parse(lambda: arguments(argv), argv)


def _parse(program: Callable[[], object], argv: Sequence[str]) -> None:
    """Runs a program until it has parsed its arguments with `argparse`."""
    parse = argparse.ArgumentParser.parse_known_args

    def stop(parser: argparse.ArgumentParser, *_: object) -> None:
        _accept_any_path(parser)
        parsed: tuple[object, list[str]] = parse(parser, [*argv])
        assert parsed[1] == []
        raise _ParsedError

    with patch.object(argparse.ArgumentParser, "parse_args", stop), pytest.raises(_ParsedError):
        program()


def _accept_any_path(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _accept_any_path(inner)
        elif action.dest in {"input", "output", "tables", "textfile"}:
            action.type = str


def _check_module(argv: list[str], output: str | None) -> None:
    """`python -m MODULE`: the module parses the arguments, or prints its page, or takes no arguments."""
    option, module, *rest = argv
    if option == "scripts/release.py":
        assert (module, len(rest)) in {("cut", 1), ("check", 1), ("sdist", 1), ("notes", 1), ("open", 1)}
        return
    assert option == "-m"
    if module == "group_sidecar.spark":
        _parse_fleet(rest)
    elif module in PRINTED:
        assert _printed(module) == (ROOT / (output or PRINTED[module])).read_text("utf-8")
    elif "ArgumentParser" in _main_source(module):
        with patch.object(sys, "argv", [module, *rest]):
            _parse(lambda: _run(module), rest)
    else:
        assert rest == []


def _main_source(module: str) -> str:
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin)
    source = (file.with_name("__main__.py") if file.name == "__init__.py" else file).read_text("utf-8")
    assert "__main__" in source or file.name == "__init__.py"
    return source


def _run(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # The module may have been imported before.
        runpy.run_module(module, run_name="__main__")


@cache
def _printed(module: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output, patch.object(sys, "argv", [module]):
        _run(module)
    return output.getvalue()


def _check_make(argv: list[str]) -> None:
    """The Makefile has the targets and reads the variables, and `make -n` prints what it would run."""
    targets = {word for word in argv if "=" not in word}
    assert targets <= {*_makefile().partition(".PHONY:")[2].partition("\n")[0].split()}
    variables = [word.partition("=")[0] for word in argv if "=" in word]
    assert [name for name in variables if f"$({name})" not in _makefile()] == []
    done = subprocess.run(["make", "-n", *argv], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@cache
def _makefile() -> str:
    return (ROOT / "Makefile").read_text("utf-8")


def _check_pip(argv: list[str]) -> None:
    """`pip install` of the checkout, with extras that the project has, or `pip wheel` of it."""
    action, *flags, requirement = argv
    assert flags in ([], ["--no-deps"])
    name, _, extras = requirement.rstrip("]").partition("[")
    assert (action, name) in {("install", "."), ("wheel", ".")}
    assert {*filter(None, extras.split(","))} <= {*PROJECT["optional-dependencies"]}


def _check_docker(argv: list[str]) -> None:
    """`docker build` of a stage with its arguments, `docker run` of an image with them, or `docker compose`."""
    action, *rest = argv
    if action == "compose":
        _check_compose(rest)
        return
    parser = argparse.ArgumentParser(exit_on_error=False)
    if action == "run":
        for flag in ("--read-only", "--rm", "--detach"):
            parser.add_argument(flag, action="store_true")
        for option in ("--publish", "--volume", "--env", "--name", "--stop-timeout"):
            parser.add_argument(option, action="append", default=[])
        parser.add_argument("image", choices=("kafka-group-sidecar", "kafka-group-sidecar-spark"))
        parser.parse_args(rest)
        return
    assert action == "build"
    parser.add_argument("--target")
    parser.add_argument("--build-arg", action="append", default=[])
    parser.add_argument("-t")
    parser.add_argument("context", choices=(".",))
    given = parser.parse_args(rest)
    dockerfile = text_of("Dockerfile")
    assert f" AS {given.target}\n" in dockerfile
    assert [each for each in given.build_arg if f"ARG {each.partition('=')[0]}=" not in dockerfile] == []


def _check_compose(argv: list[str]) -> None:
    """`docker compose -f FILE`: the services exist, and the sidecar parses the command that runs in its container."""
    option, file, action, *rest = argv
    assert option == "-f"
    services = yaml.safe_load(text_of(file))["services"]
    if action == "exec":
        service, program, *inner = rest
        assert service in services
        if program == "group-sidecar":
            _check_group_sidecar(inner)
        else:
            assert program.startswith("/opt/kafka/bin/")
    else:
        assert action in {"up", "down", "logs", "restart"}
        assert {word for word in rest if word.startswith("-")} <= {"--build", "--detach", "--wait", "--volumes"}
        assert {word for word in rest if not word.startswith("-")} <= {*services}


def _check_pytest(argv: list[str], config: pytest.Config) -> None:
    """pytest knows the flags, the paths exist, and at least one test below them matches `-k` and `-m`."""
    given = config._parser.parse([*argv])
    paths = [ROOT / path for path in given.file_or_dir]
    assert paths
    assert [path for path in paths if not path.exists()] == []
    files = [each for path in paths for each in ([path] if path.is_file() else path.rglob("*.py"))]
    texts = [f"{each.stem}\n{each.read_text('utf-8')}" for each in files]
    if given.keyword:
        assert any(given.keyword.lower() in text.lower() for text in texts)
    if "-m" in argv:
        assert any(f"pytest.mark.{given.markexpr}" in text for text in texts)


def _check_linter(program: str, argv: list[str]) -> None:
    """`make lint` runs the same command."""
    assert f"\t@$(BIN)/{' '.join([program, *argv])}\n" in _makefile()


def _check_run_elsewhere(program: str) -> None:
    test, word = RUN_ELSEWHERE[program]
    assert word in text_of(test)


@pytest.mark.parametrize("page", ["docs/command-line.md", "docs/fleet.md"])
def test_flags_exist(page: str) -> None:
    """Each flag on the page exists in the described command or in a tool that the page names."""
    surface = text_of("tests/surfaces/golden/command_line.json")
    named = {span.split()[0] for span in spans(page) if span.startswith("--")}
    assert named
    assert {flag for flag in named if f'"{flag}"' not in surface} - FOREIGN_FLAGS == set()


@pytest.mark.parametrize("page", sorted({*pages()} - GENERATED))
def test_blocks_name_their_language(page: str) -> None:
    """Each fenced block names a known language, and text blocks contain no commands."""
    assert {block.language for block in blocks(page)} <= LANGUAGES
    others = [line for block in blocks(page) if block.language == "text" for line in block.text.splitlines()]
    assert [line for line in others if line.strip() and _program(line) in PROGRAMS] == []


YAML = [block for page in pages() for block in blocks(page) if block.language == "yaml"]


@pytest.mark.parametrize("block", YAML, ids=lambda block: f"{block.page}:{block.text.split(':')[0].strip()}")
def test_settings_examples_are_accepted(block: Any, tmp_path: Path) -> None:
    """Each example of settings loads, together with the settings that are always required."""
    settings = yaml.safe_load(block.text)
    if "listeners" not in settings:
        settings = {"listen": "127.0.0.1:9092", "upstream": "127.0.0.1:19092"} | settings
    file = tmp_path / "sidecar.yaml"
    file.write_text(yaml.safe_dump(settings), "utf-8")
    load_config(file, {})


@pytest.mark.parametrize(
    "line",
    [
        "group-sidecar run --lisen 0.0.0.0:9092",
        "group-sidecar groups wy checkout",
        "group-sidecar groups why checkout --sidecars 127.0.0.1:9464",
        "group-sidecar fleet run --inputs /srv/journals",
        "make tests",
        "make test ARG=-x",
        "pip install .[sparks]",
        "pip wheel --no-dep .",
        "pip install kafka-group-sidecar",
        "python scripts/release.py publish 0.1.0",
        "pytest tests/no_such_folder",
        "pytest tests/codecs -k no_such_test_anywhere",
        "python -m benchmarks.mixed --quickly",
        "python -m benchmarks.no_such_module",
        "mypy --loose",
        "docker build --target sparks .",
        "docker compose -f deploy/compose/compose.yml restart broker",
        "docker compose -f deploy/compose/compose.yml exec sidecar group-sidecar groups wy checkout",
        "docker build --target sidecar --build-arg NONE=1 .",
        "docker run --privileged kafka-group-sidecar",
        "telnet 127.0.0.1",
    ],
)
def test_wrong_command_is_detected(line: str, pytestconfig: pytest.Config) -> None:
    """Each kind of check fails for a wrong command."""
    [command] = _split("", line)
    with contextlib.redirect_stderr(io.StringIO()), pytest.raises(FAULTS):
        test_command_works(command, pytestconfig)
