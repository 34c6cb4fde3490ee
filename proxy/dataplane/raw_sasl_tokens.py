"""Counts the raw SASL tokens that follow SaslHandshake v0.

`RawSaslTokens` knows how many tokens the client still sends, and when both directions contain frames again. The
dispatcher reports how many tokens a mechanism has (`Reply.raw_tokens`).

A token has no header, only a length, and may be empty. If the number of tokens is unknown, nothing after the handshake
can be parsed.
"""

from group_sidecar.codecs.headers import REPLY_HEAD, REQUEST_HEAD
from group_sidecar.proxy.dataplane.framing import LENGTH_BYTES, FrameWalker
from group_sidecar.proxy.dataplane.outcomes import OPAQUE

SMALLEST_REQUEST = REQUEST_HEAD.size - LENGTH_BYTES
SMALLEST_REPLY = REPLY_HEAD.size - LENGTH_BYTES


class RawSaslTokens:
    """The tokens of one connection.

    Args:
        requests: the frame walker of the client's bytes.
        replies: the frame walker of the broker's bytes.

    Attributes:
        tokens_left: how many tokens the client still sends, or OPAQUE if nothing is parsed any more.
        handshaking: whether a SaslHandshake v0 waits for its reply. Later requests cannot be parsed before that reply.
    """

    def __init__(self, requests: FrameWalker, replies: FrameWalker) -> None:
        self.tokens_left = 0
        self.handshaking = False
        self._requests = requests
        self._replies = replies

    def begin(self, tokens: int) -> None:
        """Expects this number of tokens after an accepted handshake, or OPAQUE if the number is unknown."""
        self.handshaking = False
        self.tokens_left = tokens
        if tokens > 0:
            self._requests.head, self._requests.smallest = LENGTH_BYTES, 0
            self._replies.head, self._replies.smallest = LENGTH_BYTES, 0

    def make_opaque(self) -> None:
        """Stops parsing in both directions."""
        self.tokens_left = OPAQUE

    def sent(self) -> None:
        """Counts a token that the client has sent. After its last token the client sends requests."""
        self.tokens_left -= 1
        if not self.tokens_left:
            self._requests.head, self._requests.smallest = REQUEST_HEAD.size, SMALLEST_REQUEST

    def answered(self, *, more_owed: bool) -> None:
        """Counts a token that the broker has answered. `more_owed`: whether another token awaits its answer."""
        if not (self.tokens_left or more_owed):
            self._replies.head, self._replies.smallest = REPLY_HEAD.size, SMALLEST_REPLY
