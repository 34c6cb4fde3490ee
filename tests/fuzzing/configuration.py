"""Target: files for `group-sidecar check-config`.

- Any file gives settings or ConfigError. Each fault is one line of text.
- Settings that are valid get findings without an exception. Host names are not looked up.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from unittest.mock import patch

import yaml
from pydantic import BaseModel

from group_sidecar.proxy.checks import offline
from group_sidecar.proxy.checks.addresses import Resolution
from group_sidecar.proxy.config.errors import section_of
from group_sidecar.proxy.config.loading import ConfigError, load_config
from group_sidecar.proxy.config.model import ENVIRONMENT, Config
from tests.as_python import ROOT
from tests.fuzzing.target import require

LEAST = "listen: 127.0.0.1:9092\nupstream: broker:9092\n"


def check(data: bytes) -> object:
    """Checks one file."""
    file = _folder() / "sidecar.yaml"
    file.write_bytes(data)
    with patch.dict(os.environ, _environment(), clear=True):
        try:
            config = load_config(file)
        except ConfigError as error:
            require(error.lines, "no reason")
            for line in error.lines:
                require(line.strip() and "\n" not in line, f"a fault that is not one line: {line!r}")
            return error.lines
    with patch.object(offline, "resolve", _unresolved):
        findings = [str(each) for each in offline.check_settings(config)]
    for finding in findings:
        require("\n" not in finding, f"a finding that is not one line: {finding!r}")
    return findings


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="fuzzed-configuration-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT)}


def _unresolved(hosts: Iterable[str]) -> dict[str, Resolution]:
    return {host: Resolution(reason="not asked") for host in hosts}


def words() -> Iterator[bytes]:
    """The names of all settings, and the punctuation of YAML."""
    seen: set[str] = set()
    models: list[type[BaseModel]] = [Config]
    while models:
        for name, field in models.pop().model_fields.items():
            section = section_of(field.annotation)
            if section is not None and name not in seen:
                models.append(section)
            seen.add(name)
    yield from (f"{name}: ".encode() for name in sorted(seen))
    yield from (
        b"- ",
        b"\n  ",
        b"\n",
        b"{",
        b"}",
        b"[",
        b"]",
        b"null",
        b"true",
        b"&a ",
        b"*a",
        b"!!",
        b"<<: ",
        b"? ",
        b"|",
    )


def seeds() -> Iterator[bytes]:
    """Files of this repository, each section alone, and odd YAML."""
    for file in sorted((ROOT / "deploy").rglob("sidecar.yaml")):
        yield file.read_bytes()
    yield LEAST.encode()
    for name in Config.model_fields:
        for value in ("{}", "x", "-1", "[{a: b}]", '"\\0"'):
            yield f"{LEAST}{name}: {value}\n".encode()
    for path in ("/nonexistent/file", "nul\0", "x" * 300, "/dev/null/file", ".", "\ud800", "\n", "t\t"):
        for settings in _with_paths(path):
            yield (LEAST if "listeners" not in settings else "").encode() + yaml.safe_dump(settings).encode()
    others: tuple[dict[str, object], ...] = (
        {"policies": {"group_max_size": {"limit": 2, "mode": "audit"}, "offset_metadata_max_bytes": {"limit": 9}}},
        {"mode": "gateway", "gateway": {"advertise": "g", "bootstrap_servers": ["b:1"], "one_port": True}},
    )
    for settings in others:
        yield LEAST.encode() + yaml.safe_dump(settings).encode()
    yield b"listen: 2001-99-99\n"
    yield b"[" * 2_000
    yield b"a: &a [*a]\n"
    yield b"? [a]\n: b\n"
    yield b"\xff\xfe"


def _with_paths(path: str) -> Iterator[dict[str, object]]:
    """Yields settings that name a file or a folder."""
    tls = {"certificate_file": path, "key_file": path, "client_ca_file": path}
    secret = {"mechanism": "PLAIN", "username": "u", "password_file": path}
    token = {"mechanism": "OAUTHBEARER", "token_file": path}
    yield {"own_connection": {"sasl": secret, "tls": {"ca_file": path}}}
    yield {"own_connection": {"sasl": token}}
    yield {"admin": "127.0.0.1:9464", "admin_access": {"token_file": path}}
    yield {"admin": "127.0.0.1:9464", "admin_access": tls}
    yield {"journal": {"folder": path}}
    yield {"listeners": [{"name": "A", "listen": "127.0.0.1:1", "upstream": "b:1", "tls": tls}]}
    yield {"listeners": [{"name": "A", "listen": "127.0.0.1:1", "upstream": "b:1", "upstream_tls": {"ca_file": path}}]}
