"""`check-config --connect`: one line for each address of the sidecar, and for the journal's folder."""

import socket
from pathlib import Path

import pytest

from group_sidecar.proxy.checks.host import try_host
from tests.proxy.checks.checked_settings import settings

FREE = ("listen: the sidecar can listen on 127.0.0.1:0", True)


def tried(**further: object) -> list[tuple[str, bool]]:
    return [(str(result), result.succeeded) for result in try_host(settings(**{"listen": "127.0.0.1:0", **further}))]


def test_addresses_can_be_bound() -> None:
    """A free address succeeds, and so does a port in use, because the sidecar may already run."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert tried(admin=address) == [FREE, (f"admin: {address} is in use, perhaps by this sidecar", True)]
    assert tried(admin=address) == [FREE, (f"admin: the sidecar can listen on {address}", True)]


def test_address_of_another_machine() -> None:
    """An address that this machine does not have fails (RFC 5737 reserves 192.0.2.0/24 for examples)."""
    [(line, succeeded)] = tried(listen="192.0.2.1:9092")
    assert not succeeded
    assert line.startswith("listen: the sidecar cannot listen on 192.0.2.1:9092: cannot assign requested address")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no /proc")
def test_folder_cannot_be_created() -> None:
    """A folder fails if its file system lets nobody create files, although the permissions allow it."""
    [_, (line, succeeded)] = tried(journal={"folder": "/proc/x"})
    assert not succeeded
    assert line.startswith("journal.folder: /proc/x cannot be created in /proc: ")


def test_folder_can_be_written(tmp_path: Path) -> None:
    """A folder that exists or can be created succeeds, and nothing is left in it."""
    absent = tmp_path / "a" / "b"
    assert tried(journal={"folder": tmp_path}) == [FREE, (f"journal.folder: {tmp_path} can be written", True)]
    assert tried(journal={"folder": absent}) == [FREE, (f"journal.folder: {absent} can be created in {tmp_path}", True)]
    assert list(tmp_path.iterdir()) == []
