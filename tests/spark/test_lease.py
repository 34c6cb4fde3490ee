"""Only one process at a time holds a store's lease, and only the holder of a valid lease may write to the store."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event, Semaphore, Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark import lease as lease_module
from group_sidecar.spark.filesystem import FolderError, Folders
from group_sidecar.spark.lease import (
    EXPIRY,
    Lease,
    LeaseLostError,
    LeaseState,
    LeaseTakenError,
    hold_lease,
    lease_status,
)

NEVER = 1e6
"""Seconds. These leases do not expire by themselves, and are not renewed."""


@pytest.fixture
def folders(spark: SparkSession, tmp_path: Path) -> Folders:
    return Folders(spark, str(tmp_path))


@contextmanager
def passing_for_another_machine() -> Iterator[None]:
    """Makes this process write leases as if it were on another machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease_module, "_machine", lambda: "another machine")
        yield


def suspend(tmp_path: Path, lease: Lease, seconds: float) -> None:
    """Makes the holder's last renewal older by `seconds`."""
    file = tmp_path / "_lease" / f"{lease.token:08}"
    before = file.stat().st_mtime - seconds
    os.utime(file, (before, before))


def test_lease_is_exclusive_until_release(folders: Folders) -> None:
    """Only one process holds a lease until it is released. The next lease has a higher token."""
    with hold_lease(folders) as first:
        first.check()
        with (
            pytest.raises(LeaseTakenError, match=rf"^process {os.getpid()} on .* writes to .*: only one process may"),
            hold_lease(folders),
        ):
            pass
        first.check()
    with hold_lease(folders) as second:
        assert second.token == first.token + 1
        second.check()


def test_concurrent_attempts_yield_one_lease(folders: Folders) -> None:
    """Exactly one of many concurrent attempts gets the lease."""
    for _ in range(5):
        ready, refused, over = Barrier(8), Semaphore(0), Event()
        tokens: list[int] = []

        def take(ready: Barrier, refused: Semaphore, over: Event, tokens: list[int]) -> None:
            ready.wait()
            try:
                with hold_lease(folders, NEVER) as lease:
                    tokens.append(lease.token)
                    lease.check()
                    over.wait()
            except LeaseTakenError:
                refused.release()

        threads = [Thread(target=take, args=(ready, refused, over, tokens), daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(7):
            assert refused.acquire(timeout=60)
        over.set()
        for thread in threads:
            thread.join()
        assert len(tokens) == 1


def test_expired_lease_is_fenced(folders: Folders, tmp_path: Path) -> None:
    """An expired lease is taken over, and the former holder's check fails without releasing the new lease."""
    now = 0.0
    with passing_for_another_machine(), hold_lease(folders, NEVER, lambda: now) as suspended:
        suspended.check()
        suspend(tmp_path, suspended, NEVER - 60)
        with pytest.raises(LeaseTakenError), hold_lease(folders, NEVER):
            pass
        suspend(tmp_path, suspended, 120)
        with hold_lease(folders, NEVER) as next_one:
            now += 2
            for _ in range(2):
                with pytest.raises(LeaseLostError, match=r"^lost the lease on .* has taken it over"):
                    suspended.check()
            next_one.check()
    # The former holder has not released the lease of another holder.
    with hold_lease(folders, NEVER) as last:
        assert last.token == next_one.token + 1


def test_check_is_valid_for_one_second(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the lease holds for one second, and the next check after that renews the lease."""
    times = iter((0.0, 0.5, 0.9, 1.1, 1.2, 7.0))
    signs: list[int] = []
    with hold_lease(folders, NEVER, lambda: next(times)) as lease:
        monkeypatch.setattr(lease, "renew", lambda: signs.append(1))
        given = []
        for _ in range(6):
            lease.check()
            given.append(len(signs))
    assert given == [1, 1, 1, 2, 2, 3]


def test_live_holder_renews_lease(folders: Folders, tmp_path: Path) -> None:
    """A live holder renews its lease regularly."""
    with passing_for_another_machine(), hold_lease(folders, 0.06) as lease:
        file = tmp_path / "_lease" / f"{lease.token:08}"

        def signs() -> int:
            return int(json.loads(file.read_text() or '{"signs": 0}')["signs"])

        while signs() < 3:
            pass


def test_late_renewal_keeps_lease(folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal in the last moment keeps the lease and defeats the takeover."""
    with passing_for_another_machine(), hold_lease(folders, NEVER) as lease:
        suspend(tmp_path, lease, NEVER + 60)
        create_exclusively = Folders.create_exclusively

        def woken(self: Folders, file: str, text: str) -> bool:
            lease.renew()
            return create_exclusively(self, file, text)

        with monkeypatch.context() as patch:
            patch.setattr(Folders, "create_exclusively", woken)
            with pytest.raises(LeaseTakenError), hold_lease(folders, NEVER):
                pass
        lease.check()


def test_dead_local_holder_loses_lease(folders: Folders, tmp_path: Path) -> None:
    """A lease of a dead process on the same machine is taken over at once."""
    dead = (
        "import sys\nfrom group_sidecar.spark.lease import _to_json\nopen(sys.argv[1], 'w').write(_to_json(renewals=1))"
    )
    file = tmp_path / "_lease" / "00000007"
    file.parent.mkdir()
    subprocess.run([sys.executable, "-c", dead, file], check=True)
    with hold_lease(folders) as lease:
        assert lease.token == 8
    assert [path.name for path in file.parent.iterdir()] == ["00000008"]


def test_holder_killed_while_it_renews_loses_lease(folders: Folders, tmp_path: Path) -> None:
    """The lease of a process that is killed in the middle of a renewal is taken over at once."""
    program = """if True:
        import os, sys
        from pathlib import Path
        from pyspark.sql import SparkSession
        from group_sidecar.spark.filesystem import Folders
        from group_sidecar.spark.lease import hold_lease

        def killed(*_):
            os.kill(os.getpid(), 9)

        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
        with hold_lease(Folders(spark, sys.argv[1])) as lease:
            Path.replace = killed
            lease.renew()
        """
    died = subprocess.run([sys.executable, "-c", program, tmp_path], check=False, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    with hold_lease(folders) as lease:
        assert lease.token == 2


def test_incomplete_lease_file_expires(folders: Folders, tmp_path: Path) -> None:
    """A lease file without content counts as a lease of another process until it expires."""
    file = tmp_path / "_lease" / "00000001"
    file.parent.mkdir()
    file.touch()
    with pytest.raises(LeaseTakenError, match=r"^an unknown process writes to "), hold_lease(folders):
        pass
    os.utime(file, (0, 0))
    with hold_lease(folders) as lease:
        assert lease.token == 2


@pytest.mark.parametrize("missing", ["pid", "started"])
def test_lease_without_process_expires(folders: Folders, tmp_path: Path, missing: str) -> None:
    """A lease file that does not identify its process is held until it expires, as on another machine."""
    file = tmp_path / "_lease" / "00000001"
    file.parent.mkdir()
    holder = json.loads(lease_module._to_json(renewals=1))
    file.write_text(json.dumps({name: value for name, value in holder.items() if name != missing}))
    status = lease_status(folders)
    assert status is not None
    assert status.state == LeaseState.HELD
    assert status.holder.startswith("an unknown process" if missing == "pid" else f"process {os.getpid()} on ")
    os.utime(file, (0, 0))
    with hold_lease(folders) as lease:
        assert lease.token == 2


def test_unwritable_folder_has_no_lease(spark: SparkSession, tmp_path: Path) -> None:
    """A folder that cannot be written raises FolderError."""
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match=r"^cannot "), hold_lease(Folders(spark, str(tmp_path / "file"))):
        pass


def test_status_of_unlistable_folder_is_an_error(folders: Folders) -> None:
    """If the folder of the leases cannot be listed, reading the status raises FolderError."""
    folders._system = Vanishing(folders._system)
    with pytest.raises(FolderError, match=r"^cannot list .*/_lease: "):
        lease_status(folders)


class Vanishing:
    """A file system whose folders are removed after a look whether they exist."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def __getattr__(self, name: str) -> Any:
        return (lambda _: True) if name == "exists" else getattr(self._system, name)


def test_status_is_read_without_a_trace(folders: Folders, tmp_path: Path) -> None:
    """The status names the holder and whether it may still write. Reading it changes no file."""
    assert lease_status(folders) is None
    assert not (tmp_path / "_lease").exists()
    with passing_for_another_machine(), hold_lease(folders, NEVER) as lease:
        files = {path: path.stat().st_mtime for path in (tmp_path / "_lease").iterdir()}
        held = lease_status(folders)
        assert held is not None
        assert (held.token, held.state) == (lease.token, LeaseState.HELD)
        assert held.holder.startswith(f"process {os.getpid()} on ")
        assert {path: path.stat().st_mtime for path in (tmp_path / "_lease").iterdir()} == files
        suspend(tmp_path, lease, EXPIRY + 1)
        expired = lease_status(folders)
        assert expired is not None
        assert expired.state == LeaseState.EXPIRED
    released = lease_status(folders)
    assert released is not None
    assert released.state == LeaseState.RELEASED
    with hold_lease(folders, NEVER), pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease_module, "_started", lambda _: None)
        died = lease_status(folders)
        assert died is not None
        assert died.state == LeaseState.DIED


def test_file_created_during_read_is_read(folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another process creates after the first attempt to read it is read, and causes no error."""
    system = folders._plain

    class Late:
        """Creates the file when somebody has tried to open it."""

        exists = system.exists

        def open(self, path: Any) -> Any:
            try:
                return system.open(path)
            finally:
                (tmp_path / "file").write_text("text")

    monkeypatch.setattr(folders, "_plain", Late())
    assert folders.read("file") == "text"
    assert folders.read("missing") is None
