"""Runs a Prometheus server with the rules of this project. The server scrapes the targets that a test names."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.kafka.processes import GIVE_UP_SECONDS, Address, ChildProcess, free_addresses, host_port

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"
_POLL_SECONDS = 0.2


class QueryFailed(Exception):
    """Prometheus rejected a query. The text contains the query's parameters and the reason."""


class Prometheus:
    """A Prometheus server that scrapes its targets and evaluates the rules every second. Use as a context manager.

    Args:
        folder: the folder for the server's configuration, data and log.
        targets: the addresses to scrape.
        labels: labels that all targets get.
    """

    def __init__(self, folder: Path, targets: Sequence[Address], labels: dict[str, str]) -> None:
        found = shutil.which("prometheus")
        assert found, "prometheus is not on PATH; the Debian package of that name has it"
        [self.address] = free_addresses(1)
        told = yaml.safe_load((RULES / "prometheus.yml").read_text())
        told["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        told["rule_files"] = [str(RULES / name) for name in told["rule_files"]]
        told["scrape_configs"][0]["static_configs"] = [
            {"targets": [host_port(target) for target in targets], "labels": labels}
        ]
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(told))
        self._process = ChildProcess(
            [
                found,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={host_port(self.address)}",
            ],
            folder / "prometheus.log",
        )

    def query(self, expression: str) -> list[Any]:
        """Runs an instant query and returns its result.

        Raises:
            QueryFailed: Prometheus rejected the query.
        """
        result: list[Any] = self._ask("query", {"query": expression})["result"]
        return result

    def values(self, label: str, selector: str) -> list[str]:
        """The values of a label in the series that a selector matches.

        Raises:
            QueryFailed: Prometheus rejected the query.
        """
        values: list[str] = self._ask(f"label/{label}/values", {"match[]": selector})
        return values

    def rules(self) -> list[dict[str, Any]]:
        """All rules with their current state, from Prometheus' rules API."""
        return [rule for group in self._ask("rules", {})["groups"] for rule in group["rules"]]

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Polls until the condition holds or `seconds` have passed. Returns whether the condition holds."""
        deadline = time.monotonic() + seconds
        while not (holds := condition()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return holds

    def _ask(self, page: str, parameters: dict[str, str]) -> Any:
        try:
            address = f"http://{host_port(self.address)}/api/v1/{page}?{urlencode(parameters)}"
            with urlopen(address, timeout=GIVE_UP_SECONDS) as reply:
                return json.load(reply)["data"]
        except HTTPError as error:
            with error:
                raise QueryFailed(f"{parameters}: {error.read().decode()}") from None

    def _ready(self) -> bool:
        try:
            with urlopen(f"http://{host_port(self.address)}/-/ready", timeout=GIVE_UP_SECONDS):
                return True
        except OSError:
            return False

    def __enter__(self) -> Self:
        self._process.start()
        try:
            self._process.wait_until(self._ready)
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()
