"""The bearer tokens with which the sidecar authenticates by OAUTHBEARER (RFC 7628), from a file or a token endpoint."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Protocol

import trio

from group_sidecar.proxy.broker.credential_files import CredentialUnavailable, file_text

SaslExchange = Generator[bytes, bytes, None]
"""Yields each token to send, and receives the broker's token in return, until the exchange ends."""

DUMMY_RESPONSE = b"\x01"
"""The client's reply to the error challenge of the broker. The broker ends the exchange only after this reply."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A bearer token (RFC 6750, b64token). Other characters could add fields to the client's message."""
_LONGEST_STATUS = 100
"""The maximum number of characters of a peer's text that an error contains."""


class BearerTokens(Protocol):
    """A source of bearer tokens."""

    async def token(self, seconds: float) -> str:
        """Returns a bearer token.

        Raises:
            CredentialUnavailable: there is no token, or none arrived within `seconds`.
        """

    def refused(self) -> None:
        """Notes that the broker refused the last token."""


class TokenFile:
    """Reads the token from a file, which another program keeps fresh.

    Args:
        file: the file.
        name: the name of the settings in errors.
    """

    def __init__(self, file: Path, name: str) -> None:
        self._file = file
        self._key = f"{name}.token_file"

    async def token(self, seconds: float) -> str:
        """See BearerTokens."""
        return await trio.to_thread.run_sync(token_in, self._key, self._file)

    def refused(self) -> None:
        """See BearerTokens."""


def token_in(key: str, file: Path) -> str:
    """Returns the token in the file that a setting names. Raises CredentialUnavailable."""
    return checked_token(file_text(key, file).strip(), f"{key}: {file}")


class RefusedToken(Exception):
    """The broker answered a token with an error challenge. The text is the status in the challenge."""


def checked_token(token: str, source: str) -> str:
    """Returns the token. Raises CredentialUnavailable if the text is no bearer token."""
    if not _TOKEN.fullmatch(token):
        raise CredentialUnavailable(f"{source} contains no bearer token (RFC 6750)")
    return token


def bearer_exchange(token: str) -> SaslExchange:
    """Yields the one message of OAUTHBEARER (RFC 7628). Raises RefusedToken if the broker answers with a challenge."""
    challenge = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if challenge:
        raise RefusedToken(_status(challenge))


def _status(challenge: bytes) -> str:
    """Returns the status of the broker's error challenge, in one line."""
    try:
        status = json.loads(challenge)["status"]
    except (ValueError, RecursionError, LookupError, TypeError):
        status = None
    return one_line(status) if isinstance(status, str) and status else "an error challenge without a status"


def one_line(text: str) -> str:
    """Returns the beginning of a peer's text, with a space in place of each run of blanks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:_LONGEST_STATUS]).split())
