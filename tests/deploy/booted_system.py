"""A Debian system in which systemd runs as process 1, in a container of systemd-nspawn with this machine's network."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.deploy import base_system
from tests.kafka.processes import GIVE_UP_SECONDS, ChildProcess

PACKAGES = ("adduser", "ca-certificates", "dbus", "python3", "systemd", "systemd-sysv")
"""The packages of the system: those that the sidecar's package depends on, and systemd."""
HALT = signal.SIGRTMIN + 4
"""systemd as process 1 powers off at this signal."""
_ENVIRONMENT = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")

_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")
"""Where the hierarchy of systemd may be, in versions 1 and 2 of cgroups."""
_IN_OWN_CGROUP = f"""
for hierarchy in {" ".join(_CGROUPS)}; do
    if [ -e $hierarchy/cgroup.procs ] && mkdir $hierarchy/group-sidecar-$$; then
        echo $$ > $hierarchy/group-sidecar-$$/cgroup.procs
    fi
done
exec "$0" "$@"
"""
"""Runs a command in cgroups of its own. Two containers in the same cgroup would end each other's processes."""


def unavailable() -> str | None:
    """Returns the reason why this machine cannot boot such a system, or None if it can."""
    if reason := base_system.unavailable():
        return reason
    missing = [command for command in ("systemd-nspawn", "nsenter") if shutil.which(command) is None]
    if missing:
        return f"missing: {', '.join(missing)}; `make system` installs systemd-container"
    failure = _failure_of_nspawn()
    return f"systemd-nspawn cannot run containers on this machine: {failure}" if failure else None


@cache
def _failure_of_nspawn() -> str:
    """Runs `true` in a container with this machine's /usr. Returns the error output if that fails."""
    flags = ("--quiet", "--register=no", "--keep-unit", "--volatile=yes", "--directory=/", "--console=pipe")
    command = ["sh", "-c", _IN_OWN_CGROUP, "systemd-nspawn", *flags, "/usr/bin/true"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as probe:
        errors = probe.communicate(timeout=GIVE_UP_SECONDS)[1]
    _remove_cgroups(probe.pid)
    return errors.strip() or f"status {probe.returncode}" if probe.returncode else ""


class BootedSystem:
    """A running system. `root`: its files."""

    def __init__(self, root: Path, container: ChildProcess) -> None:
        self.root = root
        self.container = container

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a command as root in the system. Returns its output, without the last line break.

        Raises:
            AssertionError: the command failed, unless `check` is False.
        """
        entered = ["nsenter", f"--target={self.leader()}", "--mount", "--uts", "--ipc", "--pid", "--cgroup"]
        done = subprocess.run(
            [*entered, *_ENVIRONMENT, *command], capture_output=True, text=True, check=False, timeout=GIVE_UP_SECONDS
        )
        assert done.returncode == 0 or not check, f"{command}: {done.stdout}{done.stderr}{self.service_log()}"
        return done.stdout.rstrip("\n")

    def shows(self, name: str, unit: str = "group-sidecar.service") -> str:
        """Returns a property of a unit."""
        return self.run("systemctl", "show", f"--property={name}", "--value", unit)

    def service_log(self) -> str:
        """Returns what the journal has of the sidecar's unit."""
        command = ("journalctl", "--no-pager", "--output=cat", "--unit=group-sidecar.service")
        return self.run(*command, check=False)

    def leader(self) -> int | None:
        """Returns the process id of the system's process 1, or None before systemd-nspawn has started it."""
        tasks = Path(f"/proc/{self.container.running.pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        return next((pid for pid in children if _is_systemd(pid)), None)

    def is_up(self) -> bool:
        """Whether systemd has started everything that belongs to the system's start."""
        if self.leader() is None:
            return False
        return self.run("systemctl", "is-system-running", check=False) in ("running", "degraded")


def _remove_cgroups(pid: int) -> None:
    for hierarchy in _CGROUPS:
        for folder, _, _ in os.walk(f"{hierarchy}/group-sidecar-{pid}", topdown=False):
            Path(folder).rmdir()


def _is_systemd(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() == "systemd"


@contextmanager
def booted(folder: Path) -> Iterator[BootedSystem]:
    """Unpacks a base system below a folder, boots it, and powers it off at the end."""
    with base_system.writable_copy(folder / "system", *PACKAGES) as root:
        flags = ("--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe")
        nspawn = ("systemd-nspawn", *flags, f"--directory={root}")
        container = ChildProcess(["sh", "-c", _IN_OWN_CGROUP, *nspawn], folder / "console.log")
        container.start()
        system = BootedSystem(root, container)
        try:
            container.wait_until(system.is_up)
            yield system
        finally:
            leader = system.leader() if container.running.poll() is None else None
            if leader is not None:
                subprocess.run(["kill", f"-{HALT}", str(leader)], check=False)
                try:
                    container.running.wait(GIVE_UP_SECONDS)
                except subprocess.TimeoutExpired:
                    subprocess.run(["kill", "-KILL", str(leader)], check=False)  # All its processes end with it.
            container.stop()
            _remove_cgroups(container.running.pid)
