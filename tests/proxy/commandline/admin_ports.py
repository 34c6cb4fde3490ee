"""Fake admin ports of sidecars that serve groups to the `groups` command.

Contains the HTTP server, and short ways to write the JSON of groups. The JSON covers only what the command requests.
"""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from typer.testing import CliRunner, Result

from group_sidecar.proxy.commandline.groups import groups_app

Json = dict[str, Any]


@dataclass
class AdminPort:
    """The admin port of one sidecar.

    Attributes:
        groups: each group as it appears in the list of groups.
        details: by group, the fields that only the reply for one group has: `member_list`, `leader`.
        offsets: by group, the entries of its offsets.
        timelines: by group, the entries of its timeline.
        forgotten: fields that are added to the reply of each timeline.
        token: the bearer token that requests need; empty if they need none.
        asked: the paths and queries of all requests, in order.
        failing: the status and body that answer every request; None for normal replies.
        unreachable: brokers that do not answer; None for a sidecar that is too old to report them.
        tls: the context with which the port serves HTTPS; None for HTTP.
        address: host and port while the port listens.
    """

    groups: Sequence[Json] = ()
    details: Mapping[str, Json] = field(default_factory=dict)
    offsets: Mapping[str, list[Json]] = field(default_factory=dict)
    timelines: Mapping[str, list[Json]] = field(default_factory=dict)
    forgotten: Json | None = None
    token: str = ""
    failing: tuple[int, bytes] | None = None
    unreachable: list[Json] | None = None
    tls: ssl.SSLContext | None = None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    address: str = ""

    def reply(self, path: str, query: dict[str, str], authorization: str) -> tuple[int, bytes]:
        self.asked.append((path, query))
        if self.failing:
            return self.failing
        if self.token and authorization != f"Bearer {self.token}":
            return 401, b'{"error": "a token is needed"}'
        status, content = self._answer(path.removeprefix("/api/v1/"), query)
        return status, json.dumps(content).encode()

    def _answer(self, what: str, query: dict[str, str]) -> tuple[int, Json]:
        if what == "groups":
            return 200, self._page(query)
        known = next((group for group in self.groups if group["group"] == query["group"]), None)
        if known is None:
            return 404, self._with_gone({"error": "no such group", "group": query["group"]})
        name = known["group"]
        content: Mapping[str, Json] = {
            "group": {**known, "leader": "", "member_list": [], **self.details.get(name, {})},
            "offsets": {"group": name, "state": known["state"], "offsets": self.offsets.get(name, [])},
            "timeline": {"group": name, "timeline": self.timelines.get(name, []), **(self.forgotten or {})},
        }
        return 200, self._with_gone(content[what])

    def _page(self, query: dict[str, str]) -> Json:
        found = [group for group in self.groups if query.get("search", "") in group["group"]]
        found.sort(key=lambda group: group[query["sort"]] or 0, reverse=query["order"] == "desc")
        start = int(query.get("offset", 0))
        shown = found[start : start + int(query["limit"])]
        content: Json = {
            "at": "2026-11-21T14:00:00.000Z",
            "total": len(found),
            "all": len(self.groups),
            "groups": shown,
        }
        return self._with_gone(content)

    def _with_gone(self, content: Json) -> Json:
        return content if self.unreachable is None else {**content, "unreachable": self.unreachable}


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, port: AdminPort, *args: Any) -> None:
        self.port = port
        super().__init__(*args)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        status, body = self.port.reply(url.path, query, self.headers.get("authorization", ""))
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


@contextmanager
def listening(*ports: AdminPort) -> Iterator[None]:
    """Starts admin ports on free ports of the loopback interface, and sets the `address` of each."""
    with ExitStack() as stack:
        for port in ports:
            server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, port))
            stack.callback(server.server_close)
            if port.tls:
                server.socket = port.tls.wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=partial(server.serve_forever, 0.01), daemon=True)
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(server.shutdown)
            port.address = f"127.0.0.1:{server.server_address[1]}"
        yield


def run(*arguments: str, ports: Sequence[AdminPort] = (), input: str | None = None) -> Result:
    """Runs `groups` with these arguments against these admin ports."""
    flags = [part for port in ports for part in ("--sidecar", port.address)]
    return CliRunner().invoke(groups_app, [*arguments, *flags], input=input, catch_exceptions=False)


def answered(result: Result) -> Any:
    """The JSON that a run printed. Asserts that the run succeeded and wrote nothing to standard error."""
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def group(name: str, **more: Any) -> Json:
    """A group as it appears in the list of groups. `more` adds or replaces fields."""
    content: Json = {
        "group": name,
        "protocol": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "range",
        "generation": 3,
        "members": 2,
        "members_known": True,
        "limit": None,
        "lag": 0,
        "lag_unknown_partitions": 0,
        "committed_partitions": 1,
        "last_rebalance_at": "2026-11-21T13:59:00.250Z",
        "last_cause": "new_member",
        "last_reason": "join",
        "rebalances": 1,
        "lacking": None,
        "offsets_lacking": None,
    }
    return content | more
