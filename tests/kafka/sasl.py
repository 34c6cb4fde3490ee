"""The client's half of SASL PLAIN, SCRAM and OAUTHBEARER (RFC 4616, RFC 5802, RFC 7677, RFC 7628)."""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Generator

from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.kafka.wire import Wire

Exchange = Generator[bytes, bytes, None]
"""Yields each token of the client, and is sent the server's token in return, until the exchange ends."""


def plain(user: str, password: str) -> Exchange:
    """PLAIN: one token, without a token in return."""
    answer = yield f"\0{user}\0{password}".encode()
    assert answer == b"", answer


def scram_sha_256(user: str, password: str, extensions: str = "") -> Exchange:
    """SCRAM-SHA-256 without channel binding. Asserts that the server also knows the password.

    `extensions`: fields that follow the nonce in the first message, with a comma before each.
    """
    return _scram("sha256", user, password, extensions)


def scram_sha_512(user: str, password: str, extensions: str = "") -> Exchange:
    """SCRAM-SHA-512, as `scram_sha_256`."""
    return _scram("sha512", user, password, extensions)


def bearer(token: str) -> Exchange:
    """OAUTHBEARER: one message with the token, and the dummy message of RFC 7628 if the server sends a challenge."""
    challenge = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if challenge:
        yield b"\x01"


def unsecured_token(user: str, seconds: float = 3600) -> str:
    """Returns an unsecured JWS (RFC 7515) for a user, valid for `seconds`. Kafka needs no issuer to accept it."""
    now = int(time.time())  # Kafka rounds to milliseconds, and refuses a token that was issued in the future.
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + seconds})
    return "".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") + "." for part in parts)


def send_raw(wire: Wire, exchange: Exchange) -> None:
    """Authenticates as after SaslHandshake v0: each token is sent after its length, without a header."""
    token: bytes | None = next(exchange)
    while token is not None:
        wire.send_token(token)
        token = next_token(exchange, wire.receive())


def send_framed(wire: Wire, exchange: Exchange) -> None:
    """Authenticates as after SaslHandshake v1: each token is in a SaslAuthenticate request."""
    token: bytes | None = next(exchange)
    while token is not None:
        reply = wire.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert reply.error_code == 0, reply
        token = next_token(exchange, reply.auth_bytes)


SENDERS = {0: send_raw, 1: send_framed}
"""The functions that send tokens, by the version of SaslHandshake."""


def next_token(exchange: Exchange, answer: bytes) -> bytes | None:
    """Returns the client's next token after the broker's answer, or None at the end of the exchange."""
    try:
        return exchange.send(answer)
    except StopIteration:
        return None


def _scram(algorithm: str, user: str, password: str, extensions: str) -> Exchange:
    bare = f"n={user},r={secrets.token_urlsafe(18)}{extensions}"
    first = (yield f"n,,{bare}".encode()).decode()
    fields = dict(part.split("=", 1) for part in first.split(","))
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    final = f"c={base64.b64encode(b'n,,').decode()},r={fields['r']}"
    signed = f"{bare},{first},{final}".encode()
    client_key = _hmac(algorithm, salted, b"Client Key")
    signature = _hmac(algorithm, hashlib.new(algorithm, client_key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    server = _hmac(algorithm, _hmac(algorithm, salted, b"Server Key"), signed)
    assert answer == b"v=" + base64.b64encode(server), "the server does not know the password"


def _hmac(algorithm: str, key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, algorithm)
