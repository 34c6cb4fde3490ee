"""Background tasks that fail: counted, logged, restarted, reported, and noticed by nobody else."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.coordinator.facts import CoordinatorMoved
from group_sidecar.metrics.journal import Journal
from group_sidecar.proxy import sidecar as whole
from group_sidecar.proxy.admin import serving
from group_sidecar.proxy.admin.http_connection import HttpConnection
from group_sidecar.proxy.client import connect
from group_sidecar.proxy.log_reader import LogReader
from group_sidecar.proxy.narrating import Narrator
from group_sidecar.proxy.outlet import Outlet
from group_sidecar.proxy.probe import _Prober
from group_sidecar.proxy.pump import Pump
from group_sidecar.proxy.reloading import Reloading
from group_sidecar.proxy.settling import _Settler
from group_sidecar.proxy.shrinking import _Shrinker
from group_sidecar.proxy.supervision import FAILING_SECONDS, Supervisor, Task
from group_sidecar.proxy.surveying import Surveyor
from group_sidecar.proxy.topic_outlet import TopicOutlet
from group_sidecar.proxy.verifying import _Verifier
from group_sidecar.proxy.wall_clock import WallClock
from tests.proxy.test_sidecar import Cluster, configured, get, sidecar


@pytest.fixture(autouse=True)
def _quick_log() -> Iterator[None]:
    """Unconfigured, structlog draws a traceback with all variables: a second in which clients lose patience."""
    with capture_logs():
        yield


# The supervisor alone.


class Flaky:
    """A part that fails so many times, and then runs until it is cancelled."""

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


async def test_failing_task_is_restarted_with_growing_pauses(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    supervisor, flaky = Supervisor(), Flaky(8)
    nursery.start_soon(supervisor.keep, Task.TAIL, flaky.run, "broker:9092")
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


async def test_failing_task_is_reported_for_a_while(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    supervisor = Supervisor()
    nursery.start_soon(supervisor.keep, Task.PROBE, Flaky(1).run, "broker:9092")
    await trio.sleep(1)
    [failing] = supervisor.failing()
    assert (failing.task, failing.broker, failing.failures, failing.error) == (
        "probe",
        "broker:9092",
        1,
        "RuntimeError",
    )
    await trio.sleep(FAILING_SECONDS)
    assert supervisor.failing() == []
    nursery.cancel_scope.cancel()


async def test_finished_task_is_not_restarted(autojump_clock: MockClock) -> None:
    starts: list[None] = []

    async def run() -> None:
        starts.append(None)

    await Supervisor().keep(Task.NODES, run)
    assert len(starts) == 1


async def test_cancellation_is_no_failure(autojump_clock: MockClock) -> None:
    supervisor = Supervisor()
    with trio.move_on_after(1) as scope:
        await supervisor.keep(Task.TAIL, trio.sleep_forever)
    assert scope.cancelled_caught
    assert set(supervisor.failures.values()) == {0}


async def test_failure_while_a_task_is_cancelled(autojump_clock: MockClock) -> None:
    """A nursery then raises the cancellation and the failure together."""
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
        await supervisor.keep(Task.TAIL, run)
    assert scope.cancelled_caught
    assert supervisor.failures[Task.TAIL] == 1


async def test_groups_of_exceptions_are_failures(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    supervisor = Supervisor()
    error = ExceptionGroup("two", [ExceptionGroup("one", [KeyError("k")])])
    nursery.start_soon(supervisor.keep, Task.TAIL, Flaky(1, lambda: error).run)
    await trio.sleep(1)
    assert [each.error for each in supervisor.failing()] == ["KeyError"]
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
    Task.CONNECTIONS: Part(Pump, "_sweep", {}),
    Task.JOURNAL: Part(Outlet, "_restate", {"journal": JOURNAL}),
    Task.JOURNAL_TOPIC: Part(TopicOutlet, "_write", {"journal": {"topic": "records"}}),
    Task.NODES: Part(whole, "brokers", {"mode": "gateway"}),
    Task.PROBE: Part(_Prober, "_round", {}),
    Task.RELIST: Part(whole.Sidecar, "_relist", {}),
    Task.SETTLING: Part(_Settler, "due", {}),
    Task.SHRINKING: Part(_Shrinker, "due", {}),
    Task.SWEEP: Part(Surveyor, "forget", {}),
    Task.TAIL: Part(LogReader, "discover", {}),
    Task.VERIFICATION: Part(_Verifier, "_next", {"answers": {"verify": 0.5}}),
}
FAILURES = 2


class Fault:
    """Stands before a function: raises so many times, then lets calls through."""

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
    """The tests run on the real clock: nothing waits for seconds."""
    monkeypatch.setattr(whole, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr("group_sidecar.proxy.pump.SWEEP_SECONDS", 0.05)
    monkeypatch.setattr("group_sidecar.proxy.shrinking.ROUND_SECONDS", 0.05)


@pytest.mark.parametrize("task", PARTS)
async def test_failing_part_leaves_clients_alone(
    task: Task, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, tmp_path: Any
) -> None:
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
    told = [line for line in lines if line["event"] == "a background task failed"]
    assert [(line["task"], str(line["exc_info"])) for line in told] == [(task, "a fault that was put there")]
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
    [failing] = json.loads(body)["failing_tasks"]
    assert (failing["task"], failing["failures"], failing["error"]) == (task, failures, "RuntimeError")


async def test_failing_disk_writer_loses_no_record(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, tmp_path: Any
) -> None:
    fault = Fault(monkeypatch, Journal, "write")
    upstream = await Cluster().start(nursery, 1)
    async with sidecar(upstream, journal={"folder": str(tmp_path)}) as (at, _), connect(*at.listen) as client:
        with trio.fail_after(20):
            while not fault.healed:  # noqa: ASYNC110  It is healed in a thread.
                await trio.sleep(0.01)
        await client.ask(ListGroupsRequest(), 0)
        await assert_reported(at.admin, Task.JOURNAL)
    assert any(each.stat().st_size for each in tmp_path.iterdir())
    nursery.cancel_scope.cancel()


async def test_failing_end_of_the_journal_does_not_fail_the_stop(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, tmp_path: Any
) -> None:
    close = Journal.close

    def broken(journal: Journal) -> None:
        close(journal)
        raise RuntimeError("a fault that was put there")

    monkeypatch.setattr(Journal, "close", broken)
    upstream = await Cluster().start(nursery, 1)
    async with sidecar(upstream, journal={"folder": str(tmp_path)}) as (at, _):
        assert (await get(at.admin, "/healthz"))[0] == 200
    nursery.cancel_scope.cancel()


async def test_failing_observer_of_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fact is told while a client's reply is handled: the other observers are told all the same."""
    Fault(monkeypatch, Narrator, "observe", 1)
    facts: list[Any] = []
    monkeypatch.setattr(whole.Sidecar, "_journal", lambda _, fact: facts.append(fact))
    running = whole.Sidecar(configured(upstream="127.0.0.1:1"))
    running._clock = WallClock()
    fact = CoordinatorMoved(group_id="g", at=1.0)
    running._observe(fact)
    assert facts == [fact]
    assert running._supervisor.failures[Task.FACTS] == 1


async def test_failing_reload_on_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    Fault(monkeypatch, Reloading, "reload", 1)
    running = whole.Sidecar(configured(upstream="127.0.0.1:1"))
    await running.reload_if_possible()
    assert running._supervisor.failures[Task.RELOAD] == 1


async def test_failing_acceptor_of_the_admin_port(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> None:
    """The port stays the same one."""
    fault = Fault(monkeypatch, serving._Port, "_make_room", 1)
    upstream = await Cluster().start(nursery, 1)
    async with sidecar(upstream) as (at, _), connect(*at.listen) as client:
        assert at.admin is not None
        with monkeypatch.context() as patched:
            patched.setattr(serving, "MOST_CONNECTIONS", 0)
            async with await trio.open_tcp_stream(*at.admin) as stream:
                assert await ended(stream)
        await client.ask(ListGroupsRequest(), 0)
        await assert_reported(at.admin, Task.ADMIN, 1)
    assert not fault.healed
    nursery.cancel_scope.cancel()


async def test_failing_connection_of_the_admin_port(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> None:
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
    """Whether the peer closes the connection without a word."""
    with trio.fail_after(10):
        try:
            return await stream.receive_some(1000) == b""
        except trio.BrokenResourceError:
            return True
