"""The Debian package: its content, its installation in Debian bookworm without systemd, and its removal."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from deploy.debian.__main__ import build
from deploy.debian.control import debian_version
from deploy.debian.tree import HOME, SITE_PACKAGES
from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from tests.deploy import base_system
from tests.deploy.booted_system import PACKAGES
from tests.kafka.processes import ChildProcess, free_addresses, host_port
from tests.kafka.wire import ask
from tests.proxy.scripted_broker import ScriptedBroker, listening

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAME, USER = "kafka-group-sidecar", "group-sidecar"
EXAMPLE, SETTINGS = "etc/group-sidecar/sidecar.example.yaml", "etc/group-sidecar/sidecar.yaml"
KEPT = ("proc", "var/lib/dpkg", "var/log", "var/cache", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow")
"""What dpkg and adduser keep for themselves. The files of users have backup copies, which end with `-`."""

pytestmark = pytest.mark.timeout(900)  # The first run on a machine downloads Debian's packages.


class Chroot:
    """A copy of the base system without systemd as process 1."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *command: str) -> str:
        """Runs a command as root and returns its output. Raises AssertionError if the command fails."""
        inside = base_system.inside(self.root, *command)
        done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def files(self) -> set[str]:
        """Returns the relative paths of all files and folders, except those in KEPT."""
        walked = os.walk(self.root)
        paths = (Path(folder, name) for folder, folders, files in walked for name in (*folders, *files))
        names = (str(path.relative_to(self.root)) for path in paths)
        return {name for name in names if not name.startswith(KEPT)}


def test_all_modules_are_compiled(debian_package: Path) -> None:
    """The package has a compiled module for each one that pyproject.toml lists. All files belong to root."""
    command = ["dpkg-deb", "--contents", str(debian_package)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    pattern = re.compile(rf" \./{SITE_PACKAGES}/group_sidecar/(\S+?)\.cpython-\S+\.so$")

    packed = {found[1] for line in lines if (found := pattern.search(line))}
    listed = {file.removesuffix(".py") for file in PROJECT["tool"]["group-sidecar"]["compiled"]}
    assert (listed | {"proxy/dataplane/fast_path"}) - packed == set()
    assert {line.split()[1] for line in lines} == {"root/root"}


@pytest.mark.long
def test_same_sources_give_same_package(debian_package: Path, tmp_path: Path) -> None:
    """A second build gives the same bytes."""
    assert build(tmp_path).read_bytes() == debian_package.read_bytes()


@pytest.mark.parametrize(
    ("python", "debian"), [("1.0", "1.0"), ("1.0rc1", "1.0~rc1"), ("1.0.dev2", "1.0~dev2"), ("1.0.post1", "1.0.post1")]
)
def test_pre_release_sorts_before_release(python: str, debian: str) -> None:
    """A pre-release gets a version that dpkg sorts before the release."""
    assert debian_version(python) == debian


@pytest.mark.skipif(base_system.unavailable() is not None, reason=str(base_system.unavailable()))
def test_life_without_systemd(debian_package: Path, tmp_path: Path) -> None:
    """The installed sidecar serves a broker. A removal keeps the settings, and a purge leaves nothing behind."""
    with base_system.writable_copy(tmp_path / "root", *PACKAGES) as root:
        chroot = Chroot(root)
        before = chroot.files()
        shutil.copyfile(debian_package, root / "package.deb")
        chroot.run("dpkg", "--install", "/package.deb")
        (root / "package.deb").unlink()
        installed_command_works(chroot)
        installed_sidecar_serves(chroot, tmp_path / "log")

        chroot.run("dpkg", "--remove", NAME)
        assert not (root / HOME).exists()
        assert (root / SETTINGS).exists()
        chroot.run("dpkg", "--purge", NAME)
        assert chroot.files() - before == set()


def installed_command_works(chroot: Chroot) -> None:
    """Asserts that the command starts, and that the service's user may read the example."""
    assert chroot.run("group-sidecar", "--version") == f"group-sidecar {PROJECT['project']['version']}\n"
    as_service = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
    assert chroot.run(*as_service, "group-sidecar", "check-config", f"/{EXAMPLE}") == f"/{EXAMPLE}: ok\n"
    assert chroot.run("dpkg", "--verify", NAME) == ""


def installed_sidecar_serves(chroot: Chroot, log: Path) -> None:
    """Runs the installed sidecar before a scripted broker and asserts that ApiVersions passes."""
    with listening(ScriptedBroker()) as [broker]:
        [address] = free_addresses(1)
        (chroot.root / SETTINGS).write_text(f"listen: {host_port(address)}\nupstream: {broker}\n")
        command = base_system.inside(chroot.root, "group-sidecar", "run", "--config", f"/{SETTINGS}")
        with ChildProcess(command, log) as sidecar:
            sidecar.wait_until(lambda: '"started"' in sidecar.tail())
            assert ask(address, ApiVersionsRequest(), 0).error_code == 0
