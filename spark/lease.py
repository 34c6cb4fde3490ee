"""A lease on a store, so that only one process at a time writes to it.

    _lease/00000007    the holder with token 7: its process, and the last renewal of its lease

The holder of the highest token may write. A process gets a token by creating the file of that number, which only one
process can do. A process may create the file if the last holder released its lease, died on this machine, or did not
renew its lease for `EXPIRY`. Only the file system's clock measures that time, so the clocks of machines may differ.

A holder that was suspended does not know that its lease has expired. So a holder checks its lease before each step that
other processes would see (`Lease.check`): the holder renews the lease, and then looks for a higher token. A process
that takes over a lease first creates the file of its token, and then looks for a renewal by the previous holder. So at
least one of the two processes notices the other process.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

from group_sidecar.spark.filesystem import FolderError, Folders

EXPIRY = 60.0
"""Seconds without a renewal after which a lease may be taken over."""
_RENEWALS_PER_EXPIRY = 6
"""How often a holder renews its lease within `EXPIRY`."""
_CHECK_VALID_SECONDS = 1.0
"""Seconds for which a check is valid. No other process can take over the lease meanwhile, because a check renews it."""
_FOLDER = "_lease"


class LeaseTakenError(Exception):
    """Another process writes to the store. The text names that process, in one line."""


class LeaseLostError(Exception):
    """This process may no longer write to the store, because another process has taken over the lease."""


class LeaseState(StrEnum):
    """Whether the holder of a lease may still write.

    - `HELD`: the holder has renewed the lease within `EXPIRY`.
    - `RELEASED`: the holder has ended and released the lease.
    - `DIED`: the holder ran on this machine, and has ended without releasing the lease.
    - `EXPIRED`: the holder has not renewed the lease for `EXPIRY`.
    """

    HELD = "held"
    RELEASED = "released"
    DIED = "died"
    EXPIRED = "expired"


@dataclass(frozen=True, kw_only=True)
class LeaseStatus:
    """The newest lease of a store.

    Attributes:
        token: the lease's token.
        holder: the process that holds or held the lease, for people.
        state: whether the holder may still write.
        renewed_at: the last renewal by the file system's clock; None if another process has just replaced the lease.
    """

    token: int
    holder: str
    state: LeaseState
    renewed_at: datetime | None


class Lease:
    """The right to write to a store. `hold_lease` creates this object.

    Attributes:
        token: a number that grows with every holder.
    """

    def __init__(self, folders: Folders, token: int, clock: Callable[[], float]) -> None:
        self.token = token
        self._folders = folders
        self._clock = clock
        self._checked: float | None = None
        self._renewals = 0
        self._lock = threading.Lock()

    def check(self) -> None:
        """Checks that this process may still write. Called before each step that other processes would see.

        Raises:
            LeaseLostError: another process has taken over the lease.
            FolderError: the file system does not respond.
        """
        now = self._clock()
        if self._checked is not None and now - self._checked < _CHECK_VALID_SECONDS:
            return
        self.renew()
        if (newest := _newest(self._folders)) != self.token:
            self._checked = None
            holder = _holder(self._folders, newest)
            raise LeaseLostError(f"lost the lease on {self._folders.root}: {_described(holder)} has taken it over")
        self._checked = now

    def renew(self) -> None:
        """Renews the lease.

        Raises:
            FolderError: the file system does not respond.
        """
        with self._lock:
            self._renewals += 1
            self._folders.write(_file(self.token), _to_json(renewals=self._renewals))

    def release(self) -> None:
        """Releases the lease, so that another process may take it at once."""
        with self._lock:
            self._folders.write(_file(self.token), _to_json(renewals=self._renewals + 1, released=True))


@contextmanager
def hold_lease(folders: Folders, expiry: float = EXPIRY, clock: Callable[[], float] | None = None) -> Iterator[Lease]:
    """Takes the lease on a store, renews it in a thread, and releases it at the end.

    Args:
        folders: the folders of the store.
        expiry: seconds without a renewal after which another process's lease is taken over.
        clock: returns seconds, and also advances while the machine is suspended.

    Raises:
        LeaseTakenError: another process holds the lease.
        FolderError: the file system does not respond.
    """
    lease = Lease(folders, _take_lease(folders, expiry), clock or _boot_seconds)
    ended = threading.Event()

    def keep_alive() -> None:
        while not ended.wait(expiry / _RENEWALS_PER_EXPIRY):
            # The next check finds out whether the lease is lost.
            with suppress(FolderError):
                lease.renew()

    thread = threading.Thread(target=keep_alive, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        ended.set()
        thread.join()
        with suppress(FolderError):
            lease.release()


def lease_status(folders: Folders, now: datetime | None = None) -> LeaseStatus | None:
    """Returns the newest lease of a store without changing anything; None if no process has ever had a lease.

    The age of the last renewal is measured by this machine's clock, and not by the file system's clock as for a process
    that takes over a lease.

    Args:
        folders: the folders of the store.
        now: the current time; the clock's time if None.

    Raises:
        FolderError: the file system does not respond.
    """
    if not (token := _newest(folders)):
        return None
    holder, renewed = _holder(folders, token), folders.modified_at(_file(token))
    renewed_at = None if renewed is None else datetime.fromtimestamp(renewed, UTC)
    state = LeaseState.HELD
    if holder.get("released"):
        state = LeaseState.RELEASED
    elif _has_died(holder):
        state = LeaseState.DIED
    elif renewed_at is not None and ((now or datetime.now(UTC)) - renewed_at).total_seconds() > EXPIRY:
        state = LeaseState.EXPIRED
    return LeaseStatus(token=token, holder=_name(holder), state=state, renewed_at=renewed_at)


def _take_lease(folders: Folders, expiry: float) -> int:
    """Creates the file of the next token. Returns the token."""
    last = _newest(folders)
    last_renewal = folders.read(_file(last)) if last else None
    if last and not _is_free(folders, last, expiry):
        raise LeaseTakenError(_busy(folders, last))
    token = last + 1
    if not folders.create_exclusively(_file(token), _to_json(renewals=0)):
        raise LeaseTakenError(_busy(folders, token))
    if _newest(folders) != token or (last and folders.read(_file(last)) not in (last_renewal, None)):
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
    now, renewed_at = folders.modified_at(probe), folders.modified_at(_file(token))
    folders.remove(probe)
    return renewed_at is None or (now is not None and now - renewed_at > expiry)


def _has_died(holder: dict[str, Any]) -> bool:
    """Whether the holder ran on this machine and has ended."""
    machine, pid, started = _machine(), holder.get("pid"), holder.get("started")
    if machine is None or pid is None or started is None:
        return False
    return holder.get("machine") == machine and _started(pid) != started


def _tokens(folders: Folders) -> list[int]:
    return sorted(int(name) for name in folders.children(_FOLDER) if name.isdigit())


def _newest(folders: Folders) -> int:
    return max(_tokens(folders), default=0)


def _file(token: int) -> str:
    return f"{_FOLDER}/{token:08}"


def _to_json(*, renewals: int, released: bool = False) -> str:
    pid = os.getpid()
    holder = {"host": socket.gethostname(), "pid": pid, "machine": _machine(), "started": _started(pid)}
    return json.dumps({**holder, "signs": renewals, "at": f"{datetime.now(UTC):%FT%TZ}", "released": released}) + "\n"


def _holder(folders: Folders, token: int) -> dict[str, Any]:
    """Returns the description of a lease's holder; empty if the lease's file is missing or incomplete."""
    try:
        holder = json.loads(folders.read(_file(token)) or "{}")
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _name(holder: dict[str, Any]) -> str:
    """Returns the name of a lease's holder, for people."""
    pid, host = holder.get("pid"), holder.get("host")
    return "an unknown process" if pid is None or host is None else f"process {pid} on {host}"


def _described(holder: dict[str, Any]) -> str:
    """Returns the name of a lease's holder and its last renewal, for people."""
    renewed_at = holder.get("at")
    return _name(holder) if renewed_at is None else f"{_name(holder)} (last heard of at {renewed_at})"


def _busy(folders: Folders, token: int) -> str:
    return f"{_described(_holder(folders, token))} writes to {folders.root}: only one process may, so nothing was read"


def _machine() -> str | None:
    """Returns an id of this boot of the machine and of this container; None if the kernel does not provide one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """Returns when a process of this machine started, as the kernel writes it; None if it does not run."""
    try:
        # The name is in parentheses and may contain any character.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else fields[18]


def _boot_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
