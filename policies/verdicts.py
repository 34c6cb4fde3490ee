"""The verdicts that a policy may return."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allow:
    """The request may pass."""


@dataclass(frozen=True, slots=True)
class Confirm:
    """The group's state is too uncertain to allow or refuse the request.

    The broker has to describe the group, and then the policy judges again. If the broker does not describe the group,
    the request passes.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """The request may not pass.

    Attributes:
        error_code: the error code in the reply to the client.
        size: the value that the policy compared with the limit.
        limit: the largest value that the policy allows.
        message: the error message in the reply, if the API's replies have one.
        remove: the id of a member that the sidecar removes from the group because of the refusal, as Kafka's own limit
            does; empty for none. The member may be active, or the broker may only have issued its id.
    """

    error_code: int
    size: int
    limit: int
    message: str | None = None
    remove: str = ""


PartitionPosition = tuple[int, int]
"""A partition in a request: the index of its topic in the request, and its own index within the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusePartitions:
    """Some partitions of the request may not pass. The rest of the request may pass.

    Attributes:
        error_code: the error code in the reply for each refused partition.
        sizes: the refused partitions, each with the value that the policy compared with the limit.
        limit: the largest value that the policy allows.
    """

    error_code: int
    sizes: Mapping[PartitionPosition, int]
    limit: int

    @property
    def size(self) -> int:
        """The largest of the compared values."""
        return max(self.sizes.values())


Refusal = Refuse | RefusePartitions
Verdict = Allow | Confirm | Refusal
ALLOW, CONFIRM = Allow(), Confirm()
