"""Kafka Connect in distributed mode, with the connectors for files. Arguments: bootstrap, topic, group, steps.

The environment variable CONNECT_JARS is the class path of Kafka Connect.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from steps import RECORDS, WAIT_SECONDS, check, run, until

BOOTSTRAP, TOPIC, GROUP, STEPS = sys.argv[1:5]
LINES = [f"line {number}" for number in range(RECORDS)]
HALF_SECOND = 0.5
SECONDS_PER_WAIT = 50.0
"""A worker is a JVM that scans all of its jars for connectors."""
TASKS = 4
FILE_CONNECTOR = "org.apache.kafka.connect.file.FileStream"
CONFIGURATION = """\
bootstrap.servers={bootstrap}
group.id={group}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic={group}-config
offset.storage.topic={group}-offsets
status.storage.topic={group}-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=2
status.storage.partitions=2
offset.flush.interval.ms=500
scheduled.rebalance.max.delay.ms=0
heartbeat.interval.ms=300
session.timeout.ms=10000
listeners=http://127.0.0.1:{port}
plugin.discovery=only_scan
"""


class Worker:
    """One worker, as a process of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        file = folder / f"{name}.properties"
        file.write_text(CONFIGURATION.format(bootstrap=BOOTSTRAP, group=GROUP, port=self.port))
        java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx384m"]
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.process = subprocess.Popen([*java, "-cp", os.environ["CONNECT_JARS"], main, str(file)], stdout=sys.stderr)

    def ask(self, path: str, body: object = None) -> Any:
        """Returns the reply of the worker's REST interface; None if the worker does not reply yet."""
        check(self.process.poll() is None, f"the worker ended with status {self.process.returncode}")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as reply:
                return json.load(reply)
        except (OSError, urllib.error.URLError):
            return None

    def stop(self) -> None:
        """Stops the worker in order, so that it leaves its group."""
        self.process.terminate()
        try:
            self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def waiting_until(text: str, holds: Any) -> None:
    """Calls `holds` every half second until it returns a true value."""

    def held() -> bool:
        if holds():
            return True
        time.sleep(HALF_SECOND)
        return False

    until(text, held, SECONDS_PER_WAIT)


class Steps:
    """The steps, with the worker that all of them use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._first: Worker | None = None

    @property
    def worker(self) -> Worker:
        """The first worker, which is started if it is not running."""
        if self._first is None:
            self._first = Worker(self.folder, "first")
        return self._first

    def start(self) -> None:
        waiting_until("the worker answers", lambda: self.worker.ask("/connectors") is not None)

    def copy(self) -> None:
        (self.folder / "in").write_text("".join(f"{line}\n" for line in LINES))
        self._create("source", "Source", "in", {"topic": TOPIC})
        self._create("sink", "Sink", "out", {"topics": TOPIC, "tasks.max": str(TASKS)})
        waiting_until("all lines are copied", self._is_copied)

    def _create(self, kind: str, kind_class: str, file: str, more: dict[str, str]) -> None:
        settings = {"connector.class": f"{FILE_CONNECTOR}{kind_class}Connector", "file": str(self.folder / file)}
        body = {"name": f"{GROUP}-{kind}", "config": settings | more}
        waiting_until(f"the {kind} is created", lambda: self.worker.ask("/connectors", body) is not None)

    def _is_copied(self) -> bool:
        out = self.folder / "out"
        return out.exists() and sorted(out.read_text().splitlines()) == sorted(LINES)

    def rebalance(self) -> None:
        second = Worker(self.folder, "second")
        try:
            waiting_until("the workers share the tasks", lambda: len(self._workers()) == 2)
        finally:
            second.stop()
        waiting_until("all tasks come back", lambda: len(self._workers()) == 1)

    def _workers(self) -> set[str]:
        """Returns the workers that run a task of the sink."""
        status = self.worker.ask(f"/connectors/{GROUP}-sink/status")
        tasks = status["tasks"] if status else []
        running = [task["worker_id"] for task in tasks if task["state"] == "RUNNING"]
        return set(running) if len(running) == TASKS else set()

    def groups(self) -> None:
        client = AdminClient({"bootstrap.servers": BOOTSTRAP})
        sink = f"connect-{GROUP}-sink"
        listed = {group.group_id for group in client.list_consumer_groups(request_timeout=WAIT_SECONDS).result().valid}
        check(sink in listed, "the group of the sink is not listed")
        waiting_until("each task of the sink is a member", lambda: self._members(client, sink) == TASKS)
        [workers] = client.list_groups(GROUP, timeout=WAIT_SECONDS)  # The other call lists groups of consumers only.
        check(workers.protocol_type == "connect", f"the workers' protocol type is {workers.protocol_type}")
        check(len(workers.members) == 1, f"there are {len(workers.members)} workers")

    def _members(self, client: AdminClient, group: str) -> int:
        """Returns how many members a group has."""
        described = client.describe_consumer_groups([group], request_timeout=WAIT_SECONDS)[group].result()
        return len(described.members)

    def stop(self) -> None:
        """Ends the worker and removes its files."""
        if self._first is not None:
            self._first.process.kill()
            self._first.process.wait()
        shutil.rmtree(self.folder)


def main() -> None:
    """Runs the steps in a temporary folder."""
    steps = Steps(Path(tempfile.mkdtemp()))
    known = {"start": steps.start, "copy": steps.copy, "rebalance": steps.rebalance, "groups": steps.groups}
    run(known, STEPS, at_end=steps.stop)


main()
