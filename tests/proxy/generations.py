"""A sidecar process with its successors, and clients that connect meanwhile."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse
from group_sidecar.proxy.runtime.addresses import Address
from tests.kafka.json_lines import json_lines
from tests.kafka.processes import GIVE_UP_SECONDS, AdoptedProcess, ChildProcess, free_addresses, host_port
from tests.kafka.sidecar_process import COMMAND
from tests.proxy.fakes import request_frame
from tests.proxy.scripted_broker import ScriptedBroker, listening

ASK = request_frame(7, b"\0\0", api_key=ApiKey.API_VERSIONS)
NO_CLUSTER = MetadataResponse(brokers=(), topics=())


def scripted(metadata: Any = NO_CLUSTER) -> ScriptedBroker:
    """Returns a broker without groups."""
    return ScriptedBroker(
        {
            MetadataRequest: metadata,
            ListGroupsRequest: ListGroupsResponse(error_code=0, groups=()),
            DescribeAclsRequest: DescribeAclsResponse(
                throttle_time_ms=0, error_code=ErrorCode.SECURITY_DISABLED, error_message=None, resources=()
            ),
        }
    )


class Generations:
    """A sidecar process and all its successors, for the length of a with statement.

    Attributes:
        first: the first process.
        address: where clients connect.
        file: the settings.
        successors: the successors that were seen running, by process id.
    """

    def __init__(self, folder: Path, upstream: Address, **settings: Any) -> None:
        self.address, self.admin = free_addresses(2)
        self.file = folder / "sidecar.yaml"
        places = {} if "listeners" in settings else {"listen": host_port(self.address), "upstream": str(upstream)}
        self._settings = {"admin": host_port(self.admin), "limits": {"drain_seconds": 2}, **places, **settings}
        self.write()
        self.first = ChildProcess([str(COMMAND), "run", "--config", str(self.file)], folder / "log")
        self.successors: dict[int, AdoptedProcess] = {}

    def write(self, **changes: Any) -> None:
        """Writes the settings, with these changes."""
        self.file.write_text(yaml.safe_dump({**self._settings, **changes}))

    def events(self, event: str) -> list[dict[str, Any]]:
        """Returns the lines of the log with this event. A line that is being written is left out."""
        return [line for line in json_lines(self.first.log) if line["event"] == event]

    def logged(self, event: str, times: int = 1) -> dict[str, Any]:
        """Waits until the log has `times` lines with this event. Returns the last one."""
        wait_until(lambda: len(self.events(event)) >= times, event)
        return self.events(event)[times - 1]

    def hand_over(self) -> None:
        """Asks the newest process to start a successor."""
        os.kill(self.newest, signal.SIGUSR2)

    @property
    def newest(self) -> int:
        """The process id of the newest process that runs."""
        started = [int(line["pid"]) for line in self.events("a successor was started")]
        return [self.first.running.pid, *(pid for pid in started if Path(f"/proc/{pid}").exists())][-1]

    def successor(self, number: int = 1) -> int:
        """Waits until a successor was started. Returns its process id."""
        pid = int(self.logged("a successor was started", number)["pid"])
        if pid not in self.successors:
            with suppress(ProcessLookupError):
                self.successors[pid] = AdoptedProcess(pid)
        return pid

    def __enter__(self) -> Self:
        self.first.start()
        self.logged("started")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in range(1, len(self.events("a successor was started")) + 1):
            self.successor(number)
        for process in self.successors.values():
            process.kill()
            process.wait(GIVE_UP_SECONDS)
        self.first.stop()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting for: {what}"
        time.sleep(0.02)


def served(address: tuple[str, int], seconds: float = GIVE_UP_SECONDS) -> bool:
    """Connects and sends a request. Returns whether the reply comes.

    Raises OSError if the connection breaks, or if the sidecar is silent for `seconds`.
    """
    with socket.create_connection(address, timeout=seconds) as client, client.makefile("rb") as stream:
        client.sendall(ASK)
        size = int.from_bytes(stream.read(4), "big")
        return stream.read(size)[:4] == b"\0\0\0\7"


class ConnectingClients:
    """Clients that connect, send a request and close, one after the other without a pause, until the block ends."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(2)]
        self.tried = 0
        self.failures: list[str] = []

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if not served(self._address):
                    self.failures.append("the connection ended before the first reply")
            except OSError as error:
                self.failures.append(str(error))
            self.tried += 1

    def have_tried(self, times: int) -> bool:
        """Whether the clients have connected so often."""
        return self.tried >= times

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def generations(folder: Path, broker: ScriptedBroker, **settings: Any) -> Iterator[Generations]:
    """Runs a sidecar in front of a scripted broker."""
    with listening(broker) as [upstream], Generations(folder, upstream, **settings) as sidecar:
        yield sidecar
