"""One writer at a time: a lease on a store.

Owns: who may write, until when, and the token that every writer gets. Must not know: what is written.

    _lease/00000007    the holder with token 7: who it is, and its last sign of life

The holder of the highest token may write. A process gets a token by making the file of that number, which only one can
do. It may do so when the last holder has released its lease, has died on this machine, or has given no sign of life for
`EXPIRY`. The file system's clock is the only one that this is measured by, so clocks of machines may differ.

A holder that was suspended does not know that its lease has expired. So a holder checks its lease before each step that
others would see (`Lease.check`): it gives a sign of life, and then looks for a higher token. A process that takes a
lease over works the other way round: it makes the file of its token, and then looks for a sign of life of the holder
before it. So at least one of the two notices the other.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from group_sidecar.spark.folders import FolderError, Folders

EXPIRY = 60.0
"""Seconds without a sign of life after which a lease may be taken over."""
_SIGNS = 6
"""A holder gives so many signs of life in that time."""
_RECENT = 1.0
"""Seconds for which a check holds. No process can take the lease over in that time, because the check renewed it."""
_FOLDER = "_lease"


class LeaseTakenError(Exception):
    """Another process writes to the store; the text says which, in one line."""


class LeaseLostError(Exception):
    """This process may no longer write to the store: another one has taken its lease over."""


class Lease:
    """The right to write to a store. Made by `held`.

    Attributes:
        token: grows with every holder.
    """

    def __init__(self, folders: Folders, token: int, clock: Callable[[], float]) -> None:
        self.token = token
        self._folders = folders
        self._clock = clock
        self._checked: float | None = None
        self._signs = 0
        self._lock = threading.Lock()

    def check(self) -> None:
        """Returns if this process may still write; to be called before each step that others would see.

        Raises:
            LeaseLostError: another process has taken the lease over.
            FolderError: the file system does not answer.
        """
        now = self._clock()
        if self._checked is not None and now - self._checked < _RECENT:
            return
        self.renew()
        if (newest := _newest(self._folders)) != self.token:
            self._checked = None
            holder = _holder(self._folders, newest)
            raise LeaseLostError(f"lost the lease on {self._folders.root}: {_described(holder)} has taken it over")
        self._checked = now

    def renew(self) -> None:
        """Gives a sign of life.

        Raises:
            FolderError: the file system does not answer.
        """
        with self._lock:
            self._signs += 1
            self._folders.write(_file(self.token), _spelled(signs=self._signs))

    def release(self) -> None:
        """Lets others write at once."""
        with self._lock:
            self._folders.write(_file(self.token), _spelled(signs=self._signs + 1, released=True))


@contextmanager
def held(folders: Folders, expiry: float = EXPIRY, clock: Callable[[], float] | None = None) -> Iterator[Lease]:
    """Takes the lease on a store, and releases it at the end.

    Args:
        folders: the store.
        expiry: seconds without a sign of life after which another's lease is taken over.
        clock: seconds that also pass while the machine is suspended.

    Raises:
        LeaseTakenError: another process has it.
        FolderError: the file system does not answer.
    """
    lease = Lease(folders, _taken(folders, expiry), clock or _boot_seconds)
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(expiry / _SIGNS):
            # The next check finds out what this means.
            with suppress(FolderError):
                lease.renew()

    thread = threading.Thread(target=live, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        ended.set()
        thread.join()
        with suppress(FolderError):
            lease.release()


def _taken(folders: Folders, expiry: float) -> int:
    """Takes the next token, and returns it."""
    last = _newest(folders)
    sign = folders.read(_file(last)) if last else None
    if last and not _is_free(folders, last, expiry):
        raise LeaseTakenError(_busy(folders, last))
    token = last + 1
    if not folders.claim(_file(token), _spelled(signs=0)):
        raise LeaseTakenError(_busy(folders, token))
    if _newest(folders) != token or (last and folders.read(_file(last)) not in (sign, None)):
        folders.remove(_file(token))
        raise LeaseTakenError(_busy(folders, _newest(folders)))
    for number in _tokens(folders):
        if number < token:
            with suppress(FolderError):
                folders.remove(_file(number))
    return token


def _is_free(folders: Folders, token: int, expiry: float) -> bool:
    holder = _holder(folders, token)
    if holder.get("released") or _has_died(holder):
        return True
    probe = f"{_FOLDER}/.probe-{uuid4().hex}"
    folders.write(probe, "")
    now, then = folders.modified_at(probe), folders.modified_at(_file(token))
    folders.remove(probe)
    return then is None or (now is not None and now - then > expiry)


def _has_died(holder: dict[str, Any]) -> bool:
    """Whether the holder ran on this machine, and does not any more."""
    machine = _machine()
    return machine is not None and holder.get("machine") == machine and _started(holder["pid"]) != holder["started"]


def _tokens(folders: Folders) -> list[int]:
    return sorted(int(name) for name in folders.below(_FOLDER) if name.isdigit())


def _newest(folders: Folders) -> int:
    return max(_tokens(folders), default=0)


def _file(token: int) -> str:
    return f"{_FOLDER}/{token:08}"


def _spelled(*, signs: int, released: bool = False) -> str:
    pid = os.getpid()
    holder = {"host": socket.gethostname(), "pid": pid, "machine": _machine(), "started": _started(pid)}
    return json.dumps({**holder, "signs": signs, "at": f"{datetime.now(UTC):%FT%TZ}", "released": released}) + "\n"


def _holder(folders: Folders, token: int) -> dict[str, Any]:
    """Returns the description of a lease's holder; empty if the file is being written just now."""
    try:
        holder = json.loads(folders.read(_file(token)) or "{}")
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _described(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')} (last heard of at {holder.get('at')})"


def _busy(folders: Folders, token: int) -> str:
    return f"{_described(_holder(folders, token))} writes to {folders.root}: only one may; nothing was taken"


def _machine() -> str | None:
    """This start of this machine, and the container in it; None where the kernel does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When a process of this machine started, as the kernel writes it; None if it does not run."""
    try:
        # The name is in parentheses, and may have any character.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else fields[18]


def _boot_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
