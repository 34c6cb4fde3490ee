"""`make audit` asks for all locked packages, and fails for a known vulnerability and without an answer."""

import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple

import pytest

from tests.scripts.documents import ROOT
from tests.scripts.locks import locked

VULNERABLE = "jinja2"
IDENTIFIER = "GHSA-0000-0000-0000"
FINDING = {
    "id": IDENTIFIER,
    "summary": "an invented vulnerability",
    "modified": "2026-01-01T00:00:00Z",
    "affected": [
        {"package": {"name": VULNERABLE, "ecosystem": "PyPI"}, "versions": [locked("dev")[VULNERABLE].version]}
    ],
}


class Advisories(NamedTuple):
    """A server that answers as OSV does."""

    url: str
    asked: dict[str, str]
    """The version of each package that a client has asked about."""
    vulnerable: set[str]


@pytest.fixture
def advisories() -> Iterator[Advisories]:
    """A server of advisories on this machine, which knows no vulnerability yet."""
    asked: dict[str, str] = {}
    vulnerable: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = question["package"]["name"]
            asked[name] = question["version"]
            body = json.dumps({"vulns": [FINDING]} if name in vulnerable else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Advisories(f"http://127.0.0.1:{server.server_port}/query", asked, vulnerable)
        server.shutdown()
        thread.join()


def audit(url: str) -> subprocess.CompletedProcess[str]:
    """Runs `make audit` with a server of advisories. The virtual environment is left as it is."""
    arguments = f"ARGS=--vulnerability-service osv --osv-url {url}"
    command = ["make", "-o", ".venv/.dev", "audit", arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_audit_covers_all_packages(advisories: Advisories) -> None:
    """The audit passes if no package is vulnerable, and asks for the locked version of each that this system needs."""
    done = audit(advisories.url)
    assert done.returncode == 0, done.stderr
    packages = locked("dev") | locked("uv") | locked("wheels") | locked("fuzz")
    needed = {
        name for name, each in packages.items() if not each.requirement.marker or each.requirement.marker.evaluate()
    }
    assert advisories.asked == {name: packages[name].version for name in needed}


def test_audit_fails_for_vulnerable_package(advisories: Advisories) -> None:
    """The audit fails and names the package and its vulnerability."""
    advisories.vulnerable.add(VULNERABLE)
    done = audit(advisories.url)
    assert done.returncode != 0
    assert VULNERABLE in done.stdout
    assert IDENTIFIER in done.stdout


def test_audit_fails_without_answer() -> None:
    """The audit fails if nothing answers."""
    done = audit("http://127.0.0.1:1/query")
    assert done.returncode != 0
    assert "could not be read" in done.stdout
