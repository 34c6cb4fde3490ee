"""The bootstrap on all kinds of machines: what it installs, and its text without the right to install."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts import bootstrap
from scripts.bootstrap import Need, SetupFailed

HERE = Need("here", "here-package", lambda: True)
AWAY = Need("Java 17", "openjdk-17-jre-headless", lambda: False)
AWAY_TOO = Need("promtool", "prometheus", lambda: False)


def test_nothing_missing_installs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed if nothing is missing."""
    monkeypatch.setattr(
        bootstrap, "apt_install", lambda *_: pytest.fail("a package was installed, although nothing is missing")
    )
    bootstrap.install_system((HERE, HERE))


def test_missing_packages_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """If installation is not possible, one line names everything that is missing and the command to install it."""
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: None)
    with pytest.raises(SetupFailed) as failed:
        bootstrap.install_system((AWAY, HERE, AWAY_TOO))
    assert str(failed.value) == (
        "missing: Java 17, promtool; on Debian: apt-get install openjdk-17-jre-headless prometheus"
    )


def test_missing_after_installation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still missing after the installation is named."""
    monkeypatch.setattr(bootstrap, "apt_install", lambda *_: None)
    with pytest.raises(SetupFailed, match="still missing after installation: promtool"):
        bootstrap.install_system((AWAY_TOO,))


def test_only_missing_packages_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the missing packages are installed."""
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: ["apt-get"])
    monkeypatch.setattr(bootstrap, "available", lambda package: package)
    monkeypatch.setattr(bootstrap, "run", lambda what, command, environment: commands.append(command))
    with pytest.raises(SetupFailed):
        bootstrap.install_system((HERE, AWAY_TOO))
    assert commands == [["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "prometheus"]]


def test_missing_ensurepip_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a Python without ensurepip, the message names the package to install."""
    monkeypatch.setattr(bootstrap, "importable", lambda module: False)
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: None)
    with pytest.raises(SetupFailed, match=r"no ensurepip.*install the package python3\.\d+-venv"):
        bootstrap.require_ensurepip()


def test_demo_continues_without_java(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The bootstrap of the demo succeeds silently without Java."""
    monkeypatch.setattr(bootstrap, "JAVA", AWAY)
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: None)
    assert bootstrap.main(["java"]) == 0
    assert capfd.readouterr() == ("", "")


def test_benchmarks_continue_without_haproxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bootstrap of the benchmarks succeeds without HAProxy."""
    for name, need in (("JAVA", HERE), ("MAVEN", HERE), ("HAPROXY", AWAY_TOO)):
        monkeypatch.setattr(bootstrap, name, need)
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: None)
    assert bootstrap.main(["proxies"]) == 0


def test_benchmarks_stop_without_maven(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The bootstrap of the benchmarks fails without Maven and names what is missing."""
    for name, need in (("JAVA", HERE), ("MAVEN", AWAY_TOO), ("HAPROXY", HERE)):
        monkeypatch.setattr(bootstrap, name, need)
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: None)
    assert bootstrap.main(["proxies"]) == 1
    assert capfd.readouterr().err.startswith("missing: promtool")


@pytest.mark.parametrize(("user", "image"), [(0, True), (1000, False)])
def test_image_tools_only_for_root(monkeypatch: pytest.MonkeyPatch, user: int, image: bool) -> None:
    """Only root needs the programs that build the image, because only root can test the image."""
    asked: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(bootstrap, "install_system", lambda needs: asked.extend(need.package for need in needs))
    assert bootstrap.main(["system"]) == 0
    assert "maven" in asked
    assert ({"buildah", "crun", "debootstrap"} <= set(asked)) is image


def test_finds_command_in_sbin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command in /usr/sbin is found although the folder is not on the path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    [any_of_them, *_] = sorted(path.name for path in Path("/usr/sbin").iterdir() if os.access(path, os.X_OK))
    assert bootstrap.in_sbin(any_of_them) == f"/usr/sbin/{any_of_them}"
    assert bootstrap.in_sbin("no such command") is None


def test_failed_command_shows_output(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """A failed command shows the end of its output."""
    monkeypatch.setattr(bootstrap, "LOGS", tmp_path)
    with pytest.raises(SetupFailed, match="the reason\nwhat it was failed"):
        bootstrap.run("what it was", ["sh", "-c", "echo the reason; exit 3"])


def test_slow_command_shows_progress(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, capfd: pytest.CaptureFixture[str]
) -> None:
    """A slow command shows its duration and its last line."""
    monkeypatch.setattr(bootstrap, "LOGS", tmp_path)
    monkeypatch.setattr(bootstrap, "PROGRESS_SECONDS", 0.05)
    bootstrap.run("fetching", ["sh", "-c", "echo half of it; sleep 0.5"])
    assert re.search(r"fetching: \d+ s, half of it", capfd.readouterr().out)
