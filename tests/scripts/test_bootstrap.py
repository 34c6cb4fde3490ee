"""The bootstrap on machines of every kind: what it installs, and what it says where it may not."""

import re
from collections.abc import Sequence

import pytest

from scripts import bootstrap
from scripts.bootstrap import Need, SetupFailed

HERE = Need("here", "here-package", lambda: True)
AWAY = Need("Java 17", "openjdk-17-jre-headless", lambda: False)
AWAY_TOO = Need("promtool", "prometheus", lambda: False)


def test_nothing_is_installed_where_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "apt_install", lambda *_: pytest.fail("nothing was missing"))
    bootstrap.install_system((HERE, HERE))


def test_one_line_names_all_that_is_missing_where_nothing_may_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: None)
    with pytest.raises(SetupFailed) as failed:
        bootstrap.install_system((AWAY, HERE, AWAY_TOO))
    assert str(failed.value) == (
        "missing: Java 17, promtool; on Debian: apt-get install openjdk-17-jre-headless prometheus"
    )


def test_what_an_installation_did_not_bring_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "apt_install", lambda *_: None)
    with pytest.raises(SetupFailed, match="still missing after installation: promtool"):
        bootstrap.install_system((AWAY_TOO,))


def test_only_what_is_missing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: ["apt-get"])
    monkeypatch.setattr(bootstrap, "available", lambda package: package)
    monkeypatch.setattr(bootstrap, "run", lambda what, command, environment: commands.append(command))
    with pytest.raises(SetupFailed):
        bootstrap.install_system((HERE, AWAY_TOO))
    assert commands == [["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "prometheus"]]


def test_a_python_without_ensurepip_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "importable", lambda module: False)
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: None)
    with pytest.raises(SetupFailed, match=r"no ensurepip.*install the package python3\.\d+-venv"):
        bootstrap.require_ensurepip()


def test_the_demo_goes_on_without_java(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bootstrap, "JAVA", AWAY)
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: None)
    assert bootstrap.main(["java"]) == 0
    assert capfd.readouterr() == ("", "")


def test_the_benchmarks_go_on_without_haproxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, need in (("JAVA", HERE), ("MAVEN", HERE), ("HAPROXY", AWAY_TOO)):
        monkeypatch.setattr(bootstrap, name, need)
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: None)
    assert bootstrap.main(["proxies"]) == 0


def test_the_benchmarks_do_not_go_on_without_maven(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, need in (("JAVA", HERE), ("MAVEN", AWAY_TOO), ("HAPROXY", HERE)):
        monkeypatch.setattr(bootstrap, name, need)
    monkeypatch.setattr(bootstrap, "apt_prefix", lambda: None)
    assert bootstrap.main(["proxies"]) == 1
    assert capfd.readouterr().err.startswith("missing: promtool")


def test_a_command_that_fails_shows_the_end_of_its_output(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(bootstrap, "LOGS", tmp_path)
    with pytest.raises(SetupFailed, match="the reason\nwhat it was failed"):
        bootstrap.run("what it was", ["sh", "-c", "echo the reason; exit 3"])


def test_a_slow_command_shows_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "LOGS", tmp_path)
    monkeypatch.setattr(bootstrap, "PROGRESS_SECONDS", 0.05)
    bootstrap.run("fetching", ["sh", "-c", "echo half of it; sleep 0.5"])
    assert re.search(r"fetching: \d+ s, half of it", capfd.readouterr().out)
