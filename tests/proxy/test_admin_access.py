"""Who is let in at the admin port."""

import base64
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from group_sidecar.coordinator.views import GroupState, GroupView
from group_sidecar.proxy.admin.access import Guard, host_of, is_loopback, offered_token
from group_sidecar.proxy.config import ConfigError, load_config
from group_sidecar.proxy.reloading import Outcome
from group_sidecar.proxy.sections import AdminAccess
from tests.proxy.admin_stage import Reply, admin, ask

TOKEN = "correct horse"
ELSEWHERE = ("10.0.0.9", 40_000)
GUARDED = ["/api/v1/groups", "/api/v1/group?group=orders", "/api/v1/status", "/api/v1/openapi.json", "/nowhere"]


def bearer(token: str) -> str:
    return f"Bearer {token}"


def basic(password: str, user: str = "") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def metrics(accept: str) -> tuple[bytes, str]:
    return b"up 1\n", "text/plain"


async def reload() -> Outcome:
    return Outcome(True, [])


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
async def test_a_client_on_this_machine_needs_nothing(client: str, path: str) -> None:
    assert is_let_in(await ask(port(token=TOKEN), path, client=(client, 1)))


@pytest.mark.parametrize("client", ["10.0.0.9", "::ffff:10.0.0.9", "2001:db8::1", "128.0.0.1", "localhost", ""])
@pytest.mark.parametrize("path", GUARDED)
async def test_others_are_told_what_to_configure(client: str, path: str) -> None:
    reply = await ask(port(), path, client=(client, 1))
    assert not is_let_in(reply)
    assert reply.status == 403
    assert "admin_access.token" in reply.content["error"]
    assert "www-authenticate" not in reply.headers


async def test_who_has_no_address_is_not_of_this_machine() -> None:
    assert not is_let_in(await ask(port(), "/api/v1/groups", client=None))


@pytest.mark.parametrize("path", GUARDED)
async def test_others_need_the_token(path: str) -> None:
    reply = await ask(port(token=TOKEN), path, client=ELSEWHERE)
    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith('Basic realm="group-sidecar", charset="UTF-8", Bearer')


@pytest.mark.parametrize("authorization", [bearer(TOKEN), basic(TOKEN), basic(TOKEN, "anybody"), f"bearer  {TOKEN}"])
async def test_the_token_lets_in(authorization: str) -> None:
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
async def test_nothing_else_lets_in(authorization: str) -> None:
    reply = await ask(port(token=TOKEN), "/api/v1/groups", client=ELSEWHERE, authorization=authorization)
    assert reply.status == 401


@pytest.mark.parametrize("authorization", ["", bearer(""), basic(""), bearer("None")])
async def test_without_a_token_no_token_lets_in(authorization: str) -> None:
    assert (await ask(port(), "/api/v1/groups", client=ELSEWHERE, authorization=authorization)).status == 403


async def test_a_token_file_is_read_whenever_it_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    app = port(token_file=file)

    async def status(token: str) -> int:
        return (await ask(app, "/api/v1/groups", client=ELSEWHERE, authorization=bearer(token))).status

    assert [await status("first"), await status("second"), await status("first\n")] == [200, 401, 200]
    file.write_text("second")
    assert [await status("first"), await status("second")] == [401, 200]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xff"])
async def test_a_token_file_without_a_token_lets_nobody_in(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    for authorization in (bearer(""), basic(""), bearer(content.decode("latin-1").strip())):
        reply = await ask(port(token_file=file), "/api/v1/groups", client=ELSEWHERE, authorization=authorization)
        assert reply.status == 401


async def test_a_token_file_that_is_gone_lets_nobody_in(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    app = port(token_file=tmp_path / "token")
    for _ in range(3):
        assert (await ask(app, "/api/v1/groups", client=ELSEWHERE, authorization=bearer(""))).status == 401
    assert "".join(capfd.readouterr()).count("token not read") == 1


async def test_open_is_for_everybody() -> None:
    for path in ("/api/v1/groups", "/api/v1/openapi.json"):
        reply = await ask(port(open=True), path, client=ELSEWHERE, host="anything", x_forwarded_for="1.2.3.4")
        assert reply.status == 200


# What is open, and what is not.


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_health_and_metrics_are_open(path: str) -> None:
    assert (await ask(port(token=TOKEN), path, client=ELSEWHERE, host="pod:9091")).status == 200


async def test_metrics_may_be_guarded() -> None:
    app = port(token=TOKEN, metrics="guarded")
    assert (await ask(app, "/metrics", client=ELSEWHERE)).status == 401
    assert (await ask(app, "/metrics", client=ELSEWHERE, authorization=bearer(TOKEN))).status == 200
    assert (await ask(app, "/metrics")).status == 200
    assert (await ask(app, "/readyz", client=ELSEWHERE)).status == 200


@pytest.mark.parametrize("path", ["/metrics/../api/v1/groups", "/Metrics", "/metrics/", "//metrics", "/healthz/x"])
async def test_what_looks_like_an_open_path_is_none(path: str) -> None:
    assert (await ask(port(token=TOKEN), path, client=ELSEWHERE)).status == 401


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "PUT"])
async def test_no_method_gets_round_it(method: str) -> None:
    assert (await ask(port(token=TOKEN), "/api/v1/groups", method, client=ELSEWHERE)).status == 401


async def test_a_reload_from_elsewhere_needs_the_token() -> None:
    assert (await ask(port(token=TOKEN), "/-/reload", "POST", client=ELSEWHERE)).status == 401
    reply = await ask(port(token=TOKEN), "/-/reload", "POST", client=ELSEWHERE, authorization=bearer(TOKEN))
    assert reply.status == 200


# Browsers that were lured here, and proxies.


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
async def test_a_page_under_another_name_cannot_read(host: str, let_in: bool) -> None:
    assert is_let_in(await ask(port("admin.example"), "/api/v1/groups", host=host)) is let_in


async def test_a_page_under_another_name_may_still_have_the_token() -> None:
    reply = await ask(port(token=TOKEN), "/api/v1/groups", host="admin.intranet", authorization=basic(TOKEN))
    assert reply.status == 200


async def test_programs_that_name_no_host_are_let_in() -> None:
    assert is_let_in(await ask(port(), "/api/v1/groups", host=""))


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded", "via", "x_real_ip"])
async def test_what_came_through_a_proxy_is_not_of_this_machine(header: str) -> None:
    said: dict[str, Any] = {header: "127.0.0.1"}
    assert not is_let_in(await ask(port(), "/api/v1/groups", **said))


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded", "x_real_ip"])
async def test_what_a_proxy_says_lets_nobody_in(header: str) -> None:
    said: dict[str, Any] = {header: "127.0.0.1"}
    assert not is_let_in(await ask(port(), "/api/v1/groups", client=ELSEWHERE, **said))


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
async def test_no_page_from_elsewhere_can_reload(headers: dict[str, Any], status: int, access: dict[str, Any]) -> None:
    reply = await ask(port(**access), "/-/reload", "POST", authorization=bearer(TOKEN), **headers)
    assert reply.status == status


async def test_a_page_from_elsewhere_may_be_a_link() -> None:
    """Its browser shows the page to the user alone; the other page cannot read it."""
    reply = await ask(port(), "/api/v1/groups", origin="http://evil.example", sec_fetch_site="cross-site")
    assert reply.status == 200
    assert "access-control-allow-origin" not in reply.headers
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"


# What is said.


async def test_a_browser_is_told_in_html() -> None:
    reply = await ask(port(), "/", client=ELSEWHERE, accept="text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
    assert (reply.status, reply.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert b"admin_access.token" in reply.body


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "application/json, text/plain"])
async def test_a_program_is_told_in_json(accept: str) -> None:
    assert "admin_access" in (await ask(port(token=TOKEN), "/", client=ELSEWHERE, accept=accept)).content["error"]


@pytest.mark.parametrize("status_of", [{"token": TOKEN}, {}, {"token_file": "/nowhere"}])
async def test_refusals_are_as_strict_as_all_else(status_of: dict[str, Any]) -> None:
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
def test_settings_that_cannot_be_used(settings: dict[str, Any], line: str) -> None:
    flags = {"listen": "127.0.0.1:0", "upstream": "127.0.0.1:1", "admin_access": settings}
    with pytest.raises(ConfigError) as caught:
        load_config(flags=flags)
    (fault,) = caught.value.lines
    assert line in fault


def test_the_token_is_in_no_line() -> None:
    config = load_config(flags={"listen": "a:0", "upstream": "b:1", "admin_access": {"token": TOKEN}})
    assert TOKEN not in repr(config)
    assert TOKEN not in config.model_dump_json()


# The parts.


@pytest.mark.parametrize("value", ["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"])
def test_addresses_of_the_loopback(value: str) -> None:
    assert is_loopback(value)


@pytest.mark.parametrize("value", ["", "localhost", "0.0.0.0", "::", "126.255.255.255", "::ffff:10.0.0.1", "127.1"])
def test_other_addresses(value: str) -> None:
    assert not is_loopback(value)


def test_hosts() -> None:
    assert [host_of(host) for host in ("A.b:1", "[::1]:1", "[::1]", "", "x")] == ["a.b", "::1", "::1", "", "x"]


def test_tokens() -> None:
    assert offered_token(basic("a:b", "user")) == "a:b"
    assert offered_token("") is None


async def test_a_certificate_lets_in() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    settings = AdminAccess(certificate_file=Path("c"), client_ca_file=Path("ca"))
    shown = await ask(Guard(app, settings, "h", lambda: True), "/", client=ELSEWHERE)
    not_shown = await ask(Guard(app, settings, "h", lambda: False), "/", client=ELSEWHERE)
    assert (shown.status, not_shown.status) == (204, 403)
    assert "admin_access.client_ca_file" in not_shown.content["error"]
