"""Decides what this process may do while another process of the same sidecar runs, during a hot restart.

`HandOver` owns the state of the restart, on both sides. The process that starts waits until its copies are loaded. Then
it takes over from its predecessor. Later it may start a successor, and end when the successor serves clients.
"""

from collections.abc import Callable

import trio

from group_sidecar.coordinator.model.facts import ClientRefused, Fact
from group_sidecar.proxy.listeners.passed_sockets import PassedSocket
from group_sidecar.proxy.listeners.predecessor import Predecessor
from group_sidecar.proxy.listeners.successor import Successor, SuccessorFailed, start_successor
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.service_manager import ServiceManager
from group_sidecar.proxy.runtime.supervision import Supervisor, Task

LOAD_SECONDS = 60.0
"""Seconds for which a process with a predecessor waits for its copies to load, before it accepts clients."""
LOAD_POLL_SECONDS = 0.02
"""Seconds between two checks whether the copies are loaded."""


class HandOver:
    """The hand-over from a predecessor to this process, and from this process to a successor.

    Args:
        predecessor: the process whose ports this process takes over, or None.
        sockets: returns the sockets that a successor gets, and may block.
        begin_sharing: called before a successor may serve clients, whose requests this process does not see.
        end_sharing: called when the other process, a predecessor or a failed successor, has ended.
        service_manager: gets the process id of the successor.
        supervisor: handles unexpected failures.

    Attributes:
        predecessor_gone: set when no predecessor runs. While a predecessor runs, its clients change groups, and this
            process does not see their requests.
        may_accept: set when this process may accept clients.
        successor: the process that serves new clients in place of this one, or None.
    """

    def __init__(
        self,
        predecessor: Predecessor | None,
        sockets: Callable[[], list[PassedSocket]],
        begin_sharing: Callable[[], None],
        end_sharing: Callable[[], None],
        service_manager: ServiceManager,
        supervisor: Supervisor,
    ) -> None:
        self._predecessor = predecessor
        self._sockets = sockets
        self._begin_sharing = begin_sharing
        self._end_sharing = end_sharing
        self._service_manager = service_manager
        self._supervisor = supervisor
        self._is_starting_successor = False
        self._publishes_all = predecessor is None
        self.predecessor_gone = trio.Event() if predecessor is None else predecessor.gone
        if predecessor is None:
            self.predecessor_gone.set()
        self.may_accept = trio.Event()
        self.successor: Successor | None = None

    @property
    def is_shared(self) -> bool:
        """Whether another process of this sidecar may serve clients, too."""
        return not self.predecessor_gone.is_set() or self._is_starting_successor or self.successor is not None

    @property
    def is_waiting(self) -> bool:
        """Whether this process accepts no clients yet, because a predecessor serves them while the copies load."""
        return not (self.predecessor_gone.is_set() or self.may_accept.is_set())

    def publishes(self, fact: Fact) -> bool:
        """Whether this process logs a fact and writes it to the journal.

        Both processes learn of most facts. The predecessor publishes these facts until the successor reports that it
        serves clients, and the successor publishes them from then on. Each process publishes its own refusals.
        """
        return self._publishes_all or isinstance(fact, ClientRefused)

    async def watch_predecessor(self) -> None:
        """Waits until the predecessor has ended. Returns at once if there is none. Never raises."""
        if self._predecessor:
            with self._supervisor.guard(Task.HAND_OVER):
                await self._predecessor.watch()
                self._end_sharing()
                log.info("the predecessor has ended")

    async def wait_for_copies(self, are_loaded: Callable[[], bool]) -> None:
        """Waits until the copies are loaded, and then sets `may_accept`. Waits at most LOAD_SECONDS.

        The wait also ends when the predecessor ends. Without a predecessor there is no wait.

        `are_loaded`: returns whether the copies are loaded.
        """
        if self._predecessor:
            log.info("loading the copies while the predecessor serves clients")
            with trio.move_on_after(LOAD_SECONDS):
                # Several parts together decide whether the copies are loaded, so there is no event to wait for.
                while not (self.predecessor_gone.is_set() or are_loaded()):  # noqa: ASYNC110
                    await trio.sleep(LOAD_POLL_SECONDS)
        self.may_accept.set()

    def report_ready(self) -> None:
        """Reports to the predecessor, if there is one, that this process serves clients."""
        self._publishes_all = True
        if self._predecessor:
            self._predecessor.report_ready()

    async def start_successor(self, stop: trio.Event) -> None:
        """Starts a successor, and sets `stop` when the successor serves clients. Never raises.

        During a start, a stop or another hand-over, this method only logs a warning. If the successor fails, or if
        `stop` is set meanwhile, the successor is ended. A failure is counted and logged.
        """
        is_serving = self.predecessor_gone.is_set() and self.may_accept.is_set() and not stop.is_set()
        if self._is_starting_successor or not is_serving:
            log.warning("no successor is started", cause="a start, a stop or another hand-over is under way")
            return
        self._is_starting_successor = True
        self._begin_sharing()  # The successor accepts clients before this process learns of it.
        with self._supervisor.guard(Task.HAND_OVER):
            try:
                self.successor = await start_successor(self._sockets, stop)
            except SuccessorFailed as failure:
                log.error("the successor has failed, so this process continues to serve", cause=str(failure))
                self._supervisor.count(Task.HAND_OVER, failure)
            if self.successor:
                self._publishes_all = False
                self._service_manager.succeeded_by(self.successor.pid)
                stop.set()
        self._is_starting_successor = False
        if not self.successor:
            self._end_sharing()
