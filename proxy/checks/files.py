"""Checks the files and folders that the settings name, except the contents of certificates."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from group_sidecar.proxy.broker.bearer_tokens import token_in
from group_sidecar.proxy.broker.credential_files import CredentialUnavailable, file_text, secret_in
from group_sidecar.proxy.checks.findings import Finding, fault, warning
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.runtime.os_errors import reason_of
from group_sidecar.proxy.tls.reloading_contexts import file_fault


def check_secrets(config: Config) -> Iterator[Finding]:
    """Checks that each secret's file contains a secret, and that other users of this machine cannot read it."""
    sasl, access = config.own_connection.sasl, config.admin_access
    if sasl is not None:
        yield from _check_secret("own_connection.sasl.password_file", sasl.password_file, secret_in)
        yield from _check_secret("own_connection.sasl.token_file", sasl.token_file, token_in)
        yield from _check_secret("own_connection.sasl.client_secret_file", sasl.client_secret_file, secret_in)
    yield from _check_secret("admin_access.token_file", access.token_file, _admin_token_in)


def check_journal(config: Config) -> Iterator[Finding]:
    """Checks that the folder of the journal can be written, or can be created. Creates nothing."""
    if config.journal is None or config.journal.folder is None:
        return
    try:
        yield from _check_folder("journal.folder", config.journal.folder)
    except OSError as error:  # For example a name that is too long.
        yield fault("journal.folder", f"{config.journal.folder} cannot be used: {reason_of(error)}")


def _check_folder(key: str, folder: Path) -> Iterator[Finding]:
    if folder.is_dir():
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield fault(key, f"{folder} cannot be written: permission denied")
        return
    if _exists(folder):
        yield fault(key, f"{folder} is not a folder")
        return
    above = next(parent for parent in folder.parents if _exists(parent))
    if not above.is_dir():
        yield fault(key, f"{folder} cannot be created: {above} is not a folder")
    elif not os.access(above, os.W_OK | os.X_OK):
        yield fault(key, f"{folder} cannot be created in {above}: permission denied")


def read(key: str, file: Path) -> tuple[bytes, list[Finding]]:
    """Returns the content of a file, or a fault if the file cannot be read."""
    try:
        return file.read_bytes(), []
    except OSError as error:
        return b"", [fault(key, f"{file} cannot be used: {file_fault(error)}")]


def check_mode(key: str, file: Path) -> Iterator[Finding]:
    """Warns if every user of this machine may read a file with a secret."""
    if file.stat().st_mode & stat.S_IROTH:
        yield warning(key, f"{file} can be read by every user of this machine")


def _check_secret(key: str, file: Path | None, secret_of: Callable[[str, Path], str]) -> Iterator[Finding]:
    """Reads the file of a secret as the sidecar does. Yields nothing if the settings name no file."""
    if file is None:
        return
    try:
        secret = secret_of(key, file)
    except CredentialUnavailable as error:
        yield fault(key, str(error).removeprefix(f"{key}: "))
        return
    if not secret:
        yield fault(key, f"{file} is empty")
    yield from check_mode(key, file)


def _admin_token_in(key: str, file: Path) -> str:
    return file_text(key, file).strip()


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # Such an error does not show that the path is missing.
        return True
    return True
