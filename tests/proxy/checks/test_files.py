"""Checks of the files of passwords and tokens, and of the journal's folder."""

import os
from pathlib import Path

import pytest

from group_sidecar.proxy.checks.files import check_journal, check_secrets
from group_sidecar.proxy.config.model import Config
from tests.proxy.checks.checked_settings import lines, settings


def secret(folder: Path, content: bytes = b"secret\n", mode: int = 0o600) -> Path:
    file = folder / "secret"
    file.write_bytes(content)
    file.chmod(mode)
    return file


def with_password(file: Path) -> Config:
    return settings(own_connection={"sasl": {"mechanism": "PLAIN", "username": "u", "password_file": str(file)}})


def with_bearer_token(file: Path) -> Config:
    return settings(own_connection={"sasl": {"mechanism": "OAUTHBEARER", "token_file": str(file)}})


def with_client_secret(file: Path) -> Config:
    endpoint = {"token_endpoint_url": "https://issuer/token", "client_id": "sidecar", "client_secret_file": str(file)}
    return settings(own_connection={"sasl": {"mechanism": "OAUTHBEARER", **endpoint}})


def with_token(file: Path) -> Config:
    return settings(admin_access={"token_file": str(file)})


def test_good_secrets(tmp_path: Path) -> None:
    """A file of each kind of secret that only its owner can read causes no finding."""
    file = secret(tmp_path)
    for configured in (with_password, with_bearer_token, with_client_secret, with_token):
        assert lines(check_secrets(configured(file))) == []
    assert lines(check_secrets(settings())) == []


@pytest.mark.parametrize(
    ("content", "fault"), [(b"", "is empty"), (b"\r\n", "is empty"), (b"\xff", "is not UTF-8"), (b" \n", "")]
)
def test_unusable_password(tmp_path: Path, content: bytes, fault: str) -> None:
    """A password or client secret must not be empty without its line end, and must be UTF-8. Blanks are a password."""
    file = secret(tmp_path, content)
    for key, configured in (("password_file", with_password), ("client_secret_file", with_client_secret)):
        expected = [f"FAULT own_connection.sasl.{key}: {file} {fault}"] if fault else []
        assert lines(check_secrets(configured(file))) == expected


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "contains no bearer token (RFC 6750)"),
        (b"two words", "contains no bearer token (RFC 6750)"),
        (b"\xff", "is not UTF-8"),
    ],
)
def test_unusable_bearer_token(tmp_path: Path, content: bytes, fault: str) -> None:
    """The file of a bearer token must have one in UTF-8."""
    file = secret(tmp_path, content)
    assert lines(check_secrets(with_bearer_token(file))) == [f"FAULT own_connection.sasl.token_file: {file} {fault}"]


@pytest.mark.parametrize(("content", "fault"), [(b"", "is empty"), (b" \n", "is empty"), (b"\xff", "is not UTF-8")])
def test_unusable_token(tmp_path: Path, content: bytes, fault: str) -> None:
    """A token must have more than blanks, and must be UTF-8."""
    file = secret(tmp_path, content)
    assert lines(check_secrets(with_token(file))) == [f"FAULT admin_access.token_file: {file} {fault}"]


def test_unreadable_secret(tmp_path: Path) -> None:
    """A missing file is a fault, and so is a folder."""
    absent = tmp_path / "absent"
    assert lines(check_secrets(with_token(absent))) == [
        f"FAULT admin_access.token_file: {absent} cannot be used: no such file or directory"
    ]
    assert lines(check_secrets(with_password(tmp_path))) == [
        f"FAULT own_connection.sasl.password_file: {tmp_path} cannot be used: is a directory"
    ]
    for key, config in (("token_file", with_bearer_token(absent)), ("client_secret_file", with_client_secret(absent))):
        assert lines(check_secrets(config)) == [
            f"FAULT own_connection.sasl.{key}: {absent} cannot be used: no such file or directory"
        ]


def test_secret_for_everybody(tmp_path: Path) -> None:
    """A file that every user of the machine can read causes a warning. A file for a group of users does not."""
    file = secret(tmp_path, mode=0o644)
    assert lines(check_secrets(with_token(file))) == [
        f"warning admin_access.token_file: {file} can be read by every user of this machine"
    ]
    file.chmod(0o640)
    assert lines(check_secrets(with_token(file))) == []


def in_folder(folder: Path) -> list[str]:
    return lines(check_journal(settings(journal={"folder": str(folder)})))


def test_journal_folder(tmp_path: Path) -> None:
    """A folder that exists or can be created causes no finding, and is not created."""
    assert in_folder(tmp_path) == in_folder(tmp_path / "a" / "b") == []
    assert [*tmp_path.iterdir()] == []
    assert lines(check_journal(settings(journal={"topic": "t"}))) == lines(check_journal(settings())) == []


def test_unusable_journal_folder(tmp_path: Path) -> None:
    """A file in place of the folder, or in place of a folder above, is a fault."""
    file = tmp_path / "file"
    file.touch()
    assert in_folder(file) == [f"FAULT journal.folder: {file} is not a folder"]
    assert in_folder(file / "a" / "b") == [
        f"FAULT journal.folder: {file / 'a' / 'b'} cannot be created: {file} is not a folder"
    ]


def test_journal_folder_with_a_long_name(tmp_path: Path) -> None:
    """A name that is too long for the file system is a fault (found by the fuzzer)."""
    folder = tmp_path / ("x" * 300)
    assert in_folder(folder) == [f"FAULT journal.folder: {folder} cannot be used: file name too long"]


def test_journal_folder_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that the user may not write is a fault, and so is a missing folder in such a folder."""
    monkeypatch.setattr(os, "access", lambda path, mode: bool(Path(path) != tmp_path or not mode & os.W_OK))
    assert in_folder(tmp_path) == [f"FAULT journal.folder: {tmp_path} cannot be written: permission denied"]
    below = tmp_path / "a" / "b"
    assert in_folder(below) == [f"FAULT journal.folder: {below} cannot be created in {tmp_path}: permission denied"]
