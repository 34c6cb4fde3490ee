"""The command `group-sidecar healthcheck`, at a real admin port with fake sources."""

import socket
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from group_sidecar.proxy.admin.http_server import serve_admin
from group_sidecar.proxy.admin.tls import admin_context
from group_sidecar.proxy.commandline import healthcheck
from group_sidecar.proxy.config.loading import load_config
from group_sidecar.proxy.config.sections import AdminAccess
from group_sidecar.proxy.listeners.ports import listen
from group_sidecar.proxy.runtime.addresses import Address
from tests.certificates import Authority
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.proxy.admin.served_app import admin, served
from tests.proxy.fakes import ANY_PORT

PLACES = {"listen": "127.0.0.1:9092", "upstream": "127.0.0.1:19092"}
PREFIX = "GROUP_SIDECAR__"


class Printed:
    """What the command printed, and its exit status."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        self.status = healthcheck.main([str(each) for each in arguments])
        self.out, self.err = capsys.readouterr()


async def checked(capsys: pytest.CaptureFixture[str], *arguments: object) -> Printed:
    return await trio.to_thread.run_sync(Printed, capsys, *arguments)


async def test_each_probe(capsys: pytest.CaptureFixture[str]) -> None:
    """Each probe asks its own endpoint. The exit status is 1 if the answer is no, and the line contains the reason."""
    state: dict[str, Any] = {"readiness": dict, "unusable_listeners": lambda: [], "probed": lambda: {"a:1": False}}
    async with served(admin(**state)) as (host, port):
        live, started, ready = [
            await checked(capsys, "--admin", f"{host}:{port}", "--probe", probe)
            for probe in ("live", "started", "ready")
        ]
    assert (live.status, live.out, live.err) == (0, f"127.0.0.1:{port}: live\n", "")
    assert (started.status, started.out) == (1, "")
    assert started.err == f"group-sidecar: 127.0.0.1:{port}: not started: the broker a:1 was not probed yet\n"
    assert ready.status == 1
    assert ready.err == f"group-sidecar: 127.0.0.1:{port}: not ready: no broker is known\n"


async def test_closed_listener_is_not_live(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --probe, the command asks whether a restart would help."""
    async with served(admin(unusable_listeners=lambda: ["default"])) as (host, port):
        found = await checked(capsys, "--admin", f"{host}:{port}")
    assert found.status == 1
    assert found.err.endswith("not live: the listener default accepts no clients any more\n")


async def test_tls_without_trust(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A certificate that has expired, and that names another host, does not make the sidecar unhealthy."""
    issued = Authority(tmp_path).issue("elsewhere.example", expires=datetime(2024, 1, 1, tzinfo=UTC))
    access = AdminAccess(certificate_file=issued.certificate_file, key_file=issued.key_file)
    file = tmp_path / "sidecar.yaml"
    async with trio.open_nursery() as nursery:
        _, port = await nursery.start(serve_admin, admin(access=access), listen(ANY_PORT)[0], admin_context(access))
        file.write_text(yaml.safe_dump({"admin": f"0.0.0.0:{port}", "admin_access": issued.settings}))
        encrypted = await checked(capsys, "--config", file)
        plain = await checked(capsys, "--admin", f"127.0.0.1:{port}")
        nursery.cancel_scope.cancel()
    assert (encrypted.status, encrypted.err) == (0, "")
    assert plain.status == 1


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    """If nobody listens at the admin port, the line contains the reason of the operating system."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    found = Printed(capsys, "--admin", f"127.0.0.1:{port}")
    assert (found.status, found.err) == (1, f"group-sidecar: 127.0.0.1:{port}: connection refused\n")


@pytest.mark.parametrize("tls", [False, True])
def test_hanging_sidecar(capsys: pytest.CaptureFixture[str], tmp_path: Path, tls: bool) -> None:
    """A sidecar that accepts the connection and never replies is unhealthy after the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = tmp_path / "sidecar.yaml"
        access = {"certificate_file": "any.pem"} if tls else {}
        file.write_text(yaml.safe_dump({"admin": f"127.0.0.1:{silent.getsockname()[1]}", "admin_access": access}))
        found = Printed(capsys, "--config", file, "--timeout", 0.1)
    assert found.status == 1
    assert found.err.endswith(": no reply within 0.1 s\n")


async def test_other_server_is_not_a_sidecar(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that replies 200 without a sidecar's JSON is not a healthy sidecar."""

    async def reply(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b'HTTP/1.1 200 OK\r\n\r\n{"status": "ok"}')

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, reply, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        found = await checked(capsys, "--admin", f"127.0.0.1:{port}")
        nursery.cancel_scope.cancel()
    assert (found.status, found.err) == (
        1,
        f"group-sidecar: 127.0.0.1:{port}: does not answer as a sidecar's admin port\n",
    )


CERTIFICATE = {"certificate_file": "/c.pem"}
SAME_AS_RUN: list[tuple[dict[str, Any], str | None, dict[str, str]]] = [
    ({"admin": "127.0.0.1:1"}, None, {}),
    ({"admin": "127.0.0.1:1", "admin_access": CERTIFICATE}, None, {}),
    ({"admin": "127.0.0.1:1", "admin_access": {"open": True}}, None, {}),
    ({"admin": "127.0.0.1:1"}, None, {"ADMIN": "127.0.0.1:2"}),
    ({"admin": "127.0.0.1:1"}, "127.0.0.1:3", {"ADMIN": "127.0.0.1:2"}),
    ({}, None, {"admin": "[::1]:2"}),
    ({}, "localhost:3", {"ADMIN_ACCESS__CERTIFICATE_FILE": "/c.pem"}),
    ({}, "localhost:3", {"ADMIN_ACCESS": '{"certificate_file": "/c.pem"}'}),
    ({}, "localhost:3", {"ADMIN_ACCESS": '{"open": true}'}),
]


@pytest.mark.parametrize(("in_file", "flag", "variables"), SAME_AS_RUN)
def test_finds_port_that_run_opens(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    in_file: dict[str, Any],
    flag: str | None,
    variables: dict[str, str],
) -> None:
    """The command finds the same address, and TLS or none, as `group-sidecar run` with the same sources."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(yaml.safe_dump({**PLACES, **in_file}))
    environment = {f"{PREFIX}{name}": text for name, text in variables.items()}
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    config = load_config(file, {"admin": flag} if flag else {})
    found = healthcheck.find_admin_port(file, flag, environment)
    assert found == (config.admin, config.admin_access.certificate_file is not None)


@pytest.mark.parametrize(("given", "requested"), [("0.0.0.0:9464", "127.0.0.1"), ("[::]:9464", "::1")])
def test_wildcard_means_loopback(given: str, requested: str) -> None:
    """An admin port at all addresses is asked at the loopback address."""
    assert healthcheck.find_admin_port(None, given, {}).address == Address(requested, 9464)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "{file}: no such file or directory"),
        ("listen: [", "{file}: is not YAML: group-sidecar check-config {file} names the fault"),
        ("listen: 127.0.0.1:1", "no admin port is configured, and the health check asks the admin port: set admin"),
        ("admin: here", "admin: must be HOST:PORT, for instance 127.0.0.1:9092"),
        ("admin: 127.0.0.1:0", "admin: the system chooses the port, so the health check cannot know it"),
    ],
)
def test_unusable_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | None, line: str) -> None:
    """If the settings do not lead to an admin port, one line contains the reason, and the exit status is 1."""
    file = tmp_path / "sidecar.yaml"
    if content is not None:
        file.write_text(content)
    found = Printed(capsys, "--config", file)
    assert (found.status, found.out, found.err) == (1, "", f"group-sidecar: {line.format(file=file)}\n")


def test_file_is_optional_beside_environment(tmp_path: Path) -> None:
    """In the image, the settings may come from the environment alone. The file of the image is then missing."""
    found = healthcheck.find_admin_port(tmp_path / "absent", None, {f"{PREFIX}ADMIN": "127.0.0.1:1"})
    assert found == (Address("127.0.0.1", 1), False)


def test_imports_little() -> None:
    """The installed command finds a fault without the import of pydantic, trio, httpx, ssl or the codecs."""
    program = """
import sys
from group_sidecar.proxy import cli
sys.argv = ["group-sidecar", "healthcheck", "--admin", "here"]
try:
    cli.main()
finally:
    heavy = ("pydantic", "pydantic_settings", "trio", "httpx", "ssl", "http.client", "group_sidecar.codecs")
    print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False
    )
    assert (done.returncode, done.stdout) == (1, "[]\n")
    assert done.stderr == "group-sidecar: admin: must be HOST:PORT, for instance 127.0.0.1:9092\n"


def test_other_variables_are_ignored(tmp_path: Path) -> None:
    """Variables without the prefix are no settings, as for `group-sidecar run`."""
    file = tmp_path / "sidecar.yaml"
    file.write_text("admin: 127.0.0.1:9644\n")
    others = {"ADMIN": "root", "ADMIN_ACCESS__CERTIFICATE_FILE": "x"}
    assert healthcheck.find_admin_port(file, None, others) == (Address("127.0.0.1", 9644), False)


@pytest.mark.parametrize("content", ["listen: [", "x: !!int ''", "x: !!bool maybe"])
def test_unreadable_file_is_not_needed(tmp_path: Path, content: str) -> None:
    """A broken file matters only if the address is in it: the sidecar may be serving clients with older settings."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(content)
    assert healthcheck.find_admin_port(file, "127.0.0.1:9644", {}) == (Address("127.0.0.1", 9644), False)
    with pytest.raises(healthcheck.UnhealthyError, match="is not YAML"):
        healthcheck.find_admin_port(file, None, {})


@pytest.mark.parametrize("reply", [b'{"live": false}', b'{"live": false, "reasons": 3}', b'{"live": 1}', b"[" * 60_000])
async def test_reply_without_live_true(capsys: pytest.CaptureFixture[str], reply: bytes) -> None:
    """Only a reply in which `live` is true counts as healthy. Any other reply causes one line on standard error."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n" + reply)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        found = await checked(capsys, "--admin", f"127.0.0.1:{listener.socket.getsockname()[1]}")
        nursery.cancel_scope.cancel()
    assert (found.status, found.out, len(found.err.splitlines())) == (1, "", 1)
