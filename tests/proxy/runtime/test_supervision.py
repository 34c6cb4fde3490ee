"""Tests that failures of background tasks are counted, logged and reported, and that nothing else is affected."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.coordinator.model.facts import CoordinatorMoved
from group_sidecar.metrics.journal_segments import JournalSegments
from group_sidecar.proxy import gateway_routes
from group_sidecar.proxy import sidecar as whole
from group_sidecar.proxy.admin import http_server
from group_sidecar.proxy.admin.http_connection import HttpConnection
from group_sidecar.proxy.broker.kafka_client import connect
from group_sidecar.proxy.broker.probe import _Prober
from group_sidecar.proxy.broker.reconcile import _Reconciler
from group_sidecar.proxy.broker.shrink import _Shrinker
from group_sidecar.proxy.broker.verification import Verifier
from group_sidecar.proxy.config.reload import ConfigReloader
from group_sidecar.proxy.dataplane.connections import ConnectionManager
from group_sidecar.proxy.journal.topic_writer import TopicWriter
from group_sidecar.proxy.journal.writer import JournalWriter
from group_sidecar.proxy.offsets_log.partition_reader import PartitionReader
from group_sidecar.proxy.runtime.event_log import EventLog
from group_sidecar.proxy.runtime.shared_snapshot import SharedSnapshot
from group_sidecar.proxy.runtime.supervision import FAILING_SECONDS, Supervisor, Task
from group_sidecar.proxy.runtime.wall_clock import WallClock
from tests.proxy.whole_sidecar import Cluster, configured, get, sidecar


@pytest.fixture(autouse=True)
def _quick_log() -> Iterator[None]:
    """Sets up a short log. Without it, structlog prints a traceback with all variables, which takes a second."""
    with capture_logs():
        yield


# The supervisor alone.


class Flaky:
    """A part that fails `failures` times, and then runs until it is cancelled."""

    def __init__(self, failures: int, error: Callable[[], BaseException] = lambda: RuntimeError("no idea")) -> None:
        self.left = failures
        self.error = error
        self.starts: list[float] = []

    async def run(self) -> None:
        self.starts.append(trio.current_time())
        if self.left:
            self.left -= 1
            raise self.error()
        await trio.sleep_forever()


async def test_failing_task_restarts_with_backoff(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A failing task restarts with growing pauses, and its failures are counted and logged once."""
    supervisor, flaky = Supervisor(), Flaky(8)
    nursery.start_soon(supervisor.keep_running, Task.TAIL, flaky.run, "broker:9092")
    with capture_logs() as lines:
        await trio.sleep(40)
    pauses = [later - earlier for earlier, later in zip(flaky.starts, flaky.starts[1:], strict=False)]
    assert len(pauses) == 8
    assert pauses[0] <= 0.2
    assert all(pause >= 5 for pause in pauses[6:])
    assert supervisor.counts()["tail"] == 8
    assert set(supervisor.counts()) == {task.value for task in Task}
    [line] = lines
    assert (line["event"], line["task"], line["broker"]) == ("a background task failed", "tail", "broker:9092")
    nursery.cancel_scope.cancel()


async def test_failing_task_is_reported_then_cleared(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A failed task is reported as failing until it has run long enough without a failure."""
    supervisor = Supervisor()
    nursery.start_soon(supervisor.keep_running, Task.PROBE, Flaky(1).run, "broker:9092")
    await trio.sleep(1)
    [failing_tasks] = supervisor.failing_tasks()
    assert (failing_tasks.task, failing_tasks.broker, failing_tasks.failures, failing_tasks.error) == (
        "probe",
        "broker:9092",
        1,
        "RuntimeError",
    )
    await trio.sleep(FAILING_SECONDS)
    assert supervisor.failing_tasks() == []
    nursery.cancel_scope.cancel()


async def test_finished_task_is_not_restarted(autojump_clock: MockClock) -> None:
    """A task that returns is not restarted."""
    starts: list[None] = []

    async def run() -> None:
        starts.append(None)

    await Supervisor().keep_running(Task.NODES, run)
    assert len(starts) == 1


async def test_cancellation_is_no_failure(autojump_clock: MockClock) -> None:
    """The cancellation of a task does not count as a failure."""
    supervisor = Supervisor()
    with trio.move_on_after(1) as scope:
        await supervisor.keep_running(Task.TAIL, trio.sleep_forever)
    assert scope.cancelled_caught
    assert set(supervisor.failures.values()) == {0}


async def test_failure_on_cancellation_is_counted(autojump_clock: MockClock) -> None:
    """A failure during cancellation counts. The cancellation still ends the task."""
    supervisor = Supervisor()

    async def stubborn() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while it ends")

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stubborn)
            await trio.sleep_forever()

    with trio.move_on_after(1) as scope:
        await supervisor.keep_running(Task.TAIL, run)
    assert scope.cancelled_caught
    assert supervisor.failures[Task.TAIL] == 1


async def test_exception_group_reports_inner_error(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A nested exception group counts as a failure and is reported with its inner exception."""
    supervisor = Supervisor()
    error = ExceptionGroup("two", [ExceptionGroup("one", [KeyError("k")])])
    nursery.start_soon(supervisor.keep_running, Task.TAIL, Flaky(1, lambda: error).run)
    await trio.sleep(1)
    assert [each.error for each in supervisor.failing_tasks()] == ["KeyError"]
    nursery.cancel_scope.cancel()


# Each part, in a whole sidecar.


class Part(NamedTuple):
    """Where to break a part: an attribute that the part calls, and settings that make it run."""

    owner: Any
    name: str
    settings: dict[str, Any]
    works_again: bool = True


JOURNAL: dict[str, Any] = {"interval_seconds": 1}
PARTS: dict[Task, Part] = {
    Task.CONNECTIONS: Part(ConnectionManager, "_sweep", {}),
    Task.JOURNAL: Part(JournalWriter, "_write_snapshot", {"journal": JOURNAL}),
    Task.JOURNAL_TOPIC: Part(TopicWriter, "_write", {"journal": {"topic": "records"}}),
    Task.NODES: Part(gateway_routes, "brokers", {"mode": "gateway"}),
    Task.PROBE: Part(_Prober, "_round", {}),
    Task.RELIST: Part(whole.Sidecar, "_relist", {}),
    Task.RECONCILE: Part(_Reconciler, "due", {}),
    Task.SHRINKING: Part(_Shrinker, "due", {}),
    Task.SWEEP: Part(SharedSnapshot, "forget", {}),
    Task.TAIL: Part(PartitionReader, "discover", {}),
    Task.VERIFICATION: Part(Verifier, "_next", {"answers": {"verify": 0.5}}),
}
FAILURES = 2


class Fault:
    """Wraps a function: the first `failures` calls raise, and later calls pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, failures: int = FAILURES) -> None:
        self._original = getattr(owner, name)
        self._left = failures
        self.healed = False
        fault = self

        def broken(*args: Any, **kwargs: Any) -> Any:
            return fault.call(*args, **kwargs)

        monkeypatch.setattr(owner, name, broken)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        if self._left:
            self._left -= 1
            raise RuntimeError("a fault that was put there")
        self.healed = True
        return self._original(*args, **kwargs)


def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens all pauses, because these tests run on the real clock."""
    monkeypatch.setattr(whole, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr("group_sidecar.proxy.dataplane.connections.SWEEP_SECONDS", 0.05)
    monkeypatch.setattr("group_sidecar.proxy.broker.shrink.ROUND_SECONDS", 0.05)


@pytest.mark.parametrize("task", PARTS)
async def test_failing_part_leaves_clients_alone(
    task: Task, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, tmp_path: Any
) -> None:
    """A failing background task is counted, logged and restarted while clients get their replies."""
    part = PARTS[task]
    settings = dict(part.settings)
    if settings.get("journal") is JOURNAL:
        settings["journal"] = {**JOURNAL, "folder": str(tmp_path)}
    short_pauses(monkeypatch)
    fault = Fault(monkeypatch, part.owner, part.name)
    upstream = await Cluster().start(nursery, 1)
    with capture_logs() as lines:
        async with sidecar(upstream, **settings) as (at, _), connect(*at.listen) as client:
            with trio.fail_after(20):
                while not fault.healed:
                    await client.ask(ListGroupsRequest(), 0)
                    await trio.sleep(0.01)
            await client.ask(ListGroupsRequest(), 0)
            await assert_reported(at.admin, task)
    failures = [line for line in lines if line["event"] == "a background task failed"]
    assert [(line["task"], str(line["exc_info"])) for line in failures] == [(task, "a fault that was put there")]
    nursery.cancel_scope.cancel()


async def assert_reported(admin: Any, task: Task, failures: int = FAILURES) -> None:
    _, metrics = await get(admin, "/metrics")
    assert f'group_sidecar_task_failures_total{{task="{task}"}} {failures}.0\n'.encode() in metrics
    with trio.fail_after(20):
        while True:
            status, body = await get(admin, "/readyz")
            if status == 200:
                break
            await trio.sleep(0.01)
    [failing_tasks] = json.loads(body)["failing_tasks"]
    assert (failing_tasks["task"], failing_tasks["failures"], failing_tasks["error"]) == (
        task,
        failures,
        "RuntimeError",
    )


async def test_failing_disk_writer_recovers(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, tmp_path: Any
) -> None:
    """A failing write of the journal is reported, and the writer then writes records to disk."""
    fault = Fault(monkeypatch, JournalSegments, "write")
    upstream = await Cluster().start(nursery, 1)
    async with sidecar(upstream, journal={"folder": str(tmp_path)}) as (at, _), connect(*at.listen) as client:
        with trio.fail_after(20):
            while not fault.healed:  # noqa: ASYNC110  It is healed in a thread.
                await trio.sleep(0.01)
        await client.ask(ListGroupsRequest(), 0)
        await assert_reported(at.admin, Task.JOURNAL)
    assert any(each.stat().st_size for each in tmp_path.iterdir())
    nursery.cancel_scope.cancel()


async def test_failing_journal_close_allows_stop(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, tmp_path: Any
) -> None:
    """A failure to close the journal does not fail the stop of the sidecar."""
    close = JournalSegments.close

    def broken(journal: JournalSegments) -> None:
        close(journal)
        raise RuntimeError("a fault that was put there")

    monkeypatch.setattr(JournalSegments, "close", broken)
    upstream = await Cluster().start(nursery, 1)
    async with sidecar(upstream, journal={"folder": str(tmp_path)}) as (at, _):
        assert (await get(at.admin, "/healthz"))[0] == 200
    nursery.cancel_scope.cancel()


async def test_failing_observer_skips_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing observer of a fact is counted, and the other observers still get the fact."""
    Fault(monkeypatch, EventLog, "observe", 1)
    facts: list[Any] = []
    monkeypatch.setattr(whole.Sidecar, "_write_to_journal", lambda _, fact: facts.append(fact))
    running = whole.Sidecar(configured(upstream="127.0.0.1:1"))
    running._clock = WallClock()
    fact = CoordinatorMoved(group_id="g", at=1.0)
    running._observe(fact)
    assert facts == [fact]
    assert running._supervisor.failures[Task.FACTS] == 1


async def test_failing_reload_on_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing reload after a signal counts as a failure and raises no exception."""
    Fault(monkeypatch, ConfigReloader, "reload", 1)
    running = whole.Sidecar(configured(upstream="127.0.0.1:1"))
    await running.reload_if_possible()
    assert running._supervisor.failures[Task.RELOAD] == 1


async def test_failing_admin_acceptor_is_restarted(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> None:
    """A failing acceptor of the admin port is counted, and the port then answers again."""
    fault = Fault(monkeypatch, http_server._AdminListener, "_make_room", 1)
    upstream = await Cluster().start(nursery, 1)
    async with sidecar(upstream) as (at, _), connect(*at.listen) as client:
        assert at.admin is not None
        with monkeypatch.context() as patched:
            patched.setattr(http_server, "MAX_CONNECTIONS", 0)
            async with await trio.open_tcp_stream(*at.admin) as stream:
                assert await ended(stream)
        await client.ask(ListGroupsRequest(), 0)
        await assert_reported(at.admin, Task.ADMIN, 1)
    assert not fault.healed
    nursery.cancel_scope.cancel()


async def test_failing_admin_connection_is_counted(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> None:
    """A failing connection of the admin port is counted, and the port still answers others."""
    Fault(monkeypatch, HttpConnection, "run", 1)
    upstream = await Cluster().start(nursery, 1)
    async with sidecar(upstream) as (at, _), connect(*at.listen) as client:
        assert at.admin is not None
        async with await trio.open_tcp_stream(*at.admin) as stream:
            await stream.send_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert await ended(stream)
        await client.ask(ListGroupsRequest(), 0)
        await assert_reported(at.admin, Task.ADMIN, 1)
    nursery.cancel_scope.cancel()


async def ended(stream: trio.SocketStream) -> bool:
    """Whether the peer closes the connection without sending anything."""
    with trio.fail_after(10):
        try:
            return await stream.receive_some(1000) == b""
        except trio.BrokenResourceError:
            return True
