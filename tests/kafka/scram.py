"""The client's half of SASL PLAIN and SCRAM-SHA-256 (RFC 4616, RFC 5802, RFC 7677)."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator

Exchange = Generator[bytes, bytes, None]
"""Yields a token for the server, and is sent the server's token, until the exchange ends."""


def plain(user: str, password: str) -> Exchange:
    """PLAIN: one token, without a token in return."""
    answer = yield f"\0{user}\0{password}".encode()
    assert answer == b"", answer


def scram_sha_256(user: str, password: str) -> Exchange:
    """SCRAM-SHA-256 without channel binding. Asserts that the server also knows the password."""
    bare = f"n={user},r={secrets.token_urlsafe(18)}"
    first = (yield f"n,,{bare}".encode()).decode()
    fields = dict(part.split("=", 1) for part in first.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    final = f"c={base64.b64encode(b'n,,').decode()},r={fields['r']}"
    signed = f"{bare},{first},{final}".encode()
    client_key = _hmac(salted, b"Client Key")
    signature = _hmac(hashlib.sha256(client_key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    server = _hmac(_hmac(salted, b"Server Key"), signed)
    assert answer == b"v=" + base64.b64encode(server), "the server does not know the password"


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")
