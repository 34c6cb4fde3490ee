"""SIGUSR2 to `group-sidecar run`: a successor takes over the ports, and the old process drains."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from group_sidecar.proxy.hand_over import LOAD_SECONDS
from group_sidecar.proxy.runtime.addresses import Address
from tests.kafka.processes import GIVE_UP_SECONDS, free_addresses, host_port
from tests.kafka.wire import Wire
from tests.proxy.generations import (
    NO_CLUSTER,
    ConnectingClients,
    Generations,
    generations,
    scripted,
    served,
    wait_until,
)
from tests.proxy.scripted_broker import HangUp, ScriptedBroker, listening


def test_no_client_is_refused(tmp_path: Path) -> None:
    """Clients connect all the time during two restarts in a row. Each of them gets its first reply."""
    with generations(tmp_path, scripted()) as sidecar, ConnectingClients(sidecar.address) as clients:
        for number in (1, 2):
            before = clients.tried
            sidecar.hand_over()
            sidecar.successor(number)
            sidecar.logged("the predecessor has ended", number)
            tried_until = clients.tried + 10
            wait_until(partial(clients.have_tried, tried_until), "the successor serves clients")
            assert clients.tried > before
        assert sidecar.first.running.wait(GIVE_UP_SECONDS) == 0
        assert len(sidecar.events("started")) == 3
    assert clients.failures == []


def test_parked_request_gets_its_reply(tmp_path: Path) -> None:
    """A request that waits at the broker gets its reply from the predecessor, when idle connections are closed. Until
    then, another SIGUSR2 starts no successor.
    """
    arrived, answer = threading.Event(), threading.Event()

    def wait(_: Any, version: int) -> HeartbeatResponse:
        arrived.set()
        assert answer.wait(GIVE_UP_SECONDS)
        return HeartbeatResponse(error_code=0)

    slow, quick = ScriptedBroker({HeartbeatRequest: wait}), scripted()
    addresses = dict(zip(("QUICK", "SLOW"), free_addresses(2), strict=True))
    with listening(quick) as [one], listening(slow) as [other]:
        upstreams = {"QUICK": one, "SLOW": other}
        listeners = [
            {"name": name, "listen": host_port(address), "upstream": str(upstreams[name])}
            for name, address in addresses.items()
        ]
        sidecar = Generations(tmp_path, one, listeners=listeners, limits={"drain_seconds": 60})
        with sidecar, Wire(addresses["QUICK"]) as idle, Wire(addresses["SLOW"]) as client:
            assert idle.ask(MetadataRequest(topics=()), 4)
            client.send_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0)
            assert arrived.wait(GIVE_UP_SECONDS)
            sidecar.hand_over()
            assert idle.closed()
            os.kill(sidecar.successor(), signal.SIGUSR2)
            sidecar.logged("no successor is started")
            answer.set()
            assert client.receive()
            assert client.closed()
            assert sidecar.first.running.wait(GIVE_UP_SECONDS) == 0


def test_bad_settings_leave_predecessor(tmp_path: Path) -> None:
    """If the successor does not accept the settings, the old process goes on, and can be restarted later."""
    with generations(tmp_path, scripted()) as sidecar:
        sidecar.write(limits={"no_such_limit": 1})
        sidecar.hand_over()
        failed = sidecar.logged("the successor has failed, so this process continues to serve")
        assert failed["cause"] == "it ended with status 2"
        assert served(sidecar.address)
        sidecar.write()
        sidecar.hand_over()
        sidecar.successor(2)
        sidecar.logged("the predecessor has ended")
        assert sidecar.first.running.wait(GIVE_UP_SECONDS) == 0
        assert served(sidecar.address)


def test_new_settings_apply(tmp_path: Path) -> None:
    """The successor has the settings that are on the disk, also another address."""
    [moved] = free_addresses(1)
    with generations(tmp_path, scripted()) as sidecar:
        sidecar.write(listen=host_port(moved))
        sidecar.hand_over()
        sidecar.logged("the predecessor has ended")
        assert served(moved)
        with pytest.raises(ConnectionRefusedError):
            served(sidecar.address)


def test_free_port_stays(tmp_path: Path) -> None:
    """A port that the system has chosen stays the same."""
    with generations(tmp_path, scripted(), listen="127.0.0.1:0", admin="127.0.0.1:0") as sidecar:
        sidecar.hand_over()
        sidecar.logged("the predecessor has ended")
        before, after = sidecar.events("started")
        assert (before["listen"], before["admin"]) == (after["listen"], after["admin"])


ATTEMPTS = 6
"""How often the successor tries to read the log in vain. It would accept clients in these seconds."""


class GatedBroker(ScriptedBroker):
    """A broker whose log cannot be read until `opened` is set, so that a successor waits.

    Attributes:
        opened: set while the log can be read.
        turned_away: how often somebody has tried to read the log while that was impossible.
    """

    def __init__(self) -> None:
        super().__init__(scripted().answers)
        self.answers[MetadataRequest] = self._metadata
        self.opened = threading.Event()
        self.opened.set()
        self.turned_away = 0

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        if self.opened.is_set():
            return NO_CLUSTER
        self.turned_away += 1
        raise HangUp


@contextmanager
def waiting(folder: Path) -> Iterator[tuple[Generations, GatedBroker, int]]:
    """Runs a sidecar whose successor waits for the log. Yields the successor's process id."""
    broker = GatedBroker()
    with generations(folder, broker) as sidecar:
        sidecar.logged("reading __consumer_offsets")
        broker.opened.clear()
        sidecar.hand_over()
        pid = sidecar.successor()
        sidecar.logged("loading the copies while the predecessor serves clients")
        wait_until(lambda: broker.turned_away > 0, "the successor tries to read the log")
        yield sidecar, broker, pid


def test_copy_is_loaded_first(tmp_path: Path) -> None:
    """The successor accepts clients after it has loaded its copy. Meanwhile the old process serves them."""
    with waiting(tmp_path) as (sidecar, broker, _):
        for attempts in range(1, ATTEMPTS + 1):
            wait_until(lambda attempts=attempts: broker.turned_away >= attempts, "another attempt")  # type: ignore[misc]
            assert served(sidecar.address)
        assert sidecar.first.running.poll() is None
        assert len(sidecar.events("started")) == 1
        broker.opened.set()
        loaded = sidecar.logged("reading __consumer_offsets", 2)
        assert loaded["timestamp"] < sidecar.logged("started", 2)["timestamp"]
        sidecar.logged("the predecessor has ended")
        assert sidecar.first.running.wait(GIVE_UP_SECONDS) == 0
        assert served(sidecar.address)


def test_second_signal_is_ignored(tmp_path: Path) -> None:
    """A second SIGUSR2 starts no second successor."""
    with waiting(tmp_path) as (sidecar, broker, pid):
        for process in (sidecar.first.running.pid, pid):
            os.kill(process, signal.SIGUSR2)
        sidecar.logged("no successor is started", 2)
        broker.opened.set()
        sidecar.logged("the predecessor has ended")
        assert len(sidecar.events("a successor was started")) == 1


def test_stop_ends_both(tmp_path: Path) -> None:
    """SIGTERM during a restart ends both processes."""
    with waiting(tmp_path) as (sidecar, _, pid):
        sidecar.first.running.send_signal(signal.SIGTERM)
        assert sidecar.first.running.wait(GIVE_UP_SECONDS) == 0
        sidecar.successors[pid].wait(GIVE_UP_SECONDS)
        assert len(sidecar.events("the successor is ended, because this sidecar stops")) == 1


def test_killed_successor_leaves_predecessor(tmp_path: Path) -> None:
    """If the successor is killed, the old process goes on, and has reaped the successor."""
    with waiting(tmp_path) as (sidecar, _, pid):
        os.kill(pid, signal.SIGKILL)
        failed = sidecar.logged("the successor has failed, so this process continues to serve")
        assert failed["cause"] == "it ended with status -9"
        assert served(sidecar.address)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_killed_predecessor_is_replaced(tmp_path: Path) -> None:
    """If the old process is killed, the successor serves clients at once, without its copy."""
    with waiting(tmp_path) as (sidecar, _, _):
        sidecar.first.running.kill()
        assert served(sidecar.address, LOAD_SECONDS / 2)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2])
def test_signal_during_start_is_ignored(tmp_path: Path, number: signal.Signals) -> None:
    """A signal that arrives before the sidecar handles it does not end the sidecar."""
    with listening(scripted()) as [upstream]:
        sidecar = Generations(tmp_path, upstream)
        settings = sidecar.file.read_text()
        sidecar.file.unlink()
        os.mkfifo(sidecar.file)
        sidecar.first.start()
        try:
            with sidecar.file.open("w") as pipe:  # The sidecar waits for its settings.
                sidecar.first.running.send_signal(number)
                pipe.write(settings)
            sidecar.logged("started")
        finally:
            sidecar.first.stop()


def nodes_of(address: tuple[str, int]) -> dict[int, int]:
    """Returns the ports of the brokers in the Metadata reply at an address."""
    with Wire(address) as client:
        reply = client.ask(MetadataRequest(topics=()), 4)
    return {node.node_id: node.port for node in reply.brokers}


def test_gateway_keeps_ports_of_nodes(tmp_path: Path) -> None:
    """The ports that a gateway opened for its brokers stay the same, and serve clients. The port of a lost broker is
    closed.
    """
    cluster: dict[int, Address] = {}

    def metadata(*_: Any) -> MetadataResponse:
        brokers = tuple(MetadataResponseBroker(node_id=number, **at._asdict()) for number, at in cluster.items())
        return MetadataResponse(brokers=brokers, topics=())

    with listening(*(scripted(metadata) for _ in range(3))) as addresses:
        cluster.update(enumerate(addresses))
        with Generations(tmp_path, addresses[0], mode="gateway") as sidecar:
            sidecar.logged("node opened", 3)
            before = nodes_of(sidecar.address)
            del cluster[2]
            sidecar.hand_over()
            sidecar.logged("the predecessor has ended")
            assert nodes_of(sidecar.address) == {number: before[number] for number in (0, 1)}
            for number in (0, 1):
                assert served(("127.0.0.1", before[number]))
            with pytest.raises(ConnectionRefusedError):
                served(("127.0.0.1", before[2]))


def test_service_manager_learns_new_process(tmp_path: Path) -> None:
    """systemd learns the process id of the successor. No process reports that it stops."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, generations(tmp_path, scripted()) as sidecar:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(GIVE_UP_SECONDS)
        sidecar.first.stop()
        sidecar.first.environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        sidecar.first.start()
        assert systemd.recv(4096).startswith(b"READY=1")
        sidecar.hand_over()
        pid = sidecar.successor()
        reports = {systemd.recv(4096).partition(b"\n")[0] for _ in range(2)}
        assert reports == {b"READY=1", b"MAINPID=%d" % pid}
        assert sidecar.first.running.wait(GIVE_UP_SECONDS) == 0
        os.kill(pid, signal.SIGTERM)
        assert systemd.recv(4096).startswith(b"STOPPING=1")


def test_journal_has_one_writer(tmp_path: Path) -> None:
    """Each process writes segments of its own, and the successor writes after the predecessor's last one."""
    folder = tmp_path / "journal"
    with generations(tmp_path, scripted(), journal={"folder": str(folder), "interval_seconds": 1}) as sidecar:
        wait_until(lambda: any(folder.glob(".segment-*")), "the first segment")
        sidecar.hand_over()
        sidecar.logged("the predecessor has ended")
        by_boot: dict[str, list[dict[str, Any]]] = {}

        def both_written() -> bool:
            by_boot.clear()
            for path in folder.glob("*segment-*"):
                for line in path.read_text().split("\n")[:-1]:
                    record = json.loads(line)
                    by_boot.setdefault(record["boot"], []).append(record)
            return len(by_boot) == 2

        wait_until(both_written, "records of both processes")
        old, new = sorted(by_boot.values(), key=lambda records: min(each["emitted_at"] for each in records))
        assert max(each["emitted_at"] for each in old) <= min(each["emitted_at"] for each in new)
        for records in (old, new):
            assert sorted(each["seq"] for each in records) == [*range(1, len(records) + 1)]
