"""Valid settings whose files or addresses cannot be used or deserve a warning, and the files that settings name."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.certificates import Authority

Settings = dict[str, Any]

ELSEWHERE = "192.0.2.1"
"""The address of another machine."""
NUMBERS = {"broker": "10.0.0.1", "broker-2": "10.0.0.2", "there": ELSEWHERE, "localhost": "127.0.0.1"}
"""The addresses of host names."""
_PAIR = {"certificate_file": "admin.pem", "key_file": "admin.key"}


def write_files(folder: Path) -> None:
    """Writes the files of the valid settings, and some that cannot be used."""
    authority = Authority(folder / "authority")
    for name in ("ca.pem", "clients.pem"):
        (folder / name).write_bytes(authority.file.read_bytes())
    now = datetime.now(UTC)
    ends = {"admin": None, "own": None, "expired": now - timedelta(days=1), "soon": now + timedelta(days=5)}
    for name, expires in ends.items():
        made = authority.issue("kafka.example", expires=expires)
        made.certificate_file.rename(folder / f"{name}.pem")
        made.key_file.rename(folder / f"{name}.key")
    for name, content in {"token": "t", "password": "p", "empty": "", "junk": "junk"}.items():
        (folder / name).write_text(content)
    (folder / "public").write_text("t")
    for file in folder.iterdir():
        if file.is_file():
            file.chmod(0o644 if file.name == "public" else 0o600)


def _access(**access: Any) -> Settings:
    return {"admin": "0.0.0.0:9464", "admin_access": access}


def _password(file: str) -> Settings:
    return {"own_connection": {"sasl": {"mechanism": "PLAIN", "username": "u", "password_file": file}}}


def _bearer_token(**source: str) -> Settings:
    return {"own_connection": {"sasl": {"mechanism": "OAUTHBEARER", **source}}}


def _token_endpoint(**files: str) -> Settings:
    return _bearer_token(token_endpoint_url="https://nowhere/token", client_id="sidecar", **files)


def _tls(**tls: str) -> Settings:
    return {"own_connection": {"tls": tls}}


def _listener(**listener: Any) -> Settings:
    return {"listeners": [{"name": "A", "listen": "127.0.0.1:9092", "upstream": "broker:9092", **listener}]}


UNUSABLE: list[Settings] = [
    _access(),
    _access(open=True),
    _access(token="t"),
    _access(token_file="token"),
    _access(token_file="absent", **_PAIR),
    _access(token_file="empty", **_PAIR),
    _access(token_file="public", **_PAIR),
    _access(token_file="token", certificate_file="admin.pem", key_file="own.key"),
    _access(certificate_file="expired.pem", key_file="expired.key", client_ca_file="clients.pem"),
    _password("absent"),
    _password("empty"),
    _password("folder"),
    _bearer_token(token_file="absent"),
    _bearer_token(token_file="empty"),
    _token_endpoint(client_secret_file="absent"),
    _token_endpoint(client_secret_file="password", ca_file="junk"),
    _tls(ca_file="absent"),
    _tls(ca_file="junk"),
    _tls(certificate_file="own.pem"),
    _tls(certificate_file="junk", key_file="own.key"),
    _tls(certificate_file="soon.pem", key_file="soon.key"),
    {"journal": {"folder": "token"}},
    {"journal": {"folder": "token/below"}},
    {"listen": "nowhere:9092"},
    {"listen": "there:9092"},
    {"listen": f"{ELSEWHERE}:9092"},
    {"listen": "127.0.0.1:443"},
    {"upstream": "nowhere:9092"},
]
"""Settings that are added to the required settings."""

UNUSABLE_LISTENERS: list[Settings] = [
    _listener(tls=_PAIR),
    _listener(tls={**_PAIR, "client_ca_file": "absent", "client_auth": "required"}),
    _listener(tls={"certificate_file": "absent", "key_file": "admin.key"}),
    _listener(tls={"certificate_file": "soon.pem", "key_file": "soon.key"}),
    _listener(upstream_tls={"ca_file": "absent"}),
    {**_listener(tls=_PAIR), "mode": "gateway"},
    _listener(
        tls={
            **_PAIR,
            "certificates": [
                {
                    "server_names": ["kafka.example", "*.b.example"],
                    "certificate_file": "soon.pem",
                    "key_file": "soon.key",
                },
                {"server_names": ["a.example"], "certificate_file": "own.pem", "key_file": "admin.key"},
            ],
        },
    ),
    _listener(
        tls={**_PAIR, "client_ca_file": "clients.pem", "client_auth": "required"},
        upstream_tls={
            "ca_file": "ca.pem",
            "identities": [{"subject": "CN=alice,.*", "certificate_file": "own.pem", "key_file": "admin.key"}],
        },
    ),
]
"""Whole settings."""
