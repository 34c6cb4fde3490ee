"""A process with clients of one run: ``python -m tests.linearizability.worker CONFIGURATION``.

The clients work until the run creates the file `STOP`. Then the process writes a summary and ends.
"""

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.kafka.processes import Address, host_port
from tests.linearizability import members
from tests.linearizability.connections import Connections, Progress
from tests.linearizability.history import OPERATIONS_SUFFIX, LineFile
from tests.linearizability.librdkafka_offsets import LibrdkafkaOffsets
from tests.linearizability.members import MEMBERS_SUFFIX, Member
from tests.linearizability.offsets_client import OffsetsClient, Slot
from tests.linearizability.record_check import Produced
from tests.linearizability.record_clients import GroupReader, PlainProducer, TransactionalProducer
from tests.linearizability.transactions import Transactions

SLOTS = (
    Slot(0, deletes=True, transacts=True, reads=0.6),
    Slot(1, deletes=True, transacts=False, reads=0.7),
    Slot(2, deletes=False, transacts=False, reads=0.6),
    Slot(3, deletes=False, transacts=False, reads=0.9),
    Slot(4, deletes=False, transacts=False, reads=0.9),
)
_LIBRDKAFKA_SLOT = SLOTS[4]
_MEMBERS = 2
"""Members of each group in each process. With three processes, they exceed the limit."""
SUMMARY_SUFFIX = ".summary.json"
STOP = "stop"
_MAX_CLIENTS = 32


@dataclass(frozen=True)
class Configuration:
    """The configuration of a worker.

    Attributes:
        role: `offsets`, with members of groups, or `records`.
        number: the number of the worker, from 0 on.
        bootstrap: the addresses of all brokers for clients.
        run: the prefix of the groups' names.
        seed: the seed of the run. Each client's random numbers depend on the seed and on a number of its own.
        since: the start of the run in monotonic seconds.
        folder: the folder for the files. The clients stop when it contains the file `STOP`.
        deletes: whether clients delete offsets.
        bounds_ends: whether the offsets of a producer's previous transaction are visible when the producer's next
            transaction begins (see `Transactions`).
    """

    role: str
    number: int
    bootstrap: tuple[Address, ...]
    run: str
    seed: int
    since: float
    folder: str
    deletes: bool
    bounds_ends: bool

    def text(self) -> str:
        """Returns the configuration for the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Configuration":
        """Returns the configuration from the result of `text`."""
        fields = json.loads(text)
        fields["bootstrap"] = tuple((host, port) for host, port in fields["bootstrap"])
        return cls(**fields)

    @property
    def servers(self) -> str:
        """librdkafka's ``bootstrap.servers``."""
        return ",".join(map(host_port, self.bootstrap))


class Worker:
    """The clients of one process, each in a thread."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._folder = Path(configuration.folder)
        self._progress: dict[str, list[Progress]] = {}
        self._broken: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._numbers = iter(range(configuration.number * _MAX_CLIENTS + 1, (configuration.number + 1) * _MAX_CLIENTS))

    def run(self) -> dict[str, Any]:
        """Runs the clients until the end. Returns the summary."""
        name = f"{self._configuration.role}-{self._configuration.number}"
        more: dict[str, Any] = {}
        if self._configuration.role == "offsets":
            operations, replies = (self._folder / f"{name}{suffix}" for suffix in (OPERATIONS_SUFFIX, MEMBERS_SUFFIX))
            with operations.open("w") as file, replies.open("w") as members_file:
                self._start_offsets(LineFile(file))
                self._start_members(LineFile(members_file))
                self._join()
        else:
            more = self._run_records()
        progress = {kind: [each.summary() for each in all_] for kind, all_ in self._progress.items()}
        return {"progress": progress, "broken": [repr(each) for each in self._broken], **more}

    def _start_offsets(self, recorder: LineFile) -> None:
        for slot in SLOTS:
            chosen = slot if self._configuration.deletes else replace(slot, deletes=False)
            self._start(lambda slot=chosen: self._run_offsets(slot, recorder))  # type: ignore[misc]
        self._start(lambda: self._run_librdkafka(recorder))

    def _start_members(self, file: LineFile) -> None:
        for group in members.GROUPS:
            for _ in range(_MEMBERS):
                self._start(lambda group=group: self._run_member(group, file))  # type: ignore[misc]

    def _run_offsets(self, slot: Slot, recorder: LineFile) -> None:
        number, random = self._client()
        name, progress = f"{self._configuration.run}-client-{number}", self._counted("offsets")
        connections = Connections(self._configuration.bootstrap, name, random)
        client = OffsetsClient(name, number, connections, random, recorder, progress)
        transactions = Transactions(
            client, name, number, connections, random, recorder, progress, bounds_ends=self._configuration.bounds_ends
        )
        while not self._stopped():
            client.enter(slot.group(self._configuration.run, self._configuration.since))
            client.step(slot, transactions.run)
            client.pause()
        progress.waited()
        transactions.close()
        connections.close()

    def _run_librdkafka(self, recorder: LineFile) -> None:
        number, random = self._client()
        name, progress = f"{self._configuration.run}-librdkafka-{number}", self._counted("offsets of librdkafka")
        connections = Connections(self._configuration.bootstrap, name, random)
        values = OffsetsClient(name, number, connections, random, recorder, progress)
        client = LibrdkafkaOffsets(name, values, self._configuration.servers, random, recorder, progress)
        while not self._stopped():
            values.enter(_LIBRDKAFKA_SLOT.group(self._configuration.run, self._configuration.since))
            client.step()
            values.pause()
        progress.waited()
        client.close()

    def _run_member(self, group: str, file: LineFile) -> None:
        number, random = self._client()
        progress = self._counted("members")
        connections = Connections(self._configuration.bootstrap, f"{self._configuration.run}-member-{number}", random)
        member = Member(group, connections, random, file, progress)
        while not self._stopped():
            member.run_once()
        connections.close()

    def _run_records(self) -> dict[str, Any]:
        produced = Produced()
        _, random = self._client()
        plain = PlainProducer(self._configuration.servers, produced, self._counted("idempotent producer"))
        transactional = TransactionalProducer(
            self._configuration.servers, produced, self._counted("transactional producer"), random
        )
        reader = GroupReader(self._configuration.servers, produced, self._counted("consumer group"))
        complete = threading.Event()
        producers = [self._start(lambda each=each: each.run(self._stopped)) for each in (plain, transactional)]  # type: ignore[misc]
        self._start(lambda: reader.run(complete))
        for thread in producers:
            thread.join()
        complete.set()
        self._join()
        return {
            "acknowledged": produced.acknowledged,
            "outcomes": produced.outcomes,
            "consumed": sorted(produced.consumed),
        }

    def _client(self) -> tuple[int, Random]:
        """Returns a number that is unique in the run, and a random generator for one client."""
        number = next(self._numbers)
        return number, Random(f"{self._configuration.seed}-{number}")

    def _counted(self, kind: str) -> Progress:
        progress = Progress()
        self._progress.setdefault(kind, []).append(progress)
        return progress

    def _stopped(self) -> bool:
        return (self._folder / STOP).exists()

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  The run reports the error, for instance a wrong reply.
                self._broken.append(error)

        thread = threading.Thread(target=guarded)
        self._threads.append(thread)
        thread.start()
        return thread

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()


def main() -> None:
    """Runs the worker and writes its summary."""
    configuration = Configuration.from_text(sys.argv[1])
    summary = Worker(configuration).run()
    name = f"{configuration.role}-{configuration.number}{SUMMARY_SUFFIX}"
    Path(configuration.folder, name).write_text(json.dumps(summary))


if __name__ == "__main__":
    main()
