"""systemd accepts the unit, rates its sandbox, and runs it from the Debian package."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.proxy.config.limits_section import Limits
from tests.deploy import booted_system
from tests.deploy.booted_system import BootedSystem, booted
from tests.kafka.processes import Address, free_addresses, host_port
from tests.kafka.wire import ask
from tests.proxy.scripted_broker import ScriptedBroker, listening

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
SERVICE, SOCKET = "group-sidecar.service", "group-sidecar.socket"
EXPOSURE = 1.5
"""The upper bound of `systemd-analyze security`, from 0 (best) to 10. The rest is what the sidecar needs: the network,
and files in its state directory that its group can read."""
SETTINGS = "etc/group-sidecar/sidecar.yaml"
USR2 = ("systemctl", "kill", "--kill-who=main", "--signal=SIGUSR2", SERVICE)
ENDED = "the predecessor has ended"
"""The successor's log line at the end of a hand-over."""
RELOADED = "settings reloaded"
IO_URING = "from group_sidecar.proxy.dataplane.fast_path import Outbox; print(Outbox(True).batched)"

in_container = pytest.mark.skipif(booted_system.unavailable() is not None, reason=str(booted_system.unavailable()))
pytestmark = pytest.mark.timeout(900)  # The first run on a machine downloads Debian's packages.


def analyze(*arguments: str) -> str:
    """Runs systemd-analyze and returns its output. Asserts that it succeeds."""
    found = shutil.which("systemd-analyze")
    assert found, "systemd-analyze is not on PATH; the Debian package systemd has it"
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_units_have_no_fault(tmp_path: Path) -> None:
    """`systemd-analyze verify` reports nothing. The unit's programs are there as executable files."""
    folder = tmp_path / "usr/lib/systemd/system"
    shutil.copytree(UNITS, folder)
    for program in ("usr/bin/group-sidecar", "bin/sh"):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    for target in (
        "sysinit",
        "basic",
        "shutdown",
        "network-online",
        "multi-user",
        "sockets",
        "-.slice",
        "system.slice",
    ):
        name = target if target.endswith("slice") else f"{target}.target"
        (folder / name).write_text("[Unit]\n")

    assert analyze("verify", "--man=no", f"--root={tmp_path}", SERVICE, SOCKET) == ""


def test_sandbox_is_tight() -> None:
    """The exposure level is at most EXPOSURE, and its bound is not higher than necessary."""
    output = analyze("security", "--offline=yes", f"--threshold={EXPOSURE * 10:.0f}", str(UNITS / SERVICE))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", output)
    assert found
    assert EXPOSURE - 0.5 < float(found[1]) <= EXPOSURE


def test_unit_has_room_for_default_limits() -> None:
    """The unit allows the descriptors of all connections, and time for the drain and for the journal's topic."""
    unit = dict(re.findall(r"^(\w+)=(.*)$", (UNITS / SERVICE).read_text(), re.MULTILINE))
    limits = Limits()
    assert int(unit["LimitNOFILE"]) == 2 * limits.connections + 256
    assert int(unit["TimeoutStopSec"]) > limits.drain_seconds + 3


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """A scripted broker on this machine, whose network the container shares."""
    with listening(ScriptedBroker()) as [address]:
        yield str(address)


@pytest.fixture(scope="module")
def addresses() -> list[Address]:
    """Where the sidecar listens: two listeners, and the admin port."""
    return free_addresses(3)


@pytest.fixture(scope="module")
def machine(
    debian_package: Path, broker: str, addresses: list[Address], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BootedSystem]:
    """A system with the installed package, whose service runs. It did not run before there were settings."""
    first, second, admin = map(host_port, addresses)
    settings = {
        "listeners": [
            {"name": "CLIENT", "listen": first, "upstream": broker},
            {"name": "EXTERNAL", "listen": second, "upstream": broker},
        ],
        "admin": admin,
        "journal": {"folder": "/var/lib/group-sidecar/journal", "interval_seconds": 1},
        "limits": {"drain_seconds": 1},
        "offsets_log": {"read": False},  # The scripted broker has none, and a successor would wait a minute for it.
    }
    with booted(tmp_path_factory.mktemp("machine")) as system:
        shutil.copyfile(debian_package, system.root / "package.deb")
        system.run("apt-get", "install", "--yes", "--no-install-recommends", "/package.deb")
        assert (system.shows("ActiveState"), system.shows("ConditionResult")) == ("inactive", "no")
        (system.root / SETTINGS).write_text(yaml.safe_dump(settings))
        system.run("systemctl", "start", SERVICE)
        yield system


def asks(address: Address) -> None:
    """Asserts that ApiVersions passes the sidecar at an address."""
    assert ask(address, ApiVersionsRequest(), 0).error_code == 0


def hand_over(machine: BootedSystem, *command: str) -> None:
    """Runs a command that restarts the sidecar by SIGUSR2. Asserts that systemd then watches the successor."""
    old, restarts, ended = machine.shows("MainPID"), machine.shows("NRestarts"), machine.service_log().count(ENDED)
    machine.run(*command)
    machine.container.wait_until(lambda: machine.service_log().count(ENDED) > ended)
    assert machine.shows("MainPID") != old
    assert (machine.shows("ActiveState"), machine.shows("NRestarts")) == ("active", restarts)


@in_container
def test_service_serves_in_sandbox(machine: BootedSystem, addresses: list[Address]) -> None:
    """Requests pass both listeners. The process has no privileges, and its sandbox permits io_uring and the journal."""
    for address in addresses[:2]:
        asks(address)
    status = machine.run("cat", f"/proc/{machine.shows('MainPID')}/status")
    assert re.search(r"^CapBnd:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    allowed = machine.run("/usr/lib/kafka-group-sidecar/bin/python", "-c", IO_URING) == "True"
    small_frames = "compiled, sent together" if allowed else "compiled, sent one by one"
    assert f'"small_frames": "{small_frames}"' in machine.service_log()
    journal = machine.root / "var/lib/group-sidecar/journal"
    machine.container.wait_until(lambda: journal.is_dir() and any(journal.iterdir()))


@in_container
def test_reload(machine: BootedSystem) -> None:
    """`systemctl reload` makes the sidecar read its settings again."""
    before = machine.service_log().count(RELOADED)
    machine.run("systemctl", "reload", SERVICE)
    machine.container.wait_until(lambda: machine.service_log().count(RELOADED) > before)


@in_container
def test_restart_by_signal(machine: BootedSystem, addresses: list[Address]) -> None:
    """After SIGUSR2, systemd watches the successor, and the unit was active throughout."""
    hand_over(machine, *USR2)
    asks(addresses[0])


@in_container
def test_upgrade_hands_over(machine: BootedSystem, addresses: list[Address]) -> None:
    """An installation over a running sidecar hands the ports over to the new version."""
    hand_over(machine, "dpkg", "--install", "/package.deb")
    asks(addresses[0])


@in_container
def test_crash_and_wrong_settings(machine: BootedSystem, addresses: list[Address]) -> None:
    """systemd restarts a successor that was killed. It does not restart a sidecar whose settings have a fault."""
    hand_over(machine, *USR2)
    restarts = int(machine.shows("NRestarts"))
    machine.run("systemctl", "kill", "--kill-who=main", "--signal=SIGKILL", SERVICE)
    machine.container.wait_until(lambda: int(machine.shows("NRestarts")) > restarts)
    machine.container.wait_until(lambda: machine.shows("ActiveState") == "active")
    asks(addresses[0])

    file = machine.root / SETTINGS
    right = file.read_text()
    file.write_text("listen: nowhere\n")
    machine.run("systemctl", "restart", SERVICE, check=False)
    assert (machine.shows("ActiveState"), machine.shows("ExecMainStatus")) == ("failed", "2")
    file.write_text(right)
    machine.run("systemctl", "reset-failed", SERVICE)
    machine.run("systemctl", "start", SERVICE)
    asks(addresses[0])


@in_container
def test_sockets_outlive_restart(machine: BootedSystem, addresses: list[Address]) -> None:
    """With the socket unit, a client that connects while the sidecar is down is served when it is up again."""
    unit = (UNITS / SOCKET).read_text()
    for old, new in zip(re.findall(r"(?m)^ListenStream=(.*)$", unit), addresses, strict=True):
        unit = unit.replace(old, host_port(new))
    file = machine.root / "etc/systemd/system" / SOCKET
    file.write_text(unit)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "stop", SERVICE)
    machine.run("systemctl", "start", SOCKET)
    try:
        for address in addresses[:2]:
            asks(address)  # systemd starts the service.
        assert "a passed socket is not used" not in machine.service_log()
        machine.run("systemctl", "stop", SERVICE)
        asks(addresses[0])
    finally:
        machine.run("systemctl", "stop", SOCKET, SERVICE)
        file.unlink()
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", SERVICE)
