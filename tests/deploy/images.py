"""Builds the images of the Dockerfile with buildah, and runs them with crun. No daemon is needed.

Images and their layers are kept in the cache folder, so a build repeats only the steps whose input has changed. Where
the Dockerfile's base image cannot be pulled, a stand-in is made of Debian's packages of the same release: it has Python
and pip in /usr/local, as the base image has.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.as_python import ROOT
from tests.deploy import base_system
from tests.kafka.maven import cache_folder

NEEDED = ("buildah", "crun")
PULL_SECONDS = 60
_LOG_TAIL_LINES = 40
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
STAND_IN_PACKAGES = ("ca-certificates", "python3", "python3-dev", "python3-venv")
STAGES = {"sidecar": ("packages", "build"), "spark": ("packages-spark", "build")}
"""The stages that a final image copies from. Each has a name, so that its layers are kept for the next build."""
_STAND_IN = "localhost/stand-in-for-"
_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
"""The settings of pip on this machine that a build needs to reach the same package index."""


class BuildFailed(Exception):
    """A step of a build failed. The text contains the end of its output."""


def unavailable() -> str | None:
    """Returns the reason why this machine cannot build and run images, or None if it can."""
    if reason := base_system.unavailable():
        return reason
    missing = [command for command in NEEDED if shutil.which(command) is None]
    return f"missing: {', '.join(missing)}; `make system` installs them" if missing else None


def default_base() -> str:
    """Returns the base image that the Dockerfile names."""
    [base] = re.findall(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return str(base)


@cache
def base_image() -> str:
    """Returns the name of the base image, or of its stand-in if the base image cannot be pulled."""
    base = default_base()
    for name in (base, _STAND_IN + base):
        if _buildah("inspect", "--type", "image", name, check=False).returncode == 0:
            return name
    full = base if base.count("/") else f"docker.io/library/{base}"
    try:
        if _buildah("pull", "--quiet", full, check=False, timeout=PULL_SECONDS).returncode == 0:
            return full
    except subprocess.TimeoutExpired:
        pass
    return _make_stand_in(_STAND_IN + base)


def _make_stand_in(name: str) -> str:
    container = _buildah("from", "scratch").stdout.strip()
    try:
        _buildah("add", "--quiet", container, str(base_system.base_system(*STAND_IN_PACKAGES)), "/")
        _buildah("run", "--isolation", "chroot", container, "python3", "-m", "venv", "/usr/local")
        path = "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
        _buildah("config", "--env", path, "--env", "LANG=C.UTF-8", container)
        _buildah("commit", "--quiet", "--format", "docker", container, name)
    finally:
        _buildah("rm", container)
    return name


def build(target: str, arguments: Mapping[str, str] | None = None, dockerfile: str | None = None) -> str:
    """Builds a final image of the Dockerfile, and returns its id. `arguments`: build arguments.

    Only one process builds at a time. `dockerfile` is a text that replaces the Dockerfile's.

    Raises:
        BuildFailed: a step failed.
    """
    named = {"BASE": base_image(), **(arguments or {})}
    command = ["build", "--layers", "--isolation", "chroot", "--format", "docker", "--pull=false"]
    command += [part for name, value in named.items() for part in ("--build-arg", f"{name}={value}")]
    command += [part for volume in _host_settings() for part in ("--volume", volume)]
    with (_folder() / "lock").open("w") as lock, tempfile.NamedTemporaryFile("w", suffix=".Dockerfile") as file:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file.write((ROOT / "Dockerfile").read_text() if dockerfile is None else dockerfile)
        file.flush()
        for stage in (*STAGES[target], target):
            named_so = ["--target", stage, "--tag", f"localhost/group-sidecar-test-{stage}"]
            done = _buildah(*command, *named_so, "--file", file.name, str(ROOT), check=False)
            if done.returncode:
                raise BuildFailed("\n".join((done.stdout + done.stderr).splitlines()[-_LOG_TAIL_LINES:]))
        _buildah("rmi", "--prune", check=False)  # Images of earlier builds, which lost their name to these.
    return done.stdout.split()[-1]


def inspected(image: str) -> dict[str, Any]:
    """Returns the configuration of an image, as `docker inspect` shows it under Config."""
    found: dict[str, Any] = json.loads(_buildah("inspect", "--type", "image", image).stdout)["Docker"]["config"]
    return found


@contextmanager
def root_of(image: str) -> Iterator[Path]:
    """Mounts a new container of an image, and yields its root folder. Removes the container at the end."""
    container = _buildah("from", image).stdout.strip()
    try:
        yield Path(_buildah("mount", container).stdout.strip())
    finally:
        _buildah("rm", container)


class Container:
    """The bundle of a container for crun: a read-only root, the network of this machine, and no capabilities.

    Args:
        folder: an empty folder for the bundle.
        image: the id of the image, whose user, environment and entry point apply.
        root: the root folder of the image, as `root_of` yields it.
        settings: the folder that the container sees as /etc/group-sidecar, read-only.
        data: the folder that the container sees as /var/lib/group-sidecar. It may write there, and nowhere else.
        command: replaces the image's CMD.
        entrypoint: replaces the image's ENTRYPOINT.
        more: further mounts, as the OCI Runtime Specification describes them.
    """

    def __init__(
        self,
        folder: Path,
        image: str,
        root: Path,
        *,
        settings: Path,
        data: Path,
        command: Sequence[str] | None = None,
        entrypoint: Sequence[str] | None = None,
        more: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.image = image
        config = inspected(image)
        self.name = f"group-sidecar-test-{secrets.token_hex(6)}"
        self._bundle, self._state = folder, folder / "state"
        for path in (folder, settings, data):
            path.mkdir(parents=True, exist_ok=True)
        os.chown(data, *_user(config))
        arguments = [
            *(config["Entrypoint"] if entrypoint is None else entrypoint),
            *((config.get("Cmd") or []) if command is None else command),
        ]
        mounts = [_bind(settings, "/etc/group-sidecar", "ro"), _bind(data, "/var/lib/group-sidecar", "rw"), *more]
        (folder / "config.json").write_text(json.dumps(_bundle(config, root, mounts, arguments)))

    @property
    def run(self) -> list[str]:
        """The command that runs the container until it ends. Passes signals on, and ends with its exit status."""
        return [*self._crun(), "run", "--bundle", str(self._bundle), self.name]

    @property
    def process_id(self) -> int:
        """The id that this machine gives to the first process of the running container."""
        shown = subprocess.run([*self._crun(), "state", self.name], capture_output=True, text=True, check=True).stdout
        return int(json.loads(shown)["pid"])

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the running container, with the user and the environment of the image."""
        return subprocess.run(
            [*self._crun(), "exec", self.name, *command], capture_output=True, text=True, check=False, timeout=60
        )

    def _crun(self) -> list[str]:
        """Returns the command of crun, without the machine's cgroups: crun refuses some arrangements of them."""
        hidden = 'mount -t tmpfs tmpfs /sys/fs/cgroup && exec "$@"'
        alone = ["unshare", "--mount", "sh", "-c", hidden, "sh"]
        return [*alone, "crun", "--root", str(self._state), "--cgroup-manager=disabled"]


def _user(config: dict[str, Any]) -> tuple[int, int]:
    """Returns the user and the group of an image, which must be numbers: Kubernetes' runAsNonRoot needs them so."""
    uid, gid = map(int, config["User"].split(":"))
    return uid, gid


def _bind(folder: Path, place: str, option: str) -> dict[str, Any]:
    return {"destination": place, "type": "bind", "source": str(folder), "options": ["bind", option]}


def _bundle(
    config: dict[str, Any], root: Path, mounts: Sequence[dict[str, Any]], arguments: Sequence[str]
) -> dict[str, Any]:
    """Returns the configuration of a bundle (OCI Runtime Specification 1.0)."""
    uid, gid = _user(config)
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": uid, "gid": gid},
            "args": list(arguments),
            "env": config["Env"],
            "cwd": config["WorkingDir"],
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            _bind(Path("/etc/hosts"), "/etc/hosts", "ro"),
            *mounts,
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
    }


def _host_settings() -> list[str]:
    """Returns the volumes with which a build reaches the package index that pip reaches on this machine."""
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    found = dict(re.findall(r"^[^.]+\.([a-z-]+)='(.*)'$", shown, re.MULTILINE))
    lines = ["[global]", *(f"{key} = {found[key]}" for key in _PIP_KEYS if key in found)]
    volumes = []
    authorities = Path(found.get("cert", AUTHORITIES))
    if authorities.is_file():
        lines.append(f"cert = {AUTHORITIES}")
        volumes.append(f"{authorities}:{AUTHORITIES}:ro")
    file = _folder() / "pip.conf"
    file.write_text("".join(f"{line}\n" for line in lines))
    return [*volumes, f"{file}:/etc/pip.conf:ro"]


def _folder() -> Path:
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _buildah(*arguments: str, check: bool = True, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    storage = ["--root", str(_folder() / "storage"), "--runroot", str(_folder() / "run")]
    command = ["buildah", *storage, "--storage-driver", _driver(), *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, "TMPDIR": str(_folder())},
    )
    if check and done.returncode:
        raise BuildFailed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done


@cache
def _driver() -> str:
    """Returns `overlay` if the cache folder's file system can be the upper layer of an overlay, and else `vfs`."""
    folders = [_folder() / "probe" / name for name in ("lower", "upper", "work", "merged")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    lower, upper, work, merged = folders
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, str(merged)]
    return "overlay" if subprocess.run(mount, capture_output=True, check=False).returncode == 0 else "vfs"
