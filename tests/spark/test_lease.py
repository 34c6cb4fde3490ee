"""Who may write to a store: one process at a time, and none that was taken for dead."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event, Semaphore, Thread

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark import lease as lease_module
from group_sidecar.spark.folders import FolderError, Folders
from group_sidecar.spark.lease import Lease, LeaseLostError, LeaseTakenError, held

NEVER = 1e6
"""Seconds: these leases do not expire by themselves, and give no sign of life."""


@pytest.fixture
def folders(spark: SparkSession, tmp_path: Path) -> Folders:
    return Folders(spark, str(tmp_path))


@contextmanager
def passing_for_another_machine() -> Iterator[None]:
    """What is written meanwhile seems to come from another machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease_module, "_machine", lambda: "another machine")
        yield


def suspend(tmp_path: Path, lease: Lease, seconds: float) -> None:
    """The holder's last sign of life was so long ago."""
    file = tmp_path / "_lease" / f"{lease.token:08}"
    before = file.stat().st_mtime - seconds
    os.utime(file, (before, before))


def test_a_lease_is_one_processs_until_it_is_released(folders: Folders) -> None:
    with held(folders) as first:
        first.check()
        with (
            pytest.raises(LeaseTakenError, match=rf"^process {os.getpid()} on .* writes to .*: only one may"),
            held(folders),
        ):
            pass
        first.check()
    with held(folders) as second:
        assert second.token == first.token + 1
        second.check()


def test_of_many_that_try_at_once_one_has_the_lease(folders: Folders) -> None:
    for _ in range(5):
        ready, refused, over = Barrier(8), Semaphore(0), Event()
        tokens: list[int] = []

        def take(ready: Barrier, refused: Semaphore, over: Event, tokens: list[int]) -> None:
            ready.wait()
            try:
                with held(folders, NEVER) as lease:
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


def test_a_lease_that_expired_is_taken_over_and_its_holder_is_fenced_off(folders: Folders, tmp_path: Path) -> None:
    now = 0.0
    with passing_for_another_machine(), held(folders, NEVER, lambda: now) as suspended:
        suspended.check()
        suspend(tmp_path, suspended, NEVER - 60)
        with pytest.raises(LeaseTakenError), held(folders, NEVER):
            pass
        suspend(tmp_path, suspended, 120)
        with held(folders, NEVER) as next_one:
            now += 2
            for _ in range(2):
                with pytest.raises(LeaseLostError, match=r"^lost the lease on .* has taken it over"):
                    suspended.check()
            next_one.check()
    # The holder that lost it released nothing that is not its own.
    with held(folders, NEVER) as last:
        assert last.token == next_one.token + 1


def test_a_check_holds_for_a_second_only(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0.0, 0.5, 0.9, 1.1, 1.2, 7.0))
    signs: list[int] = []
    with held(folders, NEVER, lambda: next(times)) as lease:
        monkeypatch.setattr(lease, "renew", lambda: signs.append(1))
        given = []
        for _ in range(6):
            lease.check()
            given.append(len(signs))
    assert given == [1, 1, 1, 2, 2, 3]


def test_a_holder_that_lives_gives_signs_of_life(folders: Folders, tmp_path: Path) -> None:
    with passing_for_another_machine(), held(folders, 0.06) as lease:
        file = tmp_path / "_lease" / f"{lease.token:08}"

        def signs() -> int:
            return int(json.loads(file.read_text() or '{"signs": 0}')["signs"])

        while signs() < 3:
            pass


def test_a_sign_of_life_in_the_last_moment_keeps_the_lease(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with passing_for_another_machine(), held(folders, NEVER) as lease:
        suspend(tmp_path, lease, NEVER + 60)
        claim = Folders.claim

        def woken(self: Folders, file: str, text: str) -> bool:
            lease.renew()
            return claim(self, file, text)

        with monkeypatch.context() as patch:
            patch.setattr(Folders, "claim", woken)
            with pytest.raises(LeaseTakenError), held(folders, NEVER):
                pass
        lease.check()


def test_a_holder_that_died_on_this_machine_is_no_holder(folders: Folders, tmp_path: Path) -> None:
    dead = "import sys\nfrom group_sidecar.spark.lease import _spelled\nopen(sys.argv[1], 'w').write(_spelled(signs=1))"
    file = tmp_path / "_lease" / "00000007"
    file.parent.mkdir()
    subprocess.run([sys.executable, "-c", dead, file], check=True)
    with held(folders) as lease:
        assert lease.token == 8
    assert [path.name for path in file.parent.iterdir()] == ["00000008"]


def test_a_lease_that_was_never_written_whole_expires_too(folders: Folders, tmp_path: Path) -> None:
    file = tmp_path / "_lease" / "00000001"
    file.parent.mkdir()
    file.touch()
    with pytest.raises(LeaseTakenError, match=r"^another process writes to "), held(folders):
        pass
    os.utime(file, (0, 0))
    with held(folders) as lease:
        assert lease.token == 2


def test_no_lease_where_the_folder_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match=r"^cannot "), held(Folders(spark, str(tmp_path / "file"))):
        pass
