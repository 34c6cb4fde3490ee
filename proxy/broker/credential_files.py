"""Reads the files with the sidecar's own credentials. Each use reads its file again, so the file may change."""

import ssl
from pathlib import Path

from pydantic import SecretStr


class CredentialUnavailable(Exception):
    """A password or a token cannot be sent. The text is one clause without the credential."""


class UnreadableFile(CredentialUnavailable):
    """A file cannot be used. The text names the setting and the file."""

    def __init__(self, key: str, file: Path | None, error: Exception) -> None:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        super().__init__(f"{key}: {file} cannot be used: {why.replace('_', ' ').lower()}")


def secret_text(setting: str, value: SecretStr | None, file: Path | None) -> str:
    """Returns a secret from the settings, or from its file without the end of its last line.

    `setting` is the key of the value, without the suffix of the key of its file. Raises UnreadableFile.
    """
    if value is not None:
        return value.get_secret_value()
    assert file is not None  # The settings' validator ensures it.
    return file_text(f"{setting}_file", file).rstrip("\r\n")


def file_text(key: str, file: Path) -> str:
    """Returns the content of the file that a setting names. Raises UnreadableFile."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(key, file, error) from None


def trusting(key: str, ca_file: Path | None) -> ssl.SSLContext:
    """Returns a TLS context that trusts the authorities in a file, or those of the system. Raises UnreadableFile."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise UnreadableFile(key, ca_file, error) from None
