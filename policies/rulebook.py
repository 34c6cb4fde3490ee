"""The policies that are in force.

Owns: `Rulebook`: which policies judge which requests, from one moment to the next. Must not know: any one policy but
by its interface; where settings come from.
"""

from collections.abc import Iterable, Iterator

from group_sidecar.coordinator.views import GroupView
from group_sidecar.policies.policy import Policy


class Rulebook:
    """The policies in force; replaced as a whole when an operator changes them. All brokers' clients share one."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.replace(policies)

    def replace(self, policies: Iterable[Policy]) -> None:
        """From now on these are in force."""
        self._policies = tuple(policies)
        keys = {key for policy in self._policies for key in policy.judges}
        self._judging = {key: tuple(p for p in self._policies if key in p.judges) for key in keys}

    def judging(self, api_key: int) -> tuple[Policy, ...]:
        """The policies that judge requests of an API, in the order in which they do."""
        return self._judging.get(api_key, ())

    def enforcing(self, api_key: int) -> bool:
        """Whether any policy may refuse requests of an API."""
        return any(policy.enforced for policy in self.judging(api_key))

    def most_members(self, group: GroupView) -> int | None:
        """The most members that a group may have; None where it may have any number."""
        limits = (policy.most_members(group) for policy in self._policies)
        return min((limit for limit in limits if limit is not None), default=None)

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._policies)
