"""The raw SASL tokens that follow SaslHandshake v0.

Owns: `RawTokens`: how many tokens the client still sends, and when both directions are parsed as frames again. It does
not know mechanisms: the desk reports how many tokens a mechanism has (`Reply.raw_tokens`).

A token has no header, only its length, and may be empty. Where the number of tokens is not known, nothing behind the
handshake can be parsed any more.
"""

from group_sidecar.codecs.headers import REPLY_HEAD, REQUEST_HEAD
from group_sidecar.proxy.disposals import OPAQUE
from group_sidecar.proxy.framing import LENGTH_BYTES, FrameWalker

SMALLEST_REQUEST = REQUEST_HEAD.size - LENGTH_BYTES
SMALLEST_REPLY = REPLY_HEAD.size - LENGTH_BYTES


class RawTokens:
    """The tokens of one connection.

    Args:
        requests: walks what the client sends.
        replies: walks what the broker sends.

    Attributes:
        left: how many tokens the client still sends; OPAQUE if nothing is parsed any more.
        handshaking: whether a SaslHandshake v0 waits for its reply. What follows it cannot be parsed before that.
    """

    def __init__(self, requests: FrameWalker, replies: FrameWalker) -> None:
        self.left = 0
        self.handshaking = False
        self._requests = requests
        self._replies = replies

    def begin(self, tokens: int) -> None:
        """The broker has accepted a handshake that so many tokens follow; OPAQUE where their number is not known."""
        self.handshaking = False
        self.left = tokens
        if tokens > 0:
            self._requests.head, self._requests.smallest = LENGTH_BYTES, 0
            self._replies.head, self._replies.smallest = LENGTH_BYTES, 0

    def pass_all(self) -> None:
        """Nothing is parsed any more, in either direction."""
        self.left = OPAQUE

    def sent(self) -> None:
        """The client has sent a token. Behind its last token it sends requests."""
        self.left -= 1
        if not self.left:
            self._requests.head, self._requests.smallest = REQUEST_HEAD.size, SMALLEST_REQUEST

    def answered(self, *, more_owed: bool) -> None:
        """The broker has answered a token. `more_owed`: whether it owes the answer to another token."""
        if not (self.left or more_owed):
            self._replies.head, self._replies.smallest = REPLY_HEAD.size, SMALLEST_REPLY
