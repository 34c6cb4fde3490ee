"""Keeps the background parts of the sidecar running: counts, logs and restarts a part that fails unexpectedly.

`Task` names the parts. `Supervisor` knows how often and when each part failed. Failures that a part expects, such as a
broker that is down, are handled by the part itself.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import overload

import trio

from group_sidecar.proxy.runtime.backoff import Backoff
from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log

FAILING_SECONDS = 60.0
"""A part counts as failing for this many seconds after its last failure. A restarted part works or fails again in less
time: at the latest after the longest pause between two attempts and the part's own interval."""


class Task(StrEnum):
    """The background parts. The values of this enum are the label values of `group_sidecar_task_failures_total`."""

    ADMIN = "admin"
    """The admin port."""
    DEFERRED = "catch_up"
    """Applying replies that were forwarded before they were decoded, and handling requests that lost their replies."""
    CONNECTIONS = "connections"
    """Accepting clients, serving ready sockets, closing idle connections, and connecting to a distant broker."""
    FACTS = "facts"
    """Passing facts about groups to the metrics, the flight recorder, the log and the journal."""
    HAND_OVER = "hand_over"
    """Starting a successor that takes over the ports."""
    JOURNAL = "journal"
    """Writing records to the journal's folder."""
    JOURNAL_TOPIC = "journal_topic"
    """Writing records to the journal's topic."""
    NODES = "nodes"
    """Learning the nodes of the cluster, and watching the bootstrap broker, in a gateway."""
    PROBE = "probe"
    """Asking the broker for information that no client's traffic shows, such as versions and log ends."""
    RELIST = "relist"
    """Keeping the list of groups up to date."""
    RELOAD = "reload"
    """Reading the settings again."""
    RECONCILE = "settling"
    """Asking the broker about groups in doubt, and about missing groups and topics."""
    SHRINKING = "shrinking"
    """Removing members from groups that exceed their size limit."""
    SWEEP = "sweep"
    """Marking members as overdue if their sessions must have expired."""
    TAIL = "tail"
    """Reading `__consumer_offsets`."""
    VERIFICATION = "verification"
    """Comparing local answers with the broker's answers."""


@dataclass(frozen=True, slots=True)
class FailingTask:
    """A part that failed lately.

    Attributes:
        task: the part.
        broker: the broker that the part works for, or empty if the part works for no single broker.
        failures: how often the part failed since the start of the process.
        error: the type of the part's last exception. The exception's message is only in the log, because it may contain
            confidential details.
        seconds_ago: seconds since the last failure.
    """

    task: Task
    broker: str
    failures: int
    error: str
    seconds_ago: float


@dataclass(slots=True)
class _Failures:
    count: int = 0
    error: str = ""
    at: float = 0.0


class Supervisor:
    """Runs background parts, and contains their exceptions.

    Attributes:
        failures: the number of unexpected exceptions since the start of the process, by part. Every part has an entry.
    """

    def __init__(self) -> None:
        self.failures: dict[Task, int] = dict.fromkeys(Task, 0)
        self._last: dict[tuple[Task, str], _Failures] = {}
        self._log_throttle = LogThrottle()

    async def keep_running(self, task: Task, run: Callable[[], Awaitable[object]], broker: str = "") -> None:
        """Runs a part until it returns or is cancelled. Restarts it with growing pauses when it raises an exception."""
        attempts = Backoff()
        while True:
            started_at, ended = trio.current_time(), False
            with self.guard(task, broker):
                await run()
                ended = True
            if ended:
                return
            if trio.current_time() - started_at > FAILING_SECONDS:
                attempts.failures = 0
            attempts.failures += 1
            await trio.sleep(attempts.pause())

    @contextmanager
    def guard(self, task: Task, broker: str = "") -> Iterator[None]:
        """Catches, counts and logs every exception of its block, but passes on a cancellation."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  No part may end the process or a client's connection.
            self.failed(task, error, broker)
        except BaseExceptionGroup as group:
            # A part that is cancelled may fail while it cleans up.
            failed, others = group.split(Exception)
            if failed is not None:
                self.failed(task, failed, broker)
            if others is not None:
                raise others from None

    def failed(self, task: Task, error: BaseException, broker: str = "") -> None:
        """Counts and logs a failure of a part that continues by itself."""
        error = first_error(error)
        self.count(task, error, broker)
        if times := self._log_throttle.due(task, broker, type(error).__name__):
            where = {"broker": broker} if broker else {}
            with suppress(OSError):  # Standard error may be a pipe that nobody reads any more.
                log.error("a background task failed", task=task.value, **where, times=times, exc_info=error)

    def count(self, task: Task, error: BaseException, broker: str = "") -> None:
        """Counts a failure that the part itself logs."""
        self.failures[task] += 1
        last = self._last.setdefault((task, broker), _Failures())
        last.count, last.error, last.at = last.count + 1, type(error).__name__, trio.current_time()

    def failing_tasks(self) -> list[FailingTask]:
        """Returns the parts that failed within the last `FAILING_SECONDS`."""
        now = trio.current_time()
        return [
            FailingTask(task, broker, last.count, last.error, now - last.at)
            for (task, broker), last in self._last.items()
            if now - last.at < FAILING_SECONDS
        ]

    def counts(self) -> Mapping[str, int]:
        """Returns `failures` for the metric."""
        return {task.value: count for task, count in self.failures.items()}


@overload
def first_error(error: Exception) -> Exception: ...
@overload
def first_error(error: BaseException) -> BaseException: ...
def first_error(error: BaseException) -> BaseException:
    """Returns the first exception of nested exception groups. The other exceptions usually result from the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
