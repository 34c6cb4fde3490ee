"""Causes the faults of a schedule in a running installation."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from threading import Lock

from tests.kafka.sidecar_process import SidecarProcess
from tests.linearizability import schedule
from tests.linearizability.admin_requests import move_leaders, replicas
from tests.linearizability.fault_proxy import FaultProxy
from tests.linearizability.installation import Installation, Node
from tests.linearizability.schedule import NODES, Fault

_LOG = "__consumer_offsets"
_CUT_SHARE = 0.7


class Injector:
    """Causes faults.

    Args:
        installation: the installation that gets the faults.
        seed: decides which leaders move.

    Attributes:
        done: how often each kind of fault happened.
        restarts: monotonic seconds at which a sidecar ended or was replaced.
    """

    def __init__(self, installation: Installation, seed: int) -> None:
        self._installation = installation
        self._random = Random(f"leaders-{seed}")
        self._free = [Lock() for _ in NODES]
        self._brokers_free = Lock()
        self.done: Counter[str] = Counter()
        self.restarts: list[float] = []
        self._causes: Mapping[str, Callable[[Node, Fault], None]] = {
            schedule.KILL_SIDECAR: self._kill_sidecar,
            schedule.PAUSE_SIDECAR: lambda node, fault: _pause(_sidecar(node).process.running.pid, fault.seconds),
            schedule.HAND_OVER: self._hand_over,
            schedule.KILL_BROKER: self._kill_broker,
            schedule.PAUSE_BROKER: lambda node, fault: _pause(node.broker.pid, fault.seconds),
            schedule.CUT_CLIENTS: lambda node, _: node.client_proxy.cut(_CUT_SHARE),
            schedule.CUT_BROKER: lambda node, _: _broker_proxy(node).cut(_CUT_SHARE),
            schedule.FREEZE_CLIENTS: lambda node, fault: _freeze(node.client_proxy, fault.seconds),
            schedule.FREEZE_BROKER: lambda node, fault: _freeze(_broker_proxy(node), fault.seconds),
            schedule.MOVE_LEADERS: self._move_leaders,
        }

    def run(self, faults: Sequence[Fault], since: float) -> None:
        """Causes all faults, and waits until everything runs again. Raises the exception of a fault that fails.

        Args:
            faults: the faults, in the order of their time.
            since: the start of the run in monotonic seconds.
        """
        with ThreadPoolExecutor(max(1, len(faults))) as together:
            running: list[Future[None]] = []
            for fault in faults:
                time.sleep(max(0.0, since + fault.at - time.monotonic()))
                running.append(together.submit(self._cause, fault))
            for each in running:
                each.result()

    def _cause(self, fault: Fault) -> None:
        """Causes a fault after the previous fault of the node has ended, which takes long on a slow machine."""
        with ExitStack() as waiting:
            waiting.enter_context(self._free[fault.node - 1])
            if fault.kind in (schedule.KILL_BROKER, schedule.PAUSE_BROKER):
                waiting.enter_context(self._brokers_free)
            self.done[fault.kind] += 1
            self._causes[fault.kind](self._installation.nodes[fault.node - 1], fault)

    def _kill_sidecar(self, node: Node, fault: Fault) -> None:
        sidecar = _sidecar(node)
        with self._ending(sidecar):
            sidecar.process.stop(how=signal.SIGKILL)
            time.sleep(fault.seconds)
            sidecar.start()

    def _hand_over(self, node: Node, _: Fault) -> None:
        sidecar = _sidecar(node)
        with self._ending(sidecar):
            sidecar.hand_over()

    @contextmanager
    def _ending(self, sidecar: SidecarProcess) -> Iterator[None]:
        self._installation.count(sidecar)
        self.restarts.append(time.monotonic())
        yield
        self.restarts.append(time.monotonic())

    @staticmethod
    def _kill_broker(node: Node, fault: Fault) -> None:
        node.broker.kill()
        time.sleep(fault.seconds)
        node.broker.start()

    def _move_leaders(self, node: Node, fault: Fault) -> None:
        """Makes the node the leader of half of the log's partitions, if its cluster can do that now."""
        for each in self._random.sample(self._installation.nodes, len(NODES)):
            with suppress(OSError):  # The broker that is asked may be down.
                partitions = replicas(each.broker.direct, _LOG)
                moved = self._random.sample(sorted(partitions), len(partitions) // 2)
                move_leaders(each.broker.direct, _LOG, dict.fromkeys(moved, fault.node))
                return


def _pause(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def _freeze(proxy: FaultProxy, seconds: float) -> None:
    with proxy.frozen():
        time.sleep(seconds)


def _sidecar(node: Node) -> SidecarProcess:
    assert node.sidecar is not None
    return node.sidecar


def _broker_proxy(node: Node) -> FaultProxy:
    assert node.broker_proxy is not None
    return node.broker_proxy
