"""Who is on a connection, as far as the broker has said so.

Owns: `Principals`: what SASL passing by says of each connection, from the broker's replies alone. Must not know: what
anybody may do (`rights`), the order of frames.

Replies come in the order of requests, and an answer is made only where none is owed. So to follow replies is enough:
while a token is under way, nothing is answered on its connection.

Nothing secret is kept. A PLAIN token is known by a keyed digest of the whole: some brokers tell their users apart by
the password alone (tokens over PLAIN), and the same token is the same user to all of them.
"""

import hashlib
import math
import re
import secrets
from dataclasses import dataclass
from typing import NamedTuple

from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateResponse
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.proxy.disposals import Origin

ROUNDS = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""Mechanisms whose first token names a user, and how many tokens their client sends (RFC 4616, RFC 5802)."""
LIFETIME_SINCE = 1
"""The SaslAuthenticate version from which the broker says how long a session lasts (KIP-368). Whoever authenticated in
an older one may be cut off at any time, and is nobody here."""
UNAUTHENTICATED = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""What a broker answers to anybody, however its listener is secured."""

_SECRET = secrets.token_bytes(32)
"""The key of all digests, of this process alone."""

# The user in SCRAM's first message. One with extensions behind its nonce, such as that of a delegation token
# (KIP-48), is another user than the same name without them.
_SCRAM_FIRST = re.compile(rb"([ny],(?:a=[^,]+)?,n=[^,]+),r=[^,]+")


class Principal(NamedTuple):
    """Whom the broker takes a client for: the same to us is the same to the broker, but not the other way round."""

    how: str
    name: bytes = b""


ANONYMOUS = Principal("anonymous")
"""Everybody on a listener without SASL: all connections come from the sidecar's own address."""


class Handshake(NamedTuple):
    """A note for the reply to SaslHandshake. `mechanism` is empty where it could not be read."""

    mechanism: str
    version: int
    api_key: int = ApiKey.SASL_HANDSHAKE


class Token(NamedTuple):
    """A note for the reply to SaslAuthenticate. Without a digest the request could not be read."""

    version: int
    sent_at: float = 0.0
    digest: bytes = b""
    user: bytes = b""
    """As SCRAM's first message names it; empty in any other."""
    api_key: int = ApiKey.SASL_AUTHENTICATE


@dataclass(slots=True)
class _Authentication:
    """Of one connection. `served`: whether the broker has answered a request since the last token."""

    mechanism: str
    trusted: bool = True
    """Whether the connection may be somebody. False for good, once anything about it is not understood."""
    rounds: int = 0
    named: Principal | None = None
    until: float = math.inf
    served: bool = False


class Principals:
    """The connections of one broker's clients. `now` is the shell's clock."""

    def __init__(self) -> None:
        self._known: dict[int, _Authentication] = {}

    def token(self, token: bytes, version: int, now: float) -> Token:
        """The note for a token that goes to the broker."""
        digest = hashlib.blake2b(token, key=_SECRET, digest_size=32).digest()
        first = _SCRAM_FIRST.fullmatch(token)
        return Token(version, now, digest, first[1] if first else b"")

    def shaken(self, origin: Origin, mechanism: str) -> None:
        """The broker took a mechanism, whose tokens will come in SaslAuthenticate."""
        known = self._known.get(origin.number)
        if known is None or known.trusted:
            self._known[origin.number] = _Authentication(mechanism)

    def authenticated(self, origin: Origin, token: Token, reply: SaslAuthenticateResponse) -> None:
        """The broker answered a token."""
        known = self._known.get(origin.number)
        if known is None or not known.trusted or reply.error_code or not token.digest or token.version < LIFETIME_SINCE:
            self.distrust(origin)
            return
        known.rounds += 1
        if known.rounds == 1:
            known.named = _named(known.mechanism, token)
        lifetime = reply.session_lifetime_ms / 1000
        known.until = token.sent_at + lifetime if lifetime > 0 else math.inf
        known.served = False

    def distrust(self, origin: Origin) -> None:
        """Something about the connection is not understood or not known: it is nobody, from here on."""
        self._known.setdefault(origin.number, _Authentication("")).trusted = False

    def served(self, origin: Origin) -> bool:
        """The broker answered a request that not just anybody may send. Gives whether that was without SASL."""
        if origin.number not in self._known:
            return True
        self._known[origin.number].served = True
        return False

    def admitted(self, origin: Origin) -> bool:
        """Returns whether the broker has accepted SASL on a connection, or has served a request behind it."""
        known = self._known.get(origin.number)
        if known is None:
            return False
        return known.served or (known.trusted and known.rounds >= ROUNDS.get(known.mechanism, math.inf))

    def of(self, origin: Origin, now: float) -> Principal | None:
        """Who is on a connection; None: not known. Without SASL it is ANONYMOUS, if the broker serves such at all."""
        if origin.number not in self._known:
            return ANONYMOUS
        known = self._known[origin.number]
        if not known.trusted or now >= known.until:
            return None
        if known.named is None:
            return _own(origin) if known.rounds and known.served else None
        return known.named if known.rounds == ROUNDS[known.mechanism] else None

    def gone(self, origin: Origin) -> Principal | None:
        """The connection is over. Gives whom it alone could have been; None where it was nobody of its own."""
        if origin.number not in self._known:
            return None
        del self._known[origin.number]
        return _own(origin)


def _named(mechanism: str, token: Token) -> Principal | None:
    """Whom a mechanism's first token names; None where that is not known."""
    if mechanism == "PLAIN":
        return Principal(mechanism, token.digest)
    return Principal(mechanism, token.user) if mechanism in ROUNDS and token.user else None


def _own(origin: Origin) -> Principal:
    """A user of whom no more is known than the connection: it shares what it may see with no other."""
    return Principal("connection", str(origin.number).encode())
