"""What a policy may say.

Owns: the verdicts. Must not know: any one policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allow:
    """The request may pass."""


@dataclass(frozen=True, slots=True)
class Confirm:
    """What is known of the group is not sure enough: the broker is to describe it first, and the policy judges again.

    Where the broker does not, the request passes.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """The request may not pass.

    Attributes:
        error_code: what the client is told, in the place where that API's replies have their error.
        size, limit: the figures behind the verdict.
        message: what the client is told in words, where that API's replies have a place for it.
        remove: a member id, in use or only issued, that the group must lose with this, as the broker would have it;
            empty for none.
    """

    error_code: int
    size: int
    limit: int
    message: str | None = None
    remove: str = ""


Place = tuple[int, int]
"""A partition in a request: the index of its topic there, and its own index within that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusePartitions:
    """Some partitions of the request may not pass; the rest of it may.

    Attributes:
        error_code: what the client is told of each of them.
        sizes: the figure behind the verdict, of each of them.
        limit: the most that it may be.
    """

    error_code: int
    sizes: Mapping[Place, int]
    limit: int

    @property
    def size(self) -> int:
        """The largest of the figures."""
        return max(self.sizes.values())


Refusal = Refuse | RefusePartitions
Verdict = Allow | Confirm | Refusal
ALLOW, CONFIRM = Allow(), Confirm()
