"""Access rules of the admin port: which clients may read which paths.

A client on this machine is admitted by its loopback address. A browser on this machine has this address too, and sends
requests on behalf of foreign pages. A foreign page may make its own name resolve to the loopback address (DNS
rebinding). So the name in `Host` must be one that cannot be rebound. A foreign page may also send a form to any
address. So requests that change something must not come from another origin.
"""

import base64
import hmac
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import urlsplit

import trio
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from group_sidecar.metrics.admin_counters import AdminCounters
from group_sidecar.proxy.admin.guess_limit import GuessLimit
from group_sidecar.proxy.admin.http_replies import problem
from group_sidecar.proxy.config.sections import AdminAccess
from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log

HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/startupz"})
METRICS_PATH = "/metrics"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
FORWARDED_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""Headers that a proxy adds when it forwards another client's request."""
MAX_TOKEN_BYTES = 4096

_CHALLENGES = 'Basic realm="group-sidecar", charset="UTF-8", Bearer realm="group-sidecar"'
"""Challenges of RFC 7617 and RFC 6750. A browser asks for a password for Basic. Programs use Bearer."""
_CROSS_ORIGIN = "this does not come from a page of the sidecar, and would change something"
_NO_WAY_IN = (
    "clients elsewhere, and requests whose Host is neither localhost nor the host of admin, are let in with a token or "
    "a certificate, and neither is configured: see admin_access.token, admin_access.client_ca_file and "
    "admin_access.open"
)


class AccessGuard:
    """Passes a request to the application, or refuses it with a reason.

    Args:
        app: the protected application.
        settings: the access rules.
        host: the configured host of the port.
        has_certificate: returns whether the client of this connection has presented a trusted certificate.
        counters: counts wrong tokens; None to count nothing.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: AdminAccess,
        host: str,
        has_certificate: Callable[[], bool] = lambda: False,
        counters: AdminCounters | None = None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._host = host.lower()
        self._has_certificate = has_certificate
        self._public_paths = HEALTH_PATHS if settings.metrics == "guarded" else HEALTH_PATHS | {METRICS_PATH}
        self._token = AdminToken(settings)
        self._guesses = GuessLimit(settings.wrong_tokens_per_minute, counters or AdminCounters())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request as an ASGI application."""
        refused = await self._refusal(HTTPConnection(scope)) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)

    async def _refusal(self, request: HTTPConnection) -> Response | None:
        if request.scope["method"] not in SAFE_METHODS and not _is_same_origin(request.headers):
            return problem(request, 403, _CROSS_ORIGIN)
        if request.scope["path"] in self._public_paths or self._needs_no_token(request):
            return None
        if self._token.is_configured:
            return await self._token_refusal(request)
        if self._settings.client_ca_file:
            return problem(request, 403, "the admin port wants a certificate of admin_access.client_ca_file")
        return problem(request, 403, _NO_WAY_IN)

    def _needs_no_token(self, request: HTTPConnection) -> bool:
        return self._settings.open or self._has_certificate() or self._is_local(request)

    async def _token_refusal(self, request: HTTPConnection) -> Response | None:
        """Returns None if the request has the right token, otherwise the refusal."""
        offered = offered_token(request.headers.get("authorization", ""))
        if offered is not None:
            host = request.client.host if request.client else ""
            if seconds := self._guesses.take_guess(host):
                reply = problem(request, 429, "too many wrong tokens came from this address")
                reply.headers["retry-after"] = str(seconds)
                return reply
            if await self._token.match(offered):
                self._guesses.was_right(host)
                return None
            self._guesses.was_wrong(host)
        reply = problem(request, 401, "the admin port wants the token of admin_access, or a trusted certificate")
        reply.headers["www-authenticate"] = _CHALLENGES
        return reply

    def _is_local(self, request: HTTPConnection) -> bool:
        if request.client is None or not is_loopback(request.client.host):
            return False
        if any(name in request.headers for name in FORWARDED_HEADERS):
            return False
        host = host_of(request.headers.get("host", ""))
        return host in ("", "localhost", self._host) or is_loopback(host)


class AdminToken:
    """The configured token. If its file is empty or cannot be read, no offered token matches."""

    def __init__(self, settings: AdminAccess) -> None:
        self._settings = settings
        self._log_throttle = LogThrottle()

    @property
    def is_configured(self) -> bool:
        """Whether a token is configured."""
        return self._settings.token is not None or self._settings.token_file is not None

    async def match(self, offered: str) -> bool:
        """Whether the offered token is the right one. The comparison takes constant time."""
        expected = await self._expected()
        return expected != "" and hmac.compare_digest(offered.encode(), expected.encode())

    async def _expected(self) -> str:
        if self._settings.token is not None:
            return self._settings.token.get_secret_value().strip()
        if self._settings.token_file is None:
            return ""
        try:
            return await trio.to_thread.run_sync(_read, self._settings.token_file)
        except (OSError, UnicodeDecodeError) as error:
            if times := self._log_throttle.due("token_file"):
                cause = error.strerror if isinstance(error, OSError) else "is not UTF-8"
                log.warning("token not read", file=str(self._settings.token_file), cause=cause, times=times)
            return ""


def _read(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(MAX_TOKEN_BYTES).decode().strip()


def offered_token(authorization: str) -> str | None:
    """Returns the token of an Authorization header: the one of Bearer, the password of Basic, or None."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() != "basic":
        return None
    try:
        user_and_password = base64.b64decode(rest.strip(), validate=True).decode()
    except ValueError:
        return None
    return user_and_password.partition(":")[2]


def is_loopback(address: str) -> bool:
    """Whether a numeric address is a loopback address, including IPv4-mapped IPv6 addresses."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


def host_of(authority: str) -> str:
    """Returns the host of a Host header in lower case, without port and brackets. Invalid text is returned as is."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return authority


def _is_same_origin(headers: Headers) -> bool:
    """Whether a request comes from no page of another origin, as its headers Sec-Fetch-Site and Origin show.

    Browsers send Origin with requests that change something. The scheme is not compared, because a proxy in front of
    this port may have terminated TLS.
    """
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
    except ValueError:
        return False
