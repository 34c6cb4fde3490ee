"""Tries what the sidecar needs of this machine: to listen on its addresses, and to write to the journal's folder.

The trials undo what they do. `addresses` and `files` check the same settings without a trial.
"""

import errno
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from group_sidecar.proxy.checks.addresses import listening_addresses
from group_sidecar.proxy.checks.connections import Result
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.listeners.ports import ListenError, listen
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.os_errors import reason_of


def try_host(config: Config) -> Iterator[Result]:
    """Yields the result for each address on which the sidecar listens, and for the journal's folder."""
    for key, address in listening_addresses(config).items():
        yield _try_to_listen(key, address)
    if config.journal is not None and config.journal.folder is not None:
        yield _try_folder("journal.folder", config.journal.folder)


def _try_to_listen(key: str, address: Address) -> Result:
    """Opens and closes a port. A port that is in use is no failure: this sidecar may already run."""
    try:
        opened = listen(address)
    except ListenError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE:
            return Result(key, f"{address} is in use, perhaps by this sidecar", True)
        return Result(key, f"the sidecar {error}", False)
    for each in opened:
        each.close()
    return Result(key, f"the sidecar can listen on {address}", True)


def _try_folder(key: str, folder: Path) -> Result:
    """Creates a folder and a file in the journal's folder, or in the nearest folder above it that exists."""
    above = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    try:
        with TemporaryDirectory(prefix=".check-config-", dir=above) as made:
            (Path(made) / "file").write_bytes(b"checked")
    except OSError as error:
        lacks = f"{folder} cannot be written" if above == folder else f"{folder} cannot be created in {above}"
        return Result(key, f"{lacks}: {reason_of(error)}", False)
    return Result(key, f"{folder} can be {'written' if above == folder else f'created in {above}'}", True)
