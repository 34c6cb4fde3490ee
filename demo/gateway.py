"""Runs the sidecar of the demo: `group-sidecar run` in gateway mode, in a process of its own.

The module writes the sidecar's configuration, and starts and stops the process.
"""

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from group_sidecar.demo.group_clients import wait_for


def free_port() -> int:
    """Returns a TCP port of the loopback address that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Gateway:
    """A sidecar in front of the embedded cluster. As a context manager it starts and stops the process.

    Attributes:
        bootstrap: HOST:PORT for Kafka clients.
        admin: HOST:PORT of the admin port.
        journal: the folder of the journal.
        config: the configuration file.
        log: the file with the process's output.
    """

    def __init__(self, upstream: str, folder: Path, limit: int) -> None:
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.admin = f"127.0.0.1:{free_port()}"
        self.journal = folder / "journal"
        self.config = folder / "sidecar.yaml"
        self.log = folder / "sidecar.log"
        settings = {
            "listen": self.bootstrap,
            "upstream": upstream,
            "admin": self.admin,
            "mode": "gateway",
            "policies": {"group_max_size": {"limit": limit}},
            # All clients connect through the sidecar. The embedded cluster can neither describe groups nor ACLs.
            "answers": {"exclusive": True, "authorizer": "none"},
            "offsets_log": {"read": False},  # The embedded cluster has no __consumer_offsets.
            "journal": {"folder": str(self.journal), "interval_seconds": 1, "segment_seconds": 2},
            "metrics": {"detail": "partition"},
            "log": {"format": "json"},
        }
        self.config.write_text(yaml.safe_dump(settings, sort_keys=False))

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "group_sidecar.proxy.cli", "run", "--config", str(self.config)],
                stderr=log,
                stdout=log,
            )
        if not wait_for(lambda: self._ready() or self._process.poll() is not None, 15) or not self._ready():
            self.__exit__(None, None, None)
            raise RuntimeError(f"the sidecar did not become ready:\n{self.log.read_text()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def get(self, path: str) -> str:
        """Returns the body of a GET request to the admin port. Raises urllib.error.URLError."""
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=5) as reply:
            text: str = reply.read().decode()
            return text

    def sealed(self) -> list[Path]:
        """Returns the complete segments of the journal. The name of an incomplete segment starts with a dot."""
        return sorted(path for path in self.journal.glob("*.jsonl") if not path.name.startswith("."))

    def _ready(self) -> bool:
        try:
            return bool(self.get("/readyz"))
        except (urllib.error.URLError, OSError):
            return False
