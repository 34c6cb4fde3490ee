"""The base class of policies, and the settings that all policies have."""

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.policies.verdicts import Verdict


def reject_boolean(wanted: str) -> BeforeValidator:
    """Returns a validator that refuses booleans. YAML reads `yes` and `on` as true, which pydantic converts to 1."""

    def check(value: object) -> object:
        if isinstance(value, bool):
            raise ValueError(f"must be {wanted}")
        return value

    return BeforeValidator(check)


WholeNumber = Annotated[int, reject_boolean("a whole number")]


class PolicySection(BaseModel):
    """A mapping in a policy's settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PolicySettings(PolicySection):
    """The settings that every policy has."""

    mode: Literal["enforce", "audit"] = "enforce"
    """`enforce`: requests that break the policy are refused. `audit`: they are forwarded, and only reported."""


class Policy(ABC):
    """Judges requests. A policy does no I/O and keeps no state of its own.

    Attributes:
        name: the policy's name in metrics, records and the configuration.
        Settings: the class of the settings. Its docstring describes the policy's purpose in the configuration page.
        judged_apis: the keys of the APIs whose requests the policy judges.
        depends_on_group: whether the verdict depends on the group. If so, the policy judges only when all earlier
            requests of the same connection have their replies, because these requests may change the group.
        broker_error: the error code with which a broker refuses a request by the same rule.
        settings: the operator's settings.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[PolicySettings]]
    judged_apis: ClassVar[frozenset[int]]
    depends_on_group: ClassVar[bool]
    broker_error: ClassVar[int]
    settings: PolicySettings

    @abstractmethod
    def __init__(self, settings: Any) -> None:
        """Creates a policy. `settings`: an instance of the policy's `Settings`."""

    @property
    def enforced(self) -> bool:
        """Whether refusals are enforced, instead of only reported."""
        return self.settings.mode == "enforce"

    @property
    def error_code(self) -> int:
        """The error code that a refused client gets."""
        return int(self.broker_error)

    @property
    def error_codes(self) -> frozenset[int]:
        """All error codes that a refused client may get."""
        return frozenset({self.error_code})

    @abstractmethod
    def judge(self, request: Struct, group: GroupView, principal: str) -> Verdict:
        """Returns the verdict on a request.

        Args:
            request: a request of one of the judged APIs.
            group: the request's group. If `depends_on_group` is false, the view may be empty.
            principal: the client's user as Kafka writes it; empty if it is not known, for instance with OAUTHBEARER.
        """

    def max_members(self, group: GroupView) -> int | None:
        """Returns the maximum number of members that the policy allows in a group, or None without a limit."""
        return None
