"""Keeps the background parts of the sidecar running: counts, logs and restarts a part that fails unexpectedly.

Owns: `Task`, the names of the parts, and `Supervisor`, which knows how often and when each part failed. It does not
know what a part does. Failures that a part expects, such as a broker that is down, are the part's own business.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

import trio

from group_sidecar.proxy.attempts import Attempts
from group_sidecar.proxy.logs import Recurring, log

FAILING_SECONDS = 60.0
"""A part counts as failing for so long after its last failure. A part that is restarted works again, or fails again,
within the longest pause between two attempts and its own interval."""


class Task(StrEnum):
    """The background parts; the closed set of the metric's label."""

    ADMIN = "admin"
    """The admin port."""
    CATCH_UP = "catch_up"
    """Applying replies that were forwarded before they were decoded, and looking into requests that got none."""
    CONNECTIONS = "connections"
    """Closing idle connections, and connecting clients to a broker that is not next door."""
    FACTS = "facts"
    """Telling the metrics, the flight recorder, the log and the journal what happened to groups."""
    JOURNAL = "journal"
    JOURNAL_TOPIC = "journal_topic"
    NODES = "nodes"
    """Learning the nodes of the cluster, in a gateway."""
    PROBE = "probe"
    RELIST = "relist"
    """Keeping the list of groups up to date."""
    RELOAD = "reload"
    """Reading the settings again."""
    SETTLING = "settling"
    SHRINKING = "shrinking"
    SWEEP = "sweep"
    """Removing members whose session has expired."""
    TAIL = "tail"
    VERIFICATION = "verification"


@dataclass(frozen=True, slots=True)
class Failing:
    """A part that failed lately.

    Attributes:
        task: which part.
        broker: the broker that the part works for; empty where it works for no single one.
        failures: how often it failed since the start of the process.
        error: the type of its last exception. The log has the message, which may say more than everybody may read.
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
    """Runs background parts so that none of their exceptions reaches anything else.

    Attributes:
        failures: unexpected exceptions since the start of the process, by part; every part has an entry.
    """

    def __init__(self) -> None:
        self.failures: dict[Task, int] = dict.fromkeys(Task, 0)
        self._last: dict[tuple[Task, str], _Failures] = {}
        self._recurring = Recurring()

    async def keep(self, task: Task, run: Callable[[], Awaitable[object]], broker: str = "") -> None:
        """Runs a part until it returns or is cancelled. Restarts it with growing pauses when it raises an exception."""
        attempts = Attempts()
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
        """Stops every exception of its block here, counts and logs it. A cancellation passes."""
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
        """Counts and logs a failure of a part that goes on by itself."""
        error = _innermost(error)
        self.failures[task] += 1
        last = self._last.setdefault((task, broker), _Failures())
        last.count, last.error, last.at = last.count + 1, type(error).__name__, trio.current_time()
        if times := self._recurring.due(task, broker, last.error):
            where = {"broker": broker} if broker else {}
            with suppress(OSError):  # Standard error may be a pipe that nobody reads any more.
                log.error("a background task failed", task=task.value, **where, times=times, exc_info=error)

    def failing(self) -> list[Failing]:
        """The parts that failed within the last `FAILING_SECONDS`."""
        now = trio.current_time()
        return [
            Failing(task, broker, last.count, last.error, now - last.at)
            for (task, broker), last in self._last.items()
            if now - last.at < FAILING_SECONDS
        ]

    def counts(self) -> Mapping[str, int]:
        """`failures` for the metric."""
        return {task.value: count for task, count in self.failures.items()}


def _innermost(error: BaseException) -> BaseException:
    """The first of the exceptions that nurseries have put together; the others followed from it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
