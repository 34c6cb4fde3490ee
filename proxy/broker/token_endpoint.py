"""Asks a token endpoint for bearer tokens by client credentials (RFC 6749, section 4.4; KIP-768).

No error contains the client secret or a token. The endpoint's answer is bounded in time and size.
"""

import base64
import json
import ssl
from http import HTTPStatus
from typing import Any, NamedTuple

import trio

from group_sidecar.proxy.broker.bearer_tokens import checked_token, one_line
from group_sidecar.proxy.broker.credential_files import CredentialUnavailable, secret_text
from group_sidecar.proxy.broker.http_client import HttpFailed, post_form
from group_sidecar.proxy.broker.kafka_client import CLIENT_ID
from group_sidecar.proxy.config.own_connection import Sasl
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.tls.reloading_contexts import UnusableFileError, client_context

LARGEST_ANSWER = 524_288
"""The maximum number of bytes of an answer. The number is the default of the broker's `sasl.server.max.receive.size`,
which limits the token."""
FRESH_SHARE = 0.8
"""The share of a token's lifetime after which the sidecar asks for another token. The share is the default of Kafka's
`sasl.login.refresh.window.factor`."""

_LONGEST_LIFETIME = 86_400.0
"""Seconds after which a token counts as expired, whatever the endpoint says."""


class _Token(NamedTuple):
    """A token. The times are on trio's clock. After `fresh_until`, the endpoint is asked for another token."""

    text: str
    fresh_until: float
    expires_at: float


class TokenEndpoint:
    """Returns the token of an earlier request while the token is fresh, and asks the endpoint otherwise.

    Args:
        sasl: the settings, with a token endpoint.
        name: the name of the settings in errors.
    """

    def __init__(self, sasl: Sasl, name: str) -> None:
        assert sasl.token_endpoint_url is not None
        self._sasl = sasl
        self._name = name
        self._url = sasl.token_endpoint_url
        self._lock = trio.Lock()  # Connections that open together share one request.
        self._last: _Token | None = None

    async def token(self, seconds: float) -> str:
        """See BearerTokens. If the endpoint fails, the last token is used until it expires."""
        try:
            return await self._fresh_token(seconds)
        except CredentialUnavailable as error:
            if self._last is None or trio.current_time() >= self._last.expires_at:
                raise
            log.debug("token endpoint failed, the last token is used again", reason=str(error))
            return self._last.text

    def refused(self) -> None:
        """See BearerTokens."""
        self._last = None

    async def _fresh_token(self, seconds: float) -> str:
        try:
            with trio.fail_after(seconds):
                async with self._lock:
                    if self._last is None or trio.current_time() >= self._last.fresh_until:
                        self._last = await self._ask()
                    return self._last.text
        except trio.TooSlowError:
            raise CredentialUnavailable(f"{self._url} did not answer within {seconds:g} s") from None
        except HttpFailed as error:
            raise CredentialUnavailable(f"{self._url} {error}") from None

    async def _ask(self) -> _Token:
        secret, context = await trio.to_thread.run_sync(self._read_files)
        form = {"grant_type": "client_credentials"} | ({"scope": self._sasl.scope} if self._sasl.scope else {})
        credentials = base64.b64encode(f"{self._sasl.client_id}:{secret}".encode()).decode()
        headers = {"authorization": f"Basic {credentials}", "accept": "application/json", "user-agent": CLIENT_ID}
        asked_at = trio.current_time()
        answer = await post_form(self._url, form, headers, context, LARGEST_ANSWER)
        document = _object(answer.body)
        if answer.status != HTTPStatus.OK:
            raise CredentialUnavailable(f"{self._url} answers with status {answer.status}{_error(document)}")
        token = document.get("access_token")
        if not isinstance(token, str):
            raise CredentialUnavailable(f"{self._url} answers without an access_token in a JSON object")
        lifetime = _lifetime(document)
        return _Token(checked_token(token, self._url), asked_at + FRESH_SHARE * lifetime, asked_at + lifetime)

    def _read_files(self) -> tuple[str, ssl.SSLContext | None]:
        sasl = self._sasl
        secret = secret_text(f"{self._name}.client_secret_file", sasl.client_secret, sasl.client_secret_file)
        if self._url.lower().startswith("http:"):
            return secret, None
        try:
            return secret, client_context(sasl.ca_file)
        except UnusableFileError as error:
            raise CredentialUnavailable(f"{self._name}.{error}") from None


def _object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object in an answer, or an empty object if there is none."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _error(document: dict[str, Any]) -> str:
    """Returns the error code of an answer (RFC 6749, section 5.2) after a colon, or nothing if there is none.

    The description of the error is left out, because it may repeat the client's credentials.
    """
    error = document.get("error")
    return f": {one_line(error)}" if isinstance(error, str) else ""


def _lifetime(document: dict[str, Any]) -> float:
    """Returns the lifetime of a token in seconds, or 0 if the answer contains none."""
    seconds = document.get("expires_in")
    return max(0.0, min(seconds, _LONGEST_LIFETIME)) if isinstance(seconds, int | float) else 0.0
