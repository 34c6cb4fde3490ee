"""Starting a successor, without a sidecar. tests/proxy/test_hot_restart.py restarts whole sidecars."""

import os
import sys
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from group_sidecar.proxy.listeners import successor
from group_sidecar.proxy.listeners.passed_sockets import PassedSocket
from group_sidecar.proxy.listeners.ports import listen
from group_sidecar.proxy.listeners.successor import Successor, SuccessorFailed, command_line, start_successor
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.proxy.fakes import ANY_PORT

ACCEPT_AND_REPORT = """
import os, socket
assert os.environ["LISTEN_PID"] == str(os.getpid())
names = os.environ["LISTEN_FDNAMES"].split(":")
assert names == ["", "two", "predecessor"], names
assert os.environ["LISTEN_FDS"] == "3"
open_fds = {int(fd) for fd in os.listdir("/proc/self/fd")} - {3, 4, 5}
assert sum(1 for fd in open_fds if fd > 5 and os.path.exists(f"/proc/self/fd/{fd}")) == 0, open_fds
socket.socket(fileno=4).accept()[0].sendall(b"hello")
socket.socket(fileno=5).sendall(b"ready")
"""
"""Checks what it was passed, sends a greeting at the second port, and reports that it is ready."""

IGNORE_SIGTERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"


def runs(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Makes a Python program the successor."""
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", program])


async def test_sockets_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The successor has the passed sockets under consecutive descriptors, and no other descriptor."""
    runs(monkeypatch, ACCEPT_AND_REPORT)
    [one], [two] = listen(ANY_PORT), listen(ANY_PORT)
    with one, two, trio.fail_after(GIVE_UP_SECONDS):
        process = await Successor.start([PassedSocket("", one), PassedSocket("two", two)])
        async with await trio.open_tcp_stream(*two.getsockname()) as client:
            assert await client.receive_some() == b"hello"
        await process.wait_until_ready(GIVE_UP_SECONDS)
        await process.end()


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        ("import sys; sys.exit(3)", "it ended with status 3"),
        ("import time; time.sleep(1000)", "it was not ready within 1 seconds"),
        (IGNORE_SIGTERM, "it was not ready within 1 seconds"),
        ("import os, time; os.close(3); time.sleep(1000)", "it closed its connection to this process"),
    ],
)
async def test_failure_is_reported(monkeypatch: pytest.MonkeyPatch, program: str, cause: str) -> None:
    """A successor that ends, is not ready in time, or gives up its connection is ended, and the error has the cause."""
    monkeypatch.setattr(successor, "END_SECONDS", 0.2)
    # On a busy machine, a Python process may need more than a second to start.
    monkeypatch.setattr(successor, "READY_SECONDS", 1.0 if cause.startswith("it was not ready") else GIVE_UP_SECONDS)
    runs(monkeypatch, program)
    with capture_logs() as lines, pytest.raises(SuccessorFailed) as failed:
        await start_successor(list, trio.Event())
    assert str(failed.value) == cause
    [started] = [line for line in lines if line["event"] == "a successor was started"]
    with pytest.raises(ProcessLookupError):
        os.kill(started["pid"], 0)


async def test_missing_program_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program that cannot be started raises SuccessorFailed."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(SuccessorFailed, match=r"could not be started: no such file"):
        await Successor.start([])


@pytest.mark.parametrize("is_script", [True, False])
def test_script_chooses_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_script: bool) -> None:
    """A script with a first line that names an interpreter is run by it, any other program by the same interpreter."""
    script = tmp_path / "group-sidecar"
    script.write_text("#!/new/python\n" if is_script else "print()\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "orig_argv", ["/old/python", str(script), "run"])
    assert command_line() == [*([] if is_script else ["/old/python"]), str(script), "run"]
