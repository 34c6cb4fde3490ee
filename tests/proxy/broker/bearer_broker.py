"""A scripted broker that takes one bearer token by OAUTHBEARER."""

import json

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.proxy.broker.test_own_credentials import SaslBroker

TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9."
CHALLENGE = json.dumps({"status": "invalid_token", "scope": "kafka"}).encode()
DUMMY = b"\x01"


class BearerBroker(SaslBroker):
    """Answers a wrong token with an error challenge, and refuses the client after the reply to the challenge.

    Attributes:
        token_taken: the token that it takes.
        challenge: its answer to a wrong token.
        received: every message of a client.
    """

    def __init__(self, newest_handshake: int = 1) -> None:
        super().__init__(newest_handshake)
        self.token_taken = TOKEN
        self.challenge = CHALLENGE
        self.received: list[bytes] = []

    def _shake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        self.handshakes += 1
        self._authenticated = False
        self._raw = version == 0
        assert request.mechanism == "OAUTHBEARER"
        return SaslHandshakeResponse(error_code=0, mechanisms=("OAUTHBEARER",))

    def _authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        token = self._token(request.auth_bytes)
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED if token is None else 0,
            error_message=self.challenge.decode() if token is None else None,
            auth_bytes=token or b"",
            session_lifetime_ms=self.lifetime_ms,
        )

    def _token(self, token: bytes) -> bytes | None:
        self.received.append(token)
        if token == DUMMY:
            return None
        self._authenticated = token == f"n,,\x01auth=Bearer {self.token_taken}\x01\x01".encode()
        return b"" if self._authenticated else self.challenge
