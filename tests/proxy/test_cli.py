"""The command line, run as its users run it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse
from group_sidecar.proxy import cli
from group_sidecar.proxy.listeners.ports import listen, port_of
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.proxy.fakes import ANY_PORT
from tests.proxy.scripted_broker import ScriptedBroker
from tests.proxy.scripted_broker import listening as serving

COMMAND = (sys.executable, "-m", "group_sidecar.proxy.cli")


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Runs the command in this process. Returns its exit status."""
    monkeypatch.setattr(sys, "argv", [cli.PROGRAM, *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_version_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The flag --version prints the program's name and version."""
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("group-sidecar 0.")


def test_help_names_all_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The help text names the commands run, check-config, groups and healthcheck."""
    assert call(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    assert all(f" {command} " in shown for command in ("run", "check-config", "groups", "healthcheck"))


HEAVY = ("trio", "httpx", "construct", "h11", "group_sidecar.codecs.api_registry")


@pytest.mark.parametrize("arguments", [["--help"], ["groups", "--help"], ["groups", "top", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """The help text is printed without the import of trio, httpx, construct, h11 or the codecs."""
    program = f"""
import sys
from group_sidecar.proxy import cli
sys.argv = {[cli.PROGRAM, *arguments]!r}
try:
    cli.main()
finally:
    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=True
    )
    assert "Usage" in done.stdout
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("shell", "line"), [("bash", "complete -o default -F"), ("zsh", "#compdef group-sidecar"), ("fish", "complete ")]
)
def test_completion_script_for_each_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str, line: str
) -> None:
    """The program prints a completion script for bash, zsh and fish."""
    monkeypatch.setenv("_GROUP_SIDECAR_COMPLETE", f"source_{shell}")
    assert call(monkeypatch) == 0
    assert line in capsys.readouterr().out


def test_interrupt_prints_no_traceback() -> None:
    """An interrupted groups command prints nothing and exits with status 130."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for flag in ("--sidecar", "--bootstrap"):
            command = [*COMMAND, "groups", "list", flag, address]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                connection, _ = silent.accept()
                with connection:
                    assert connection.recv(1)
                    process.send_signal(signal.SIGINT)
                    assert process.communicate(timeout=GIVE_UP_SECONDS) == ("", "")
            assert process.returncode == 130


def test_groups_help_lists_subcommands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The help text of groups lists its subcommands."""
    assert call(monkeypatch, "groups", "--help") == 0
    assert "describe" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "--listn", "a:1"], "No such option: --listn"),
        (["walk"], "No such command 'walk'."),
        (["run", "--mode", "proxy"], "Invalid value for '--mode'"),
        (["run", "--group-max-size", "many"], "Invalid value for '--group-max-size'"),
        (["run", "--listen", "a:1", "--upstream", "b"], "flags: upstream: must be HOST:PORT, for instance"),
        (["run", "--listen", "a:1"], "upstream: is required"),
        (["run", "--listen", "a:1", "--upstream", "b:1", "--group-max-size", "0"], "must be at least 1"),
        (["run", "--config", "absent.yaml"], "absent.yaml: no such file or directory"),
        (["check-config"], "Missing argument 'FILE'."),
    ],
)
def test_bad_usage_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    line: str,
) -> None:
    """An invalid command line prints one line on standard error and exits with status 2."""
    assert call(monkeypatch, *arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    [only] = shown.err.splitlines()
    assert only.startswith("group-sidecar: ")
    assert line in only


def test_no_arguments_print_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without arguments, the program prints its help and exits with status 2."""
    assert call(monkeypatch) == 2
    shown = capsys.readouterr()
    assert "check-config" in shown.out
    assert shown.err == ""


def test_check_config_accepts_valid_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The command check-config prints ok for a valid file and exits with status 0."""
    file = tmp_path / "sidecar.yaml"
    file.write_text("{listen: '0.0.0.0:9092', upstream: 'broker:9092'}")
    assert call(monkeypatch, "check-config", str(file)) == 0
    assert capsys.readouterr().out == f"{file}: ok\n"


def test_check_config_prints_each_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The command check-config prints one line for each fault and exits with status 2."""
    file = tmp_path / "sidecar.yaml"
    file.write_text("{listen: '0.0.0.0:9092', policies: {group_max_size: {limit: 0}}}")
    assert call(monkeypatch, "check-config", str(file)) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"group-sidecar: {file}: upstream: is required",
        f"group-sidecar: {file}: policies.group_max_size.limit: must be at least 1",
    ]


def test_check_config_separates_faults_and_warnings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The command check-config prints warnings and faults of files on standard error. Only faults change the status."""
    file, token = tmp_path / "sidecar.yaml", tmp_path / "token"
    file.write_text(
        f"{{listen: '127.0.0.1:0', upstream: '127.0.0.1:1', admin: '0.0.0.0:0', admin_access: {{token_file: {token}}}}}"
    )
    warned = "warning: admin_access.token_file: crosses the network unencrypted, without a certificate_file"
    absent = f"group-sidecar: admin_access.token_file: {token} cannot be used: no such file or directory"
    assert call(monkeypatch, "check-config", str(file)) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()) == ("", [warned, absent])
    token.write_text("of-the-admin")
    token.chmod(0o600)
    assert call(monkeypatch, "check-config", str(file)) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()) == (f"{file}: ok\n", [warned])


def test_check_config_connects(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With --connect, the command prints a line for each connection, and `ok` or status 1 in the end."""
    file = tmp_path / "sidecar.yaml"
    broker = ScriptedBroker({MetadataRequest: MetadataResponse(brokers=(), topics=())})
    with serving(broker) as [address]:
        file.write_text(f"{{listen: '127.0.0.1:0', upstream: '{address}', offsets_log: {{read: false}}}}")
        assert call(monkeypatch, "check-config", str(file), "--connect") == 0
        answered = f"{address} answers (Kafka ApiVersions 0-5)"
        shown = capsys.readouterr()
        lines = ["listen: the sidecar can listen on 127.0.0.1:0"]
        lines += [f"upstream: {answered}", f"own_connection: {answered}", f"{file}: ok"]
        assert (shown.out.splitlines(), shown.err) == (lines, "")
        file.write_text(f"{{listen: '127.0.0.1:0', upstream: '{address}', own_connection: {{address: '127.0.0.1:1'}}}}")
        assert call(monkeypatch, "check-config", str(file), "--connect") == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines() == lines[:2]
    assert shown.err == "group-sidecar: own_connection: 127.0.0.1:1 cannot be reached: Connection refused\n"


@pytest.mark.parametrize("flag", ["--listen", "--admin"])
def test_address_in_use_prints_one_line(flag: str) -> None:
    """If an address is in use, run prints one line with that address and exits with status 2."""
    [taken] = listen(ANY_PORT)
    with taken:
        address = f"127.0.0.1:{port_of([taken])}"
        addresses = {"--listen": "127.0.0.1:0", "--upstream": "127.0.0.1:1", flag: address}
        flags = [part for pair in addresses.items() for part in pair]
        ended = subprocess.run(
            [*COMMAND, "run", *flags], capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False
        )
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert line.startswith("group-sidecar: cannot listen on ")
    assert address in line
    assert line.lower().endswith("address already in use")


@contextmanager
def running(*flags: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a sidecar without a reachable broker, and waits until it has started."""
    with subprocess.Popen(
        [*COMMAND, "run", "--log-format", "json", *flags], stderr=subprocess.PIPE, text=True
    ) as process:
        given_up = Timer(30, process.kill)
        given_up.start()
        try:
            assert logged(process)["event"] == "started"
            yield process
            assert process.poll() is None
        finally:
            given_up.cancel()
            process.kill()


def logged(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Returns the next log line about a start, a stop or a reload."""
    assert process.stderr is not None
    while True:
        line: dict[str, Any] = json.loads(process.stderr.readline())
        if "reload" in line["event"] or line["event"] in ("started", "stopped"):
            return line


def test_unused_variable_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that looks like a setting is logged before the sidecar has started."""
    monkeypatch.setenv("GROUP_SIDECAR_LIMITS_CONNECTIONS", "5")
    command = (*COMMAND, "run", "--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1", "--log-format", "json")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = json.loads(process.stderr.readline())
        process.terminate()
    assert (line["level"], line["variable"]) == ("warning", "GROUP_SIDECAR_LIMITS_CONNECTIONS")
    assert line["reason"] == "is not used; did you mean GROUP_SIDECAR__LIMITS__CONNECTIONS?"


def test_sighup_without_file_logs_warning() -> None:
    """SIGHUP without --config logs a warning, and the sidecar keeps running."""
    with running("--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1") as process:
        os.kill(process.pid, signal.SIGHUP)
        line = logged(process)
        assert (line["level"], line["event"]) == ("warning", "settings not reloaded")
        assert "without --config" in line["cause"]


def test_sighup_reloads_file_below_flags(tmp_path: Path) -> None:
    """SIGHUP reloads the file, whose values do not override flags. An invalid file leaves the old settings in force."""
    file = tmp_path / "sidecar.yaml"
    rest = "listen: '127.0.0.1:0', upstream: '127.0.0.1:1'"
    file.write_text(f"{{{rest}, policies: {{group_max_size: {{limit: 5}}}}}}")
    with running("--config", str(file), "--group-max-size", "7") as process:
        file.write_text(
            f"{{{rest}, policies: {{group_max_size: {{limit: 6, overrides: [{{pattern: 'a.*', limit: 2}}]}}}}}}"
        )
        os.kill(process.pid, signal.SIGHUP)
        line = logged(process)
        assert (line["level"], line["event"]) == ("info", "settings reloaded")
        assert line["changed"] == [
            'policies.group_max_size.overrides.0.pattern: unset -> "a.*"',
            "policies.group_max_size.overrides.0.limit: unset -> 2",
        ]
        file.write_text("{listen: 5, polices: {}}")
        os.kill(process.pid, signal.SIGHUP)
        line = logged(process)
        assert (line["level"], line["event"]) == ("error", "settings not reloaded, the old ones stay in force")
        assert line["faults"] == [
            f"{file}: listen: must be HOST:PORT, for instance 127.0.0.1:9092",
            f"{file}: upstream: is required",
            f"{file}: polices: unknown key; did you mean policies?",
        ]


def test_sighup_refuses_fifo(tmp_path: Path) -> None:
    """A FIFO in place of the file fails its reload, and does not block the next reload."""
    file = tmp_path / "sidecar.yaml"
    text = "{listen: '127.0.0.1:0', upstream: '127.0.0.1:1', policies: {group_max_size: {limit: 5}}}"
    file.write_text(text)
    with running("--config", str(file)) as process:
        file.unlink()
        os.mkfifo(file)
        os.kill(process.pid, signal.SIGHUP)
        line = logged(process)
        assert line["faults"] == [f"{file}: is not a regular file, so it cannot be read again"]
        file.unlink()
        file.write_text(text.replace("5", "6"))
        os.kill(process.pid, signal.SIGHUP)
        assert logged(process)["changed"] == ["policies.group_max_size.limit: 5 -> 6"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_the_sidecar(number: signal.Signals) -> None:
    """A sidecar accepts clients until SIGTERM or SIGINT and then exits with status 0."""
    flags = ["--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1", "--log-format", "console"]
    with subprocess.Popen([*COMMAND, "run", *flags], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            started = process.stderr.readline()
            assert "started" in started
            [listening] = [word for word in started.split() if word.startswith("listen=")]
            with socket.create_connection(
                ("127.0.0.1", int(listening.rpartition(":")[2])), timeout=GIVE_UP_SECONDS
            ) as client:
                assert client.recv(1) == b""  # Its broker is unreachable.
            os.kill(process.pid, number)
            assert process.wait(timeout=GIVE_UP_SECONDS) == 0
            assert "stopped" in process.stderr.read().splitlines()[-1]
        finally:
            process.kill()
