"""What a policy may say.

Owns: the verdicts. Must not know: any one policy.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allow:
    """The request may pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """The request may not pass.

    Attributes:
        error_code: what the client is told, in the place where that API's replies have their error.
        size, limit: the figures behind the verdict.
        remove: a member id, in use or only issued, that the group must lose with this, as the broker would have it;
            empty for none.
    """

    error_code: int
    size: int
    limit: int
    remove: str = ""


Verdict = Allow | Refuse
ALLOW = Allow()
