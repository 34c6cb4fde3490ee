"""Plain counters of the admin port."""

from enum import StrEnum


class TokenRefusal(StrEnum):
    """Why the admin port refused a request with a token. The enum has all values of the label `reason`."""

    WRONG = "wrong"
    """The token is not the configured one."""
    THROTTLED = "throttled"
    """The client's address has sent too many wrong tokens, so the token was not looked at."""


class AdminCounters:
    """Counters of the admin port since the start of the process.

    Attributes:
        token_refusals: refused requests with a token, by reason.
    """

    __slots__ = ("token_refusals",)

    def __init__(self) -> None:
        self.token_refusals = dict.fromkeys(TokenRefusal, 0)
