"""What every policy is.

Owns: `Policy` and what all settings of policies have. Must not know: any one policy, where settings come from.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.views import GroupView
from group_sidecar.policies.verdicts import Verdict


def no_boolean(wanted: str) -> BeforeValidator:
    """Refuses `true`, which YAML also reads from `yes` and `on`, and which pydantic takes for 1."""

    def check(value: object) -> object:
        if isinstance(value, bool):
            raise ValueError(f"must be {wanted}")
        return value

    return BeforeValidator(check)


Count = Annotated[int, no_boolean("a whole number")]


class PolicySection(BaseModel):
    """A mapping in a policy's settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class PolicySettings(PolicySection):
    """What an operator can set of every policy."""

    mode: Literal["enforce", "audit"] = "enforce"
    """`enforce`: what may not pass is refused. `audit`: it passes, and is only reported."""


class Policy(ABC):
    """Judges requests. It does no I/O and keeps no state of its own.

    Attributes:
        name: what metrics, records and the configuration call it.
        Settings: what an operator can set; its docstring says what the policy is for.
        judges: the keys of the APIs whose requests it judges.
        asks_about: whether its verdict depends on the group. Then it judges when the request's turn comes, for what
            the same connection sent before may make a difference.
        broker_error: what a broker tells a client that it refuses by the same rule.
        settings: as the operator has set them.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[PolicySettings]]
    judges: ClassVar[frozenset[int]]
    asks_about: ClassVar[bool]
    broker_error: ClassVar[int]
    settings: PolicySettings

    @abstractmethod
    def __init__(self, settings: Any) -> None:
        """A policy with these settings, of its own class of them."""

    @property
    def enforced(self) -> bool:
        """Whether its refusals are given, not only reported."""
        return self.settings.mode == "enforce"

    @property
    def error_code(self) -> int:
        """What it tells a client whom it keeps out."""
        return int(self.broker_error)

    @property
    def error_codes(self) -> frozenset[int]:
        """All that it may tell a client."""
        return frozenset({self.error_code})

    @abstractmethod
    def judge(self, request: Struct, group: GroupView) -> Verdict:
        """Whether a request may go to the broker.

        Args:
            request: of one of the APIs that it judges.
            group: the group it is about; where `asks_about` is not set, any.
        """

    def most_members(self, group: GroupView) -> int | None:
        """The most members that it lets a group have; None where it lets it have any number."""
        return None
