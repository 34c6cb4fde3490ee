"""Checks an installed wheel: every compiled module loads, and the sidecar forwards a request to a broker.

cibuildwheel runs this program for each wheel that it builds, with the Python into which the wheel was installed. The
program needs no package but the project's own, and no real broker: a thread replies to ApiVersions. It exits with
status 1 and a reason if the wheel does not work.

    python scripts/check_wheel.py
"""

import contextlib
import importlib
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "group_sidecar"
DISTRIBUTION = "kafka-group-sidecar"
API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
SUPPORTED_ERROR = 0
CORRELATION_ID = 4242
GIVE_UP_SECONDS = 60.0
POLL_SECONDS = 0.1


class CheckFailed(Exception):
    """The wheel does not work. The text gives the reason."""


def compiled_modules() -> list[str]:
    """Returns the names of all modules that a complete wheel has in compiled form."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["group-sidecar"]["compiled"]
    packages = [each for each in (ROOT / PACKAGE).iterdir() if each.is_dir()]
    cython = [
        ROOT / PACKAGE / package.name / each.relative_to(package)
        for package in packages
        for each in package.rglob("*.pyx")
    ]
    files = [*(ROOT / PACKAGE / each for each in listed), *cython]
    return sorted(".".join(each.relative_to(ROOT).with_suffix("").parts) for each in files)


def check_compiled() -> int:
    """Imports all compiled modules and returns their number. Raises CheckFailed if one of them is not compiled."""
    names = compiled_modules()
    files = {name: str(importlib.import_module(name).__file__) for name in names}
    if plain := [f"{name} is {file}" for name, file in files.items() if not file.endswith(".so")]:
        raise CheckFailed("\n".join(["these modules are not compiled:", *plain]))
    return len(names)


def read_frame(connection: socket.socket) -> bytes:
    """Returns the next Kafka frame without its length. Raises EOFError if the connection ends before the frame."""
    with connection.makefile("rb") as stream:
        head = stream.read(4)
        if len(head) < 4:
            raise EOFError
        return stream.read(struct.unpack(">i", head)[0])


class Broker(socketserver.BaseRequestHandler):
    """Replies to ApiVersions as a broker that supports only this API, in version 0."""

    def handle(self) -> None:
        """Replies to requests until the connection ends or a request is of another API."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                api, api_version, correlation_id = struct.unpack_from(">hhi", read_frame(self.request))
                if api != API_VERSIONS:
                    return
                error = UNSUPPORTED_VERSION if api_version else SUPPORTED_ERROR
                body = struct.pack(">ihihhh", correlation_id, error, 1, API_VERSIONS, 0, 0)
                self.request.sendall(struct.pack(">i", len(body)) + body)


class Server(socketserver.ThreadingTCPServer):
    """Accepts connections on a free port of the loopback."""

    daemon_threads = True
    allow_reuse_address = True


def free_port() -> int:
    """Returns a port of the loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def ask(port: int) -> bytes:
    """Returns the reply to ApiVersions v0. Raises OSError or EOFError if there is none."""
    body = struct.pack(">hhih", API_VERSIONS, 0, CORRELATION_ID, -1)
    with socket.create_connection(("127.0.0.1", port), timeout=GIVE_UP_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        return read_frame(connection)


def check_forwarding() -> None:
    """Runs the installed command in front of a broker, and sends a request through it.

    Raises:
        CheckFailed: no reply came, the reply is wrong, or the sidecar did not end properly at SIGTERM.
    """
    with Server(("127.0.0.1", 0), Broker) as broker, tempfile.TemporaryFile() as log:
        threading.Thread(target=broker.serve_forever, daemon=True).start()
        listen, upstream = free_port(), broker.server_address[1]
        command = [str(Path(sys.executable).with_name("group-sidecar")), "run", "--listen", f"127.0.0.1:{listen}"]
        command += ["--upstream", f"127.0.0.1:{upstream}", "--group-max-size", "10"]
        with subprocess.Popen(command, stdout=log, stderr=log) as sidecar:
            try:
                reply = first_reply(sidecar, listen)
            finally:
                sidecar.terminate()
                status = sidecar.wait(GIVE_UP_SECONDS)
                broker.shutdown()
                log.seek(0)
                output = log.read().decode(errors="replace")
        if reply is None or struct.unpack_from(">ih", reply) != (CORRELATION_ID, 0) or status != 0:
            raise CheckFailed(f"{output}\nreply {reply!r}, exit status {status}")


def first_reply(sidecar: "subprocess.Popen[bytes]", port: int) -> bytes | None:
    """Asks until a reply comes, and returns the reply. Returns None if the sidecar ends, or after GIVE_UP_SECONDS."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while sidecar.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError, EOFError):
            return ask(port)
        time.sleep(POLL_SECONDS)  # The listener is not open yet.
    return None


def main() -> int:
    """Runs all checks and prints what they found. Returns the exit status."""
    try:
        count = check_compiled()
        check_forwarding()
    except CheckFailed as error:
        print(error, file=sys.stderr)
        return 1
    crc = importlib.import_module("google_crc32c").implementation
    print(f"{DISTRIBUTION} {version(DISTRIBUTION)}: {count} compiled modules, CRC-32C in {crc}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
