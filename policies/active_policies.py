"""The policies in force, and which requests each of them judges.

The setting `mode` of each policy decides whether the policy refuses requests or only reports them.
"""

from collections.abc import Iterable, Iterator

from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.policies.policy import Policy


class ActivePolicies:
    """The policies in force. A reload replaces all of them at once. The clients of all brokers share one instance."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.replace(policies)

    def replace(self, policies: Iterable[Policy]) -> None:
        """Puts these policies in force instead of the previous ones."""
        self._policies = tuple(policies)
        keys = {key for policy in self._policies for key in policy.judged_apis}
        self._judging = {key: tuple(p for p in self._policies if key in p.judged_apis) for key in keys}

    def policies_for(self, api_key: int) -> tuple[Policy, ...]:
        """Returns the policies that judge requests of an API, in the order in which they judge."""
        return self._judging.get(api_key, ())

    def enforcing(self, api_key: int) -> bool:
        """Whether any policy may refuse requests of an API."""
        return any(policy.enforced for policy in self.policies_for(api_key))

    def max_members(self, group: GroupView) -> int | None:
        """Returns the maximum number of members that a group may have, or None if there is no limit."""
        limits = (policy.max_members(group) for policy in self._policies)
        return min((limit for limit in limits if limit is not None), default=None)

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._policies)
