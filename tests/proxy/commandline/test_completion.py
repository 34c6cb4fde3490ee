"""Completion, as shells request it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_sidecar.proxy.commandline.completion import rejoin_bash_words
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.proxy.commandline.admin_ports import AdminPort, group, listening

PROGRAM = Path(sys.executable).with_name("group-sidecar")


def program(*arguments: str, **environ: str) -> str:
    """Runs the program in this environment. Returns its output. Asserts that standard error is empty."""
    done = subprocess.run(
        [PROGRAM, *arguments],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=GIVE_UP_SECONDS,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def in_bash(*words: str) -> list[str]:
    """Returns bash's completions of the last of these words, which bash has already split."""
    script = program(_GROUP_SIDECAR_COMPLETE="source_bash")
    quoted = " ".join(f"'{word}'" for word in words)
    command_line = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _group_sidecar_completion {PROGRAM}"
    shown = f'{script}\n{command_line}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", shown], capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=True, cwd="/"
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def port() -> Iterator[AdminPort]:
    names = ("orders", "orders-2", "team:orders", "other", "$(id)", "or ders", "or\nders", "-x", "or*", "or;id", "ör")
    port = AdminPort([group(name) for name in names])
    with listening(port):
        yield port


def test_bash_completes_commands_and_flags() -> None:
    """Bash completes commands, flags and flag values."""
    assert in_bash("group-sidecar", "groups", "des") == ["describe"]
    assert in_bash("group-sidecar", "groups", "list", "--boo") == ["--bootstrap"]
    assert in_bash("group-sidecar", "groups", "list", "--state", "sta") == ["Stable"]


def test_bash_completes_groups(port: AdminPort) -> None:
    """Bash completes group names of the named sidecar, also where colons split the words."""
    host, number = port.address.split(":")
    named = ("group-sidecar", "groups", "describe", "--sidecar", host, ":", number)
    assert in_bash(*named, "ord") == ["orders", "orders-2"]
    assert in_bash(*named, "team", ":", "o") == ["orders"]
    assert in_bash(*named, "team", ":") == ["orders"]
    assert in_bash("group-sidecar", "groups", "why", "--sidecar", "=", host, ":", number, "oth") == ["other"]


def test_unsafe_names_are_not_offered(port: AdminPort) -> None:
    """Group names with characters that a shell would interpret are not offered."""
    host, number = port.address.split(":")
    offered = in_bash("group-sidecar", "groups", "describe", "--sidecar", host, ":", number, "")
    assert sorted(offered) == sorted(["orders", "orders-2", "team:orders", "other", "ör"])


@pytest.mark.parametrize(
    "flags", [["--sidecar", "127.0.0.1:1"], ["--bootstrap", "127.0.0.1:1"], ["--sidecar", "x"], []]
)
def test_unreachable_target_offers_nothing(flags: list[str]) -> None:
    """Without a reachable sidecar, no group is offered and no error is printed."""
    assert in_bash("group-sidecar", "groups", "describe", *flags, "") == [""]


def test_environment_target_is_used(port: AdminPort) -> None:
    """Completion uses the sidecar that the environment names."""
    offered = program(
        _GROUP_SIDECAR_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS="group-sidecar groups members ot",
        GROUP_SIDECAR_ADMIN=port.address,
    )
    assert offered.split() == ["other"]


def test_zsh_completes_groups(port: AdminPort) -> None:
    """Zsh completes group names of the named sidecar."""
    command_line = f"group-sidecar groups members --sidecar {port.address} ot"
    offered = program(_GROUP_SIDECAR_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=command_line)
    assert '"other"' in offered


@pytest.mark.parametrize(
    ("words", "cursor", "rejoined", "held_back"),
    [
        (["p", "groups", "x"], 2, ["p", "groups", "x"], ""),
        (["p", "a", ":", "1", "x"], 4, ["p", "a:1", "x"], ""),
        (["p", "a", ":", "1", ""], 4, ["p", "a:1", ""], ""),
        (["p", "--sidecar", "=", "a", ":", "1", "x"], 6, ["p", "--sidecar=a:1", "x"], ""),
        (["p", "a", ":", "b"], 3, ["p", "b"], "a:"),
        (["p", "a", "::", "b", ":", "c"], 5, ["p", "c"], "a::b:"),
        (["p", "a", ":"], 2, ["p", ""], "a:"),
        (["p", "--state", "=", "St"], 3, ["p", "--state", "St"], ""),
        (["p", "--state", "="], 2, ["p", "--state", ""], ""),
        (["p", "x", "behind", "the", "cursor"], 1, ["p", "x"], ""),
    ],
)
def test_bash_words_are_rejoined(words: list[str], cursor: int, rejoined: list[str], held_back: str) -> None:
    """Words that bash has split at colons or equals signs are joined again."""
    environ = {
        "_GROUP_SIDECAR_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(cursor),
    }
    rejoin_bash_words(environ)
    assert environ["COMP_WORDS"].split("\n") == rejoined
    assert int(environ["COMP_CWORD"]) == len(rejoined) - 1
    assert environ.get("_GROUP_SIDECAR_HELD_BACK", "") == held_back


def test_other_shells_are_unchanged() -> None:
    """The environment is unchanged if no completion or a zsh completion is requested."""
    for environ in ({}, {"_GROUP_SIDECAR_COMPLETE": "complete_zsh"}):
        before = dict(environ)
        rejoin_bash_words(environ)
        assert environ == before
