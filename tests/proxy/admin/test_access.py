"""Which clients may use the admin port."""

import base64
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from group_sidecar.coordinator.model.views import GroupState, GroupView
from group_sidecar.proxy.admin.access import AccessGuard, host_of, is_loopback, offered_token
from group_sidecar.proxy.config.loading import ConfigError, load_config
from group_sidecar.proxy.config.reload import ReloadOutcome
from group_sidecar.proxy.config.sections import AdminAccess
from tests.proxy.admin.served_app import Reply, admin, ask

TOKEN = "correct horse"
ELSEWHERE = ("10.0.0.9", 40_000)
GUARDED = ["/api/v1/groups", "/api/v1/group?group=orders", "/api/v1/status", "/api/v1/openapi.json", "/nowhere"]


def bearer(token: str) -> str:
    return f"Bearer {token}"


def basic(password: str, user: str = "") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def metrics(accept: str) -> tuple[bytes, str]:
    return b"up 1\n", "text/plain"


async def reload() -> ReloadOutcome:
    return ReloadOutcome(True, [])


def port(host: str = "127.0.0.1", **access: Any) -> ASGIApp:
    groups = [GroupView(group_id="orders", state=GroupState.STABLE)]
    return admin(groups, AdminAccess(**access), host, metrics=metrics, reload=reload)


def is_let_in(reply: Reply) -> bool:
    if reply.status in (401, 403):
        assert "orders" not in reply.body.decode()
        return False
    return True


@pytest.mark.parametrize("client", ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("path", GUARDED)
async def test_loopback_client_needs_no_token(client: str, path: str) -> None:
    """A client with a loopback address needs no token."""
    assert is_let_in(await ask(port(token=TOKEN), path, client=(client, 1)))


@pytest.mark.parametrize("client", ["10.0.0.9", "::ffff:10.0.0.9", "2001:db8::1", "128.0.0.1", "localhost", ""])
@pytest.mark.parametrize("path", GUARDED)
async def test_remote_client_gets_403_with_hint(client: str, path: str) -> None:
    """Without a configured token, a remote client gets 403 with a hint at admin_access.token."""
    reply = await ask(port(), path, client=(client, 1))
    assert not is_let_in(reply)
    assert reply.status == 403
    assert "admin_access.token" in reply.content["error"]
    assert "www-authenticate" not in reply.headers


async def test_client_without_address_is_remote() -> None:
    """A client without an address counts as remote and is refused."""
    assert not is_let_in(await ask(port(), "/api/v1/groups", client=None))


@pytest.mark.parametrize("path", GUARDED)
async def test_remote_client_needs_token(path: str) -> None:
    """With a configured token, a remote client without credentials gets 401 and a WWW-Authenticate header."""
    reply = await ask(port(token=TOKEN), path, client=ELSEWHERE)
    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith('Basic realm="group-sidecar", charset="UTF-8", Bearer')


@pytest.mark.parametrize("authorization", [bearer(TOKEN), basic(TOKEN), basic(TOKEN, "anybody"), f"bearer  {TOKEN}"])
async def test_bearer_or_basic_token_grants_access(authorization: str) -> None:
    """A remote client gets access with the token as a bearer token or as a Basic password."""
    reply = await ask(port(token=TOKEN), "/api/v1/groups", client=ELSEWHERE, authorization=authorization)
    assert reply.status == 200


@pytest.mark.parametrize(
    "authorization",
    [
        bearer(TOKEN + "r"),
        bearer(TOKEN[:-1]),
        bearer(""),
        "Bearer",
        basic("x"),
        basic(""),
        basic("x", TOKEN),
        "Basic !!",
        "Basic é",
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Basic " + base64.b64encode(TOKEN.encode()).decode(),
        TOKEN,
        f"Digest {TOKEN}",
    ],
)
async def test_wrong_credentials_get_401(authorization: str) -> None:
    """Wrong, truncated, malformed or misplaced credentials get 401."""
    reply = await ask(port(token=TOKEN), "/api/v1/groups", client=ELSEWHERE, authorization=authorization)
    assert reply.status == 401


@pytest.mark.parametrize("authorization", ["", bearer(""), basic(""), bearer("None")])
async def test_no_configured_token_rejects_credentials(authorization: str) -> None:
    """Without a configured token, empty or invented credentials of a remote client get 403."""
    assert (await ask(port(), "/api/v1/groups", client=ELSEWHERE, authorization=authorization)).status == 403


async def test_token_file_is_read_per_request(tmp_path: Path) -> None:
    """The guard reads the token file again for each request and ignores its trailing newline."""
    file = tmp_path / "token"
    file.write_text("first\n")
    app = port(token_file=file)

    async def status(token: str) -> int:
        return (await ask(app, "/api/v1/groups", client=ELSEWHERE, authorization=bearer(token))).status

    assert [await status("first"), await status("second"), await status("first\n")] == [200, 401, 200]
    file.write_text("second")
    assert [await status("first"), await status("second")] == [401, 200]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xff"])
async def test_unusable_token_file_grants_no_access(tmp_path: Path, content: bytes) -> None:
    """An empty or undecodable token file grants no access, not even to empty credentials."""
    file = tmp_path / "token"
    file.write_bytes(content)
    for authorization in (bearer(""), basic(""), bearer(content.decode("latin-1").strip())):
        reply = await ask(port(token_file=file), "/api/v1/groups", client=ELSEWHERE, authorization=authorization)
        assert reply.status == 401


async def test_missing_token_file_grants_no_access(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A missing token file grants no access, and the log mentions it once."""
    app = port(token_file=tmp_path / "token")
    for _ in range(3):
        assert (await ask(app, "/api/v1/groups", client=ELSEWHERE, authorization=bearer(""))).status == 401
    assert "".join(capfd.readouterr()).count("token not read") == 1


async def test_open_setting_grants_access_to_all() -> None:
    """With admin_access.open, remote clients get access whatever host or proxy headers they send."""
    for path in ("/api/v1/groups", "/api/v1/openapi.json"):
        reply = await ask(port(open=True), path, client=ELSEWHERE, host="anything", x_forwarded_for="1.2.3.4")
        assert reply.status == 200


# Open and guarded paths.


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/startupz", "/metrics"])
async def test_health_and_metrics_are_open(path: str) -> None:
    """Health, readiness and metrics answer remote clients without a token by default."""
    assert (await ask(port(token=TOKEN), path, client=ELSEWHERE, host="pod:9091")).status == 200


async def test_metrics_can_be_guarded() -> None:
    """With metrics set to guarded, remote clients need the token for metrics but not for readiness."""
    app = port(token=TOKEN, metrics="guarded")
    assert (await ask(app, "/metrics", client=ELSEWHERE)).status == 401
    assert (await ask(app, "/metrics", client=ELSEWHERE, authorization=bearer(TOKEN))).status == 200
    assert (await ask(app, "/metrics")).status == 200
    assert (await ask(app, "/readyz", client=ELSEWHERE)).status == 200


@pytest.mark.parametrize("path", ["/metrics/../api/v1/groups", "/Metrics", "/metrics/", "//metrics", "/healthz/x"])
async def test_similar_paths_need_token(path: str) -> None:
    """Paths that only resemble an open path need the token."""
    assert (await ask(port(token=TOKEN), path, client=ELSEWHERE)).status == 401


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "PUT"])
async def test_all_methods_need_token(method: str) -> None:
    """A remote client needs the token for every HTTP method."""
    assert (await ask(port(token=TOKEN), "/api/v1/groups", method, client=ELSEWHERE)).status == 401


async def test_remote_reload_needs_token() -> None:
    """A remote client can reload the settings only with the token."""
    assert (await ask(port(token=TOKEN), "/-/reload", "POST", client=ELSEWHERE)).status == 401
    reply = await ask(port(token=TOKEN), "/-/reload", "POST", client=ELSEWHERE, authorization=bearer(TOKEN))
    assert reply.status == 200


# Requests that other sites cause in browsers, and requests through proxies.


@pytest.mark.parametrize(
    ("host", "let_in"),
    [
        ("localhost", True),
        ("localhost:9091", True),
        ("LOCALHOST:9091", True),
        ("127.0.0.1:9091", True),
        ("127.1.2.3", True),
        ("[::1]:9091", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("Admin.Example:9091", True),
        ("evil.example:9091", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("evil.example@localhost@evil.example", False),
        ("10.0.0.1:9091", False),
        ("0.0.0.0:9091", False),
        ("[::]", False),
        ("[", False),
    ],
)
async def test_foreign_host_header_is_refused(host: str, let_in: bool) -> None:
    """A request from this machine is refused if its Host header names neither the loopback nor the configured host."""
    assert is_let_in(await ask(port("admin.example"), "/api/v1/groups", host=host)) is let_in


async def test_token_overrides_foreign_host_header() -> None:
    """The token grants access even under a foreign Host header."""
    reply = await ask(port(token=TOKEN), "/api/v1/groups", host="admin.intranet", authorization=basic(TOKEN))
    assert reply.status == 200


async def test_missing_host_header_is_accepted() -> None:
    """A request from this machine without a Host header gets access."""
    assert is_let_in(await ask(port(), "/api/v1/groups", host=""))


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded", "via", "x_real_ip"])
async def test_proxied_request_counts_as_remote(header: str) -> None:
    """A loopback request with a proxy header counts as remote and is refused."""
    headers: dict[str, Any] = {header: "127.0.0.1"}
    assert not is_let_in(await ask(port(), "/api/v1/groups", **headers))


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded", "x_real_ip"])
async def test_proxy_headers_grant_no_access(header: str) -> None:
    """A proxy header that names the loopback address gives a remote client no access."""
    headers: dict[str, Any] = {header: "127.0.0.1"}
    assert not is_let_in(await ask(port(), "/api/v1/groups", client=ELSEWHERE, **headers))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:9091"}, 200),
        ({"origin": "https://localhost:9091"}, 200),
        ({"origin": "http://localhost:9091", "sec_fetch_site": "same-origin"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "http://localhost"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": "null", "host": ""}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
    ],
)
@pytest.mark.parametrize("access", [{}, {"open": True}, {"token": TOKEN}])
async def test_cross_origin_reload_is_refused(headers: dict[str, Any], status: int, access: dict[str, Any]) -> None:
    """A reload with a foreign Origin or a cross-site Sec-Fetch-Site header gets 403, even with the token."""
    reply = await ask(port(**access), "/-/reload", "POST", authorization=bearer(TOKEN), **headers)
    assert reply.status == status


async def test_cross_site_link_is_served() -> None:
    """A cross-site link gets the page, with headers that keep the other site from reading it."""
    reply = await ask(port(), "/api/v1/groups", origin="http://evil.example", sec_fetch_site="cross-site")
    assert reply.status == 200
    assert "access-control-allow-origin" not in reply.headers
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"


# Texts of refusals.


async def test_browser_refusal_is_html() -> None:
    """A refused browser request gets an HTML page that names admin_access.token."""
    reply = await ask(port(), "/", client=ELSEWHERE, accept="text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
    assert (reply.status, reply.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert b"admin_access.token" in reply.body


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "application/json, text/plain"])
async def test_program_refusal_is_json(accept: str) -> None:
    """A refused request that does not ask for HTML gets a JSON error."""
    assert "admin_access" in (await ask(port(token=TOKEN), "/", client=ELSEWHERE, accept=accept)).content["error"]


@pytest.mark.parametrize("status_of", [{"token": TOKEN}, {}, {"token_file": "/nowhere"}])
async def test_refusals_have_security_headers(status_of: dict[str, Any]) -> None:
    """Refusals carry the Content-Security-Policy header and Cache-Control no-store."""
    reply = await ask(port(**status_of), "/", client=ELSEWHERE)
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert reply.headers["cache-control"] == "no-store"


# The settings.


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"token": ""}, "admin_access: token: is empty"),
        ({"token": " \n"}, "admin_access: token: is empty"),
        ({"token": "a", "token_file": "f"}, "admin_access: has both token and token_file"),
        ({"key_file": "k"}, "admin_access: key_file: needs a certificate_file"),
        ({"client_ca_file": "c"}, "admin_access: client_ca_file: needs a certificate_file"),
        ({"metrics": "shut"}, "admin_access.metrics: must be 'open' or 'guarded'"),
        ({"tokens": "a"}, "admin_access.tokens: unknown key; did you mean token?"),
    ],
)
def test_invalid_access_settings_are_reported(settings: dict[str, Any], line: str) -> None:
    """Each invalid admin_access setting raises ConfigError with one line that names the fault."""
    flags = {"listen": "127.0.0.1:0", "upstream": "127.0.0.1:1", "admin_access": settings}
    with pytest.raises(ConfigError) as caught:
        load_config(flags=flags)
    (fault,) = caught.value.lines
    assert line in fault


def test_config_dump_hides_token() -> None:
    """Neither the repr nor the JSON dump of the settings contains the token."""
    config = load_config(flags={"listen": "a:0", "upstream": "b:1", "admin_access": {"token": TOKEN}})
    assert TOKEN not in repr(config)
    assert TOKEN not in config.model_dump_json()


# The parts.


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"], True),
        (["", "localhost", "0.0.0.0", "::", "126.255.255.255", "::ffff:10.0.0.1", "127.1"], False),
    ],
)
def test_is_loopback(values: list[str], expected: bool) -> None:
    """Loopback addresses count as loopback, IPv4-mapped ones included. Host names and short addresses do not."""
    assert [value for value in values if is_loopback(value) is not expected] == []


def test_host_of_header() -> None:
    """The host of a Host header is lower case and has neither port nor brackets."""
    assert [host_of(host) for host in ("A.b:1", "[::1]:1", "[::1]", "", "x")] == ["a.b", "::1", "::1", "", "x"]


def test_offered_token() -> None:
    """The offered token is the whole Basic password, or None without an Authorization header."""
    assert offered_token(basic("a:b", "user")) == "a:b"
    assert offered_token("") is None


async def test_client_certificate_grants_access() -> None:
    """A verified client certificate grants access without a token."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    settings = AdminAccess(certificate_file=Path("c"), client_ca_file=Path("ca"))
    shown = await ask(AccessGuard(app, settings, "h", lambda: True), "/", client=ELSEWHERE)
    not_shown = await ask(AccessGuard(app, settings, "h", lambda: False), "/", client=ELSEWHERE)
    assert (shown.status, not_shown.status) == (204, 403)
    assert "admin_access.client_ca_file" in not_shown.content["error"]
