"""Provides a small Debian bookworm, in which tests install and run packages. debootstrap makes it once, for the cache.

If this machine cannot make the system, `unavailable()` returns the reason, and the test skips. Otherwise::

    with writable_copy(tmp_path / "root") as root:
        subprocess.run(inside(root, "apt-get", "update"), check=True)

`python -m tests.deploy.base_system [PACKAGE ...]` fills the cache in advance.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.kafka.maven import cache_folder

RELEASE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
"""The archive that is used if the machine's own settings name no archive of this release."""
_PROGRESS_SECONDS = 4.0
_LOG_TAIL_LINES = 15


class BaseSystemUnavailable(Exception):
    """debootstrap failed. The text contains the end of its output."""


def unavailable() -> str | None:
    """Returns the reason why this machine cannot make or run a base system, or None if it can."""
    if os.geteuid() != 0:
        return "a Debian base system is made and entered by root only"
    missing = [command for command in ("debootstrap", "unshare", "tar") if _found(command) is None]
    if missing:
        return f"missing: {', '.join(missing)}; `make system` installs debootstrap"
    return None if _may_mount() else "this machine permits no mounts in a mount namespace, not even to root"


@cache
def _may_mount() -> bool:
    """Whether this process may mount a file system. Processes in containers without privileges may not."""
    mounting = ["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(mounting, capture_output=True, check=False).returncode == 0


def base_system(*packages: str) -> Path:
    """Returns a tar file of a minimal Debian bookworm that also has these packages. Makes it if the cache has none.

    The first call takes one to two minutes. Several processes may make the same file at once. Each process has a folder
    of its own, and the file that is renamed first is kept.

    Raises:
        BaseSystemUnavailable: debootstrap failed, for example because no Debian archive could be reached.
    """
    named = hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:12]
    target = cache_folder() / "debian" / f"{RELEASE}-{named}.tar"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{RELEASE}-") as scratch:
        tree, packed = Path(scratch) / "root", Path(scratch) / "root.tar"
        tree.mkdir()
        _debootstrap(tree, packed, packages, Path(scratch) / "log")
        packed.chmod(0o444)
        packed.rename(target)
    return target


@contextmanager
def writable_copy(into: Path, *packages: str) -> Iterator[Path]:
    """Unpacks the base system into a folder, yields the folder, and removes it at the end. Takes about a second.

    The copy has the machine's name servers, certificate authorities and apt proxies, so that apt-get reaches the same
    archives inside the copy as outside.
    """
    archive = base_system(*packages)
    into.mkdir(parents=True)
    try:
        subprocess.run(["tar", "--numeric-owner", "-C", str(into), "-xpf", str(archive)], check=True)
        _connect_to_network(into)
        yield into
    finally:
        shutil.rmtree(into)


def inside(root: Path, *command: str) -> list[str]:
    """Returns a command that runs `command` in a root folder, with a separate /proc and separate process ids.

    When the returned command has ended or was killed, no mount and no process is left.
    """
    entered = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--root={root}", "--wd=/", "--mount-proc"]
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return [*entered, "/usr/bin/env", path, "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", *command]


def _found(command: str) -> str | None:
    """Returns the path of a command. Debian has debootstrap in /usr/sbin, which may not be on the path."""
    return shutil.which(command) or shutil.which(command, path="/usr/sbin:/sbin")


_IN_MEMORY = """
tree=$1 packed=$2
shift 2
mount -t tmpfs -o mode=755 tmpfs "$tree"
"$@"
rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/*
tar --numeric-owner -C "$tree" -cf "$packed" .
"""
"""Runs debootstrap in a file system in memory, because dpkg waits for the disk after every file that it unpacks. Then
removes the files that apt-get can fetch again, and packs the rest. The mount ends with the shell."""


def _debootstrap(tree: Path, packed: Path, packages: tuple[str, ...], log: Path) -> None:
    """Makes a base system in the empty folder `tree`, and packs it into a tar file. Raises BaseSystemUnavailable."""
    command = ["unshare", "--mount", "sh", "-euc", _IN_MEMORY, "sh", str(tree), str(packed)]
    command += [str(_found("debootstrap")), "--variant=minbase"]
    command += [f"--include={','.join(packages)}"] if packages else []
    command += [RELEASE, str(tree), _mirror()]
    started = time.monotonic()
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            while process.poll() is None:
                try:
                    process.wait(_PROGRESS_SECONDS)
                except subprocess.TimeoutExpired:
                    sys.stderr.write(f"Debian {RELEASE}: {time.monotonic() - started:.0f} s\n")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
        raise BaseSystemUnavailable(f"debootstrap ended with status {process.returncode}:\n{tail}")


def _mirror() -> str:
    """Returns the archive of this release that apt uses on this machine, or Debian's own."""
    if shutil.which("apt-get") is None:
        return MIRROR
    line = "$(ORIGIN) $(CODENAME) $(REPO_URI)"
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", line], capture_output=True, text=True, check=False
    ).stdout
    return next((each.split()[2] for each in targets.splitlines() if each.startswith(f"Debian {RELEASE} ")), MIRROR)


def _connect_to_network(root: Path) -> None:
    """Gives a copy the machine's name servers, certificate authorities and apt proxies."""
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    authorities = Path("/etc/ssl/certs/ca-certificates.crt")
    if authorities.is_file():
        copied = root / authorities.relative_to("/")
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(authorities, copied)
    if shutil.which("apt-config"):
        settings = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
        proxies = [
            line for line in settings.splitlines() if line.startswith("Acquire::http") and "proxy" in line.lower()
        ]
        (root / "etc/apt/apt.conf.d/90proxies").write_text("".join(f"{line}\n" for line in proxies))


if __name__ == "__main__":
    sys.stdout.write(f"{base_system(*sys.argv[1:])}\n")
