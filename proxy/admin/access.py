"""Who may see what on the admin port.

Owns: the rules, and what is said to who is not let in. Must not know: what stands behind a path.

A client on this machine is let in by its address. But a browser runs there too, and does what pages from elsewhere ask
for. A page may have its own name resolve to the loopback (DNS rebinding): so a name in `Host` must be one that cannot
be made to. And it may send a form to any address: so what changes something must not come from another origin.
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

from group_sidecar.proxy.admin.replies import problem
from group_sidecar.proxy.logs import Recurring, log
from group_sidecar.proxy.sections import AdminAccess

HEALTH = frozenset({"/healthz", "/readyz"})
METRICS = "/metrics"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""Headers of which any one says that a proxy sent this for somebody else."""
MOST_TOKEN_BYTES = 4096

_CHALLENGES = 'Basic realm="group-sidecar", charset="UTF-8", Bearer realm="group-sidecar"'
"""RFC 7617, RFC 6750: a browser asks for a password at the first, programs know the second."""
_CROSS_ORIGIN = "this does not come from a page of the sidecar, and would change something"
_NO_WAY_IN = (
    "clients elsewhere are let in with a token or a certificate, and neither is configured: see admin_access.token, "
    "admin_access.client_ca_file and admin_access.open"
)


class Guard:
    """Lets a request through to the application, or says why not.

    Args:
        app: what it stands before.
        settings: whom to let in.
        host: the host that the port was configured with.
        certified: whether the client of this connection has shown a certificate that is trusted.
    """

    def __init__(
        self, app: ASGIApp, settings: AdminAccess, host: str, certified: Callable[[], bool] = lambda: False
    ) -> None:
        self._app = app
        self._settings = settings
        self._host = host.lower()
        self._certified = certified
        self._everybody = HEALTH if settings.metrics == "guarded" else HEALTH | {METRICS}
        self._tokens = Tokens(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        refused = await self._refusal(HTTPConnection(scope)) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)

    async def _refusal(self, request: HTTPConnection) -> Response | None:
        if request.scope["method"] not in READING and not _is_same_origin(request.headers):
            return problem(request, 403, _CROSS_ORIGIN)
        if request.scope["path"] in self._everybody or await self._is_let_in(request):
            return None
        if self._tokens.there_are:
            reply = problem(request, 401, "the admin port wants the token of admin_access, or a trusted certificate")
            reply.headers["www-authenticate"] = _CHALLENGES
            return reply
        if self._settings.client_ca_file:
            return problem(request, 403, "the admin port wants a certificate of admin_access.client_ca_file")
        return problem(request, 403, _NO_WAY_IN)

    async def _is_let_in(self, request: HTTPConnection) -> bool:
        if self._settings.open or self._certified() or self._is_local(request):
            return True
        offered = offered_token(request.headers.get("authorization", ""))
        return offered is not None and await self._tokens.match(offered)

    def _is_local(self, request: HTTPConnection) -> bool:
        if request.client is None or not is_loopback(request.client.host):
            return False
        if any(name in request.headers for name in FORWARDED):
            return False
        host = host_of(request.headers.get("host", ""))
        return host in ("", "localhost", self._host) or is_loopback(host)


class Tokens:
    """The token in force. A file that cannot be read, or is empty, holds none that anybody could match."""

    def __init__(self, settings: AdminAccess) -> None:
        self._settings = settings
        self._recurring = Recurring()

    @property
    def there_are(self) -> bool:
        """Whether one is configured."""
        return self._settings.token is not None or self._settings.token_file is not None

    async def match(self, offered: str) -> bool:
        """Whether it is this one. Takes as long for one that is nearly right."""
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
            if times := self._recurring.due("token_file"):
                cause = error.strerror if isinstance(error, OSError) else "is not UTF-8"
                log.warning("token not read", file=str(self._settings.token_file), cause=cause, times=times)
            return ""


def _read(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(MOST_TOKEN_BYTES).decode().strip()


def offered_token(authorization: str) -> str | None:
    """The token in an Authorization header: behind Bearer, or the password of Basic; None where there is none."""
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
    """Whether a numeric address is of the loopback, also as IPv6 writes one of IPv4."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


def host_of(authority: str) -> str:
    """The host of a Host header, without port and brackets, in lower case; what cannot be one as it stands."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return authority


def _is_same_origin(headers: Headers) -> bool:
    """Browsers send Origin with whatever changes something; programs do not.

    The scheme is left out: a proxy before this port may have spoken TLS.
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
