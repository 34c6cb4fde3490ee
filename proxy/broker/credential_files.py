"""Reads the files with passwords and tokens. Each use reads its file again, so the file may change."""

from pathlib import Path

from pydantic import SecretStr

from group_sidecar.proxy.tls.reloading_contexts import file_fault


class CredentialUnavailable(Exception):
    """A password or a token cannot be sent. The text is one clause without the credential."""


def secret_text(key: str, value: SecretStr | None, file: Path | None) -> str:
    """Returns a secret from the settings, or from the file that the key names. Raises CredentialUnavailable."""
    if value is not None:
        return value.get_secret_value()
    assert file is not None  # The settings' validator ensures it.
    return secret_in(key, file)


def secret_in(key: str, file: Path) -> str:
    """Returns the content of a file without the line breaks at its end. Raises CredentialUnavailable."""
    return file_text(key, file).rstrip("\r\n")


def file_text(key: str, file: Path) -> str:
    """Returns the content of the file that a setting names. Raises CredentialUnavailable with the key and the file."""
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise CredentialUnavailable(f"{key}: {file} cannot be used: {file_fault(error)}") from None
    except UnicodeDecodeError:
        raise CredentialUnavailable(f"{key}: {file} is not UTF-8") from None
