"""Finds the principal of each client connection: from the broker's replies to SASL requests, or from certificates.

A local answer is made only when no earlier reply is pending on the connection. So it is enough to follow the replies:
while a token is in flight, nothing on its connection is answered locally. `authorization_cache` holds the rights of the
principals.

For the broker, the principal of a client without SASL is the subject of the certificate with which the sidecar has
connected. The sidecar itself uses the subject of the client's own certificate, for `connections_per_principal` and for
reports (`user_of`).

No secret is kept. A PLAIN token is identified by a keyed digest of the whole token. Some brokers distinguish users only
by the password (tokens over PLAIN), but to every broker the same token is the same user. The user in the token is only
reported.
"""

import hashlib
import math
import re
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateResponse
from group_sidecar.proxy.dataplane.outcomes import Origin

SASL_ROUNDS = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""Mechanisms whose first token names a user, with the number of tokens that the client sends (RFC 4616, RFC 5802)."""
LIFETIME_SINCE = 1
"""The SaslAuthenticate version from which the broker reports the lifetime of a session (KIP-368). With older versions
the broker may end a session at any time, so the session's principal counts as unknown."""
UNAUTHENTICATED = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Requests that a broker answers before authentication, on any listener."""

MAX_REPORTED_CHARACTERS = 512
"""The length of the longest user that is reported whole. A subject may have 32 KiB, and each member of a group stores
its principal."""
MAX_SHARED_USERS = 4_096
"""The number of reported users whose text is cached, so that all members and connections of a user share one text."""

_SECRET = secrets.token_bytes(32)
"""The key of all digests. The key exists only in this process."""

# The user in SCRAM's first message. A message with extensions after its nonce does not match: with the extension of a
# delegation token (KIP-48), the same name is another user.
_SCRAM_FIRST = re.compile(rb"([ny],(?:a=[^,]+)?,n=[^,]+),r=[^,]+")


class Principal(NamedTuple):
    """A user, as far as the sidecar can distinguish users.

    Equal principals are the same user to the broker, but one user may have several principals.
    """

    mechanism: str
    name: bytes = b""
    listener: str = ""
    """The name of the client's listener. Each listener may have its own users (KIP-103)."""


ANONYMOUS = "anonymous"
"""The mechanism of every client without SASL. The broker sees only the sidecar's address and certificate. So all
clients of a listener for which the sidecar uses the same certificate share one principal. The name of this principal is
the number of the certificate, and empty without TLS."""
_CERTIFICATE = "certificate"
"""The mechanism of a client's own certificate. A principal with this mechanism has no rights, and serves only to count
connections."""


class SentToken(NamedTuple):
    """A token that a client sent in SaslAuthenticate. `digest` is empty if the request could not be decoded."""

    version: int
    sent_at: float = 0.0
    digest: bytes = b""
    user: bytes = b""
    """The user in SCRAM's first message, or empty for any other token."""
    plain_user: bytes = b""
    """The user if this is a PLAIN token, without the password; empty for any other token."""


@dataclass(slots=True)
class _Authentication:
    """The state of one connection. `served`: whether the broker has answered a request since the last token."""

    mechanism: str
    trusted: bool = True
    """Whether the connection can have a principal. Stays False once something about the connection is not
    understood."""
    rounds: int = 0
    named: Principal | None = None
    user: str = ""
    """The user of `named` for reports, see `Principals.user_of`."""
    expires_at: float = math.inf
    served: bool = False

    @property
    def authenticated(self) -> Principal | None:
        """The principal that the client's tokens name. None before the broker has accepted the last token, or if no
        token names a principal.
        """
        done = self.trusted and self.rounds >= SASL_ROUNDS.get(self.mechanism, math.inf)
        return self.named if done else None


class Principals:
    """The principals of one listener's connections to one broker. `now` is on trio's clock.

    Args:
        listener: the name of the listener.
        max_connections: the maximum number of connections of one principal, or 0 for no limit.
    """

    def __init__(self, listener: str = "", max_connections: int = 0) -> None:
        self._listener = listener
        self.max_connections = max_connections
        self._counts: dict[Principal, int] = {}
        """The number of connections of each principal that has authenticated, if there is a limit."""
        self._counted: dict[int, Principal] = {}
        """The principal for which a connection is counted in `_counts`, by the number of the connection."""
        self._anonymous = Principal(ANONYMOUS, listener=listener)
        self._known: dict[int, _Authentication] = {}
        """The connections that have used SASL, by number."""

    def token(self, token: bytes, version: int, now: float) -> SentToken:
        """Returns what the sidecar keeps of a token that is sent to the broker."""
        digest = hashlib.blake2b(token, key=_SECRET, digest_size=32).digest()
        first = _SCRAM_FIRST.fullmatch(token)
        return SentToken(version, now, digest, first[1] if first else b"", _user_in_plain(token))

    def handshake_accepted(self, origin: Origin, mechanism: str) -> Principal | None:
        """Notes that the broker accepted a mechanism whose tokens will come in SaslAuthenticate requests.

        Returns the principal that only this connection has, or None at the connection's first handshake. The caller
        must forget the grants of this principal, because the connection may get the same principal again as another
        user.
        """
        known = self._known.get(origin.number)
        if known is None or known.trusted:
            self._stop_counting(origin)
            self._known[origin.number] = _Authentication(mechanism)
        return None if known is None else _connection_principal(origin)

    def token_answered(self, origin: Origin, token: SentToken, reply: SaslAuthenticateResponse) -> None:
        """Notes the broker's reply to a token."""
        known = self._known.get(origin.number)
        if known is None or not known.trusted or reply.error_code or not token.digest or token.version < LIFETIME_SINCE:
            self.distrust(origin)
            return
        known.rounds += 1
        if known.rounds == 1:
            known.named = self._named(known.mechanism, token)
        if (named := known.authenticated) is not None:
            known.user = _plain_user(token) if named.mechanism == "PLAIN" else _scram_user(named.name)
        lifetime = reply.session_lifetime_ms / 1000
        known.expires_at = token.sent_at + lifetime if lifetime > 0 else math.inf
        known.served = False

    def try_count(self, origin: Origin) -> bool:
        """Counts a connection towards the connections of its principal, once the broker has accepted the last token.

        Returns False if the principal has too many connections. Only principals with a name count.
        """
        known = self._known.get(origin.number)
        if known is None or origin.number in self._counted or known.authenticated is None:
            return True
        return self._try_count_for(origin, known.authenticated)

    def try_count_certificate(self, origin: Origin, subject: str) -> bool:
        """Counts a new connection towards the connections of its client's certificate, until SASL begins.

        `subject`: the subject of the certificate. Returns False if this subject has too many connections.
        """
        return self._try_count_for(origin, Principal(_CERTIFICATE, subject.encode(), self._listener))

    @property
    def limit_cause(self) -> str:
        """Why a connection is refused if its principal has too many connections, as text for the log."""
        return f"its principal has {self.max_connections} connections (limits.connections_per_principal)"

    def _try_count_for(self, origin: Origin, principal: Principal) -> bool:
        if not self.max_connections:
            return True
        count = self._counts.get(principal, 0)
        if count >= self.max_connections:
            return False
        self._counts[principal] = count + 1
        self._counted[origin.number] = principal
        return True

    def _stop_counting(self, origin: Origin) -> None:
        principal = self._counted.pop(origin.number, None)
        if principal is None:
            return
        self._counts[principal] -= 1
        if not self._counts[principal]:
            del self._counts[principal]

    def distrust(self, origin: Origin) -> None:
        """Treats the principal of a connection as unknown from now on."""
        self._known.setdefault(origin.number, _Authentication("")).trusted = False

    def note_served(self, origin: Origin) -> bool:
        """Notes that the broker answered a request that requires authentication on a listener with SASL.

        Returns whether the connection has used SASL.
        """
        if origin.number not in self._known:
            return False
        self._known[origin.number].served = True
        return True

    def admitted(self, origin: Origin) -> bool:
        """Returns whether the broker has accepted the client's last token, or has answered a request since then."""
        known = self._known.get(origin.number)
        if known is None:
            return False
        return known.served or (known.trusted and known.rounds >= SASL_ROUNDS.get(known.mechanism, math.inf))

    def principal_of(self, origin: Origin, now: float) -> Principal | None:
        """Returns the principal of a connection, or None if it is unknown. Without SASL the principal is anonymous.

        The caller must check whether the broker serves anonymous clients.
        """
        if origin.number not in self._known:
            return self.without_sasl(origin)
        known = self._known[origin.number]
        if not known.trusted or now >= known.expires_at:
            return None
        if known.named is None:
            return _connection_principal(origin) if known.rounds and known.served else None
        return known.named if known.rounds == SASL_ROUNDS[known.mechanism] else None

    def user_of(self, origin: Origin) -> str:
        """Returns the principal of a client as Kafka writes it, for reports; empty if it is not known.

        Without SASL, the principal is the subject of the client's certificate. With PLAIN or SCRAM, the principal is
        the user in an accepted token. With other mechanisms, the principal is not known. A principal of more than
        MAX_REPORTED_CHARACTERS is cut.
        """
        known = self._known.get(origin.number)
        if known is None:
            return "" if origin.subject is None else _reported(origin.subject)
        return known.user if known.authenticated is not None else ""

    def without_sasl(self, origin: Origin) -> Principal:
        """Returns the principal that a connection has without SASL."""
        if not origin.certificate:
            return self._anonymous
        return Principal(ANONYMOUS, str(origin.certificate).encode(), self._listener)

    def _named(self, mechanism: str, token: SentToken) -> Principal | None:
        """Returns the principal that a mechanism's first token names, or None if the principal is unknown."""
        if mechanism == "PLAIN":
            return Principal(mechanism, token.digest, self._listener)
        return Principal(mechanism, token.user, self._listener) if mechanism in SASL_ROUNDS and token.user else None

    def gone(self, origin: Origin) -> Principal | None:
        """Forgets a connection that has ended.

        Returns the principal that only this connection has, or None if the connection did not use SASL.
        """
        self._stop_counting(origin)
        return None if self._known.pop(origin.number, None) is None else _connection_principal(origin)


def _user_in_plain(token: bytes) -> bytes:
    """Returns the user of a PLAIN token (RFC 4616, section 2), cut as for reports; empty for any other token."""
    parts = token.split(b"\0", 3)
    return parts[1][: 4 * MAX_REPORTED_CHARACTERS + 4] if len(parts) == 3 else b""


def _plain_user(token: SentToken) -> str:
    """Returns the user in a PLAIN token as a principal for reports; empty if the token names no user."""
    return _reported(token.plain_user.decode(errors="replace")) if token.plain_user else ""


def _scram_user(name: bytes) -> str:
    """Returns the user in SCRAM's first message (RFC 5802, section 5.1) as a principal for reports."""
    user = name.rpartition(b",n=")[2].replace(b"=2C", b",").replace(b"=3D", b"=")
    return _reported(user.decode(errors="replace"))


def _reported(user: str) -> str:
    """Returns the principal of a user for reports."""
    return _shared(user if len(user) <= MAX_REPORTED_CHARACTERS else f"{user[:MAX_REPORTED_CHARACTERS]}…")


@lru_cache(MAX_SHARED_USERS)
def _shared(user: str) -> str:
    """Returns the same string object for each connection of a user, because each group member stores its principal."""
    return f"User:{user}"


def _connection_principal(origin: Origin) -> Principal:
    """Returns a principal for the user of one connection, if the user's name is not known.

    No other connection shares the grants of this principal.
    """
    return Principal("connection", str(origin.number).encode())
