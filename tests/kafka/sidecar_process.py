"""The sidecar as users run it: the installed command in a separate process."""

import http.client
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.kafka.json_lines import json_lines
from tests.kafka.processes import GIVE_UP_SECONDS, Address, ChildProcess, free_addresses, host_port

COMMAND = Path(sys.executable).with_name("group-sidecar")


class SidecarProcess:
    """``group-sidecar run`` in front of a broker, for the length of a with statement.

    Args:
        folder: the folder for its log, and for its configuration file if it has one.
        listen: the address that the broker advertises.
        upstream: the broker's own address.
        group_max_size: the limit of `policies.group_max_size`, given as a flag.
        settings: further settings, nested as in a configuration file. If given, the addresses are in the file too. If
            `settings` has `listeners`, the file has neither `listen` nor `upstream`.
        until: the path of the admin page whose status 200 shows that the sidecar is up.
    """

    def __init__(
        self,
        folder: Path,
        *,
        listen: Address,
        upstream: Address,
        group_max_size: int | None = None,
        settings: dict[str, Any] | None = None,
        until: str = "/readyz",
    ) -> None:
        [self.admin] = free_addresses(1)
        self.listen = listen
        self._until = until
        self._places = {"listen": host_port(listen), "upstream": host_port(upstream), "admin": host_port(self.admin)}
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "sidecar.yaml"
        command = [str(COMMAND), "run"]
        if settings is None:
            command += [part for name, at in self._places.items() for part in (f"--{name}", at)]
        else:
            self.write(settings)
            command += ["--config", str(self.file)]
        if group_max_size is not None:
            command += ["--group-max-size", str(group_max_size)]
        self.process = ChildProcess(command, folder / "sidecar.log")

    def start(self) -> None:
        """Starts the sidecar and waits until it is up. Raises ProcessFailed if it does not come up."""
        self.process.start()
        try:
            self.process.wait_until(lambda: self.get(self._until)[0] == 200)
        except BaseException:
            self.process.stop()
            raise

    def stop(self) -> int:
        """Stops the sidecar as a service manager would. Returns its exit status."""
        return self.process.stop()

    def hand_over(self) -> None:
        """Restarts the sidecar by SIGUSR2, and waits until the old process has ended."""
        with self.handing_over():
            pass

    @contextmanager
    def handing_over(self) -> Iterator[None]:
        """Restarts the sidecar by SIGUSR2. The block begins when the successor serves clients.

        After the block, waits until the old process has ended. If the block fails, ends the old process.
        """
        old, before = self.process.running, len(self._successors())
        old.send_signal(signal.SIGUSR2)
        self.process.wait_until(lambda: len(self._successors()) > before)
        self.process.adopt(self._successors()[-1])
        try:
            yield
        except BaseException:
            old.kill()
            raise
        finally:
            status = old.wait(GIVE_UP_SECONDS)
        assert status == 0

    def _successors(self) -> list[int]:
        """Returns the process ids of all successors that have begun to serve clients, according to their log."""
        return [line["pid"] for line in json_lines(self.process.log) if line["event"] == "the successor serves clients"]

    def write(self, settings: dict[str, Any]) -> None:
        """Writes its configuration file again. The sidecar reads it at the next reload."""
        places = {"admin": self._places["admin"]} if "listeners" in settings else self._places
        self.file.write_text(yaml.safe_dump({**places, **settings}))

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Returns status and body of a page of the admin port; status 0 if the port does not respond."""
        connection = http.client.HTTPConnection(*self.admin, timeout=GIVE_UP_SECONDS)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def group_json(self, what: str, group: str) -> Any:
        """Returns the admin port's JSON about a group. `what`: the last part of its path, for instance `timeline`."""
        status, body = self.get(f"/api/v1/{what}?group={quote(group, safe='')}")
        assert status == 200, body
        return json.loads(body)

    def wait_for_log(self) -> None:
        """Waits until the sidecar has read all partitions of the offsets topic that its broker leads."""
        self.process.wait_until(self._follows)

    def _follows(self) -> bool:
        _, body = self.get("/readyz")
        [status] = json.loads(body)["offsets_log"].values()
        owned: int = status["owned"]["count"]
        return owned > 0 and not (status["loading"]["count"] or status["failed"]["count"])

    def metric(self, name: str, **labels: str) -> float:
        """Returns the sum of all samples of a metric with these labels."""
        return sum(sample.value for sample in self.samples(name) if labels.items() <= sample.labels.items())

    def samples(self, name: str) -> list[Sample]:
        """Returns the current samples of a metric, from the admin port."""
        status, text = self.get("/metrics")
        assert status == 200, f"/metrics answered {status}"
        lines = "".join(line for line in text.splitlines(keepends=True) if line.startswith(name))
        families = text_string_to_metric_families(lines)  # Parsing all lines of the page would take long.
        return [sample for family in families for sample in family.samples if sample.name == name]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
