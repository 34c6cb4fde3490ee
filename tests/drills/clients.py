"""Runs the two members of a group as a process: a client program of the matrix with its step `stay`."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from tests.drills.measures import Event, events_in
from tests.kafka.dialect import until
from tests.kafka.processes import ChildProcess
from tests.kafka.releases import NEWEST
from tests.matrix.rows import ROWS, Program, Row
from tests.matrix.toolchains import SOURCES

KINDS = ("librdkafka", "java-4.4", "java-2.8", "franz-go", "sarama", "kafka-python")
"""The rows of the matrix that a whole drill runs."""
_MEMBERS = 2
_SETTLED_SECONDS = 2.0


def own_librdkafka() -> Row:
    """Returns the row of librdkafka that runs with the project's own packages. It downloads nothing."""
    program = Program((sys.executable, str(SOURCES / "python" / "librdkafka.py")))
    return replace(ROWS["librdkafka"], prepare=lambda: program)


@dataclass
class StayingGroup:
    """A group of two members, for the length of a with statement.

    Args:
        row: the kind of client.
        name: the name of the group.
        partitions: the number of partitions of its topic.
        process: the client program.
    """

    row: Row
    name: str
    partitions: int
    process: ChildProcess

    @classmethod
    def of(cls, row: Row, bootstrap: str, topic: tuple[str, int], folder: Path, name: str) -> Self:
        """Returns a group that is not started yet.

        Args:
            row: the kind of client.
            bootstrap: the addresses of all brokers or sidecars, separated by commas.
            topic: the topic and its number of partitions.
            folder: the folder for the output of the program.
            name: the name of the group.

        Raises:
            Missing: the client cannot run on this machine.
        """
        program = row.prepare()
        command = [*program.command, bootstrap, topic[0], name, "stay", *row.arguments(NEWEST)]
        environment: Mapping[str, str] = {**os.environ, **program.environment}
        return cls(row, name, topic[1], ChildProcess(command, folder / f"{name}.log", environment))

    @property
    def events(self) -> list[Event]:
        """The events that the members have reported so far."""
        return events_in(self.process.log.read_text("utf-8", "replace"))

    def wait_until_settled(self) -> None:
        """Waits until both members read, and all partitions are read."""
        until(partial(self._is_settled, time.time()), f"{self.name} reads all partitions")

    def _is_settled(self, since: float) -> bool:
        assert self.process.running.poll() is None, f"{self.name} has ended\n{self.process.tail()}"
        newest = max(since, time.time() - _SETTLED_SECONDS)
        recent = [event for event in self.events if event.at > newest and not event.error]
        members = {event.member for event in recent}
        read = {partition for event in recent for partition in event.partitions}
        return len(members) == _MEMBERS and len(read) == self.partitions

    def __enter__(self) -> Self:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()
