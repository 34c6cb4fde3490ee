"""The command ``group-sidecar healthcheck``: asks the admin port of this machine's sidecar whether the sidecar works.

Orchestrators run the command every few seconds beside the sidecar, so this module imports little. The command reads
only the settings that name the admin port. A fault in another setting is no reason to restart a sidecar that serves
clients.
"""

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from group_sidecar.proxy.runtime.addresses import WILDCARDS, Address, parse_address
from group_sidecar.proxy.runtime.os_errors import reason_of

COMMAND = "healthcheck"
PROGRAM = "group-sidecar"
UNHEALTHY = 1
"""Exit status if the answer is no, or if there is no answer."""

_ADMIN, _ACCESS, _CERTIFICATE = "admin", "admin_access", "certificate_file"
_PREFIX = "group_sidecar__"
"""The prefix of environment variables that contain settings, in lower case."""
_LONGEST_REPLY = 64 * 1024


class Question(StrEnum):
    """A question to a sidecar. Each question has an endpoint of the admin port, and a key in the endpoint's reply."""

    LIVE = "live"
    STARTED = "started"
    READY = "ready"


_PATHS = {Question.LIVE: "/livez", Question.STARTED: "/startupz", Question.READY: "/readyz"}


class UnhealthyError(Exception):
    """The sidecar does not work, or the command does not find its admin port. The text is one line for the user."""


class AdminPort(NamedTuple):
    """Where the admin port is, and whether it speaks TLS."""

    address: Address
    uses_tls: bool


def find_admin_port(file: Path | None, flag: str | None, environment: Mapping[str, str]) -> AdminPort:
    """Returns the admin port that `group-sidecar run` opens with the same file, flag and environment.

    The address may come from the flag or the environment. So an unreadable file is an error only if both lack the
    address.

    Raises:
        UnhealthyError: the file cannot be read, or there is no address, or the address is invalid.
    """
    named = ((name.lower(), text) for name, text in environment.items())
    variables = {name.removeprefix(_PREFIX): text for name, text in named if name.startswith(_PREFIX)}
    address = flag or variables.get(_ADMIN)
    settings = _read(file, is_needed=address is None) if file else {}
    address = address or settings.get(_ADMIN)
    if not address:
        raise UnhealthyError("no admin port is configured, and the health check asks the admin port: set admin")
    try:
        parsed = parse_address(str(address))
    except ValueError as error:
        raise UnhealthyError(f"admin: {error}") from None
    if parsed.port == 0:
        raise UnhealthyError("admin: the system chooses the port, so the health check cannot know it")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}[parsed.host] if parsed.host in WILDCARDS else parsed.host
    certificates = (
        variables.get(f"{_ACCESS}__{_CERTIFICATE}"),
        _certificate(_parsed(variables.get(_ACCESS))),
        _certificate(settings.get(_ACCESS)),
    )
    return AdminPort(Address(host, parsed.port), any(certificates))


def _certificate(access: object) -> object:
    return access.get(_CERTIFICATE) if isinstance(access, dict) else None


def _parsed(text: str | None) -> object:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


def _read(file: Path, *, is_needed: bool) -> dict[str, Any]:
    """Returns the settings of a file. Returns an empty mapping if the file is unreadable and not needed."""
    import yaml

    try:
        settings = yaml.safe_load(file.read_text("utf-8"))
    except Exception as error:  # noqa: BLE001  PyYAML raises errors of many kinds for values that do not fit their tag.
        if not is_needed:
            return {}
        if isinstance(error, OSError):
            raise UnhealthyError(f"{file}: {reason_of(error)}") from None
        raise UnhealthyError(f"{file}: is not YAML: group-sidecar check-config {file} names the fault") from None
    return settings if isinstance(settings, dict) else {}


def check_health(port: AdminPort, question: Question, timeout: float) -> None:
    """Asks the admin port a question, and returns if the answer is yes. `timeout`: seconds for the whole exchange.

    Raises:
        UnhealthyError: the answer is no, or no answer came within the timeout.
    """
    until = time.monotonic() + timeout
    try:
        reply = _exchange(port, _PATHS[question], until)
    except TimeoutError:
        raise UnhealthyError(f"{port.address}: no reply within {timeout:g} s") from None
    except OSError as error:
        raise UnhealthyError(f"{port.address}: {reason_of(error)}") from None
    head, _, body = reply.partition(b"\r\n\r\n")
    status, content = head.split(maxsplit=2)[1:2], _parsed(body.decode("utf-8", "replace"))
    if not isinstance(content, dict) or not isinstance(content.get(question), bool) or not status:
        raise UnhealthyError(f"{port.address}: does not answer as a sidecar's admin port")
    if status[0] != str(HTTPStatus.OK.value).encode() or not content[question]:
        reasons = content.get("reasons")
        sentences = "; ".join(map(str, reasons)) if isinstance(reasons, list) else ""
        raise UnhealthyError(f"{port.address}: not {question}: {sentences or status[0].decode(errors='replace')}")


def _exchange(port: AdminPort, path: str, until: float) -> bytes:
    """Sends a request, and returns the reply with its head. Raises OSError, which includes errors of TLS."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(port.address, timeout=_left(until)) as plain:
        plain.settimeout(_left(until))
        connection = _with_tls(plain) if port.uses_tls else plain
        with connection:
            connection.sendall(request.encode())
            reply = b""
            while len(reply) < _LONGEST_REPLY:
                connection.settimeout(_left(until))
                chunk = connection.recv(_LONGEST_REPLY)
                if not chunk:
                    break
                reply += chunk
    return reply


def _with_tls(plain: socket.socket) -> socket.socket:
    """Returns an encrypted connection. The certificate is not checked.

    The command sends no secret, and asks a process of its own machine. A check would fail for an expired certificate,
    and for a renewed file that is not in use yet. The orchestrator would then end a sidecar that serves clients.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, suppress_ragged_eofs=True)


def _left(until: float) -> float:
    """Returns the seconds that are left. Raises TimeoutError if no time is left."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def main(arguments: list[str]) -> int:
    """Runs the command, and prints one line. Returns the exit status."""
    given = parser().parse_args(arguments)
    try:
        port = find_admin_port(given.config, given.admin, os.environ)
        check_health(port, given.probe, given.timeout)
    except UnhealthyError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return UNHEALTHY
    sys.stdout.write(f"{port.address}: {given.probe}\n")
    return 0


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command's arguments."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {COMMAND}",
        description="Asks the admin port of the sidecar on this machine. Exits with 0, or with 1 and the reason.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the settings file of the sidecar")
    parser.add_argument("--admin", metavar="HOST:PORT", help="the admin port, as for `group-sidecar run`")
    parser.add_argument(
        "--probe",
        type=Question,
        choices=[*Question],
        default=Question.LIVE,
        help="/livez, /startupz or /readyz; default: %(default)s",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=2.0, metavar="SECONDS", help="the longest wait; default: %(default)s"
    )
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):  # NaN fails this comparison too.
        raise argparse.ArgumentTypeError("must be more than 0")
    return seconds
