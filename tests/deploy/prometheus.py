"""A Prometheus of its own, with the rules of this project, before whatever it is told to scrape.

Owns: starting it and asking its API. Must not know: what is scraped.
"""

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
    """Prometheus would not run a query; the text says which, and why."""


class Prometheus:
    """Scrapes its targets, and evaluates the rules, every second; for the length of a with statement.

    Args:
        folder: for its configuration, its data and its log.
        labels: of all targets.
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
        """What an instant query returns now. Raises QueryFailed."""
        result: list[Any] = self._ask("query", {"query": expression})["result"]
        return result

    def values(self, label: str, selector: str) -> list[str]:
        """The values that a label has in the series of a selector. Raises QueryFailed."""
        values: list[str] = self._ask(f"label/{label}/values", {"match[]": selector})
        return values

    def rules(self) -> list[dict[str, Any]]:
        """All rules, and how they fare."""
        return [rule for group in self._ask("rules", {})["groups"] for rule in group["rules"]]

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Asks time and again until the condition holds. Whether it does so in time."""
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
