"""Handles requests that may change the rights of clients, such as those that create or delete ACLs.

When such a request is forwarded, the sidecar forgets the rights that the broker has granted. The sidecar caches no
right until RULE_CHANGE_SECONDS after the reply (`authorization_cache`).
"""

from group_sidecar.proxy.broker.client_access import ClientAccess
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.dataplane.outcomes import PendingNotice, PendingReply
from group_sidecar.proxy.handlers.api_handler import ApiHandler


class RuleChanges(ApiHandler):
    """Handles the requests of `RULE_CHANGE_APIS`."""

    def __init__(self, access: ClientAccess, copy: CoordinatorCopy) -> None:
        super().__init__()
        self._access = access
        self._copy = copy

    def undecoded(self, api_key: int, version: int, frame: bytes | None) -> PendingReply:
        """See ApiHandler."""
        self._access.rights.begin_rule_change()
        return PendingRuleChange(self._access, self._copy, api_key)


class PendingRuleChange(PendingNotice):
    """The pending reply of a request that may change rights."""

    __slots__ = ("_access", "_api_key", "_copy")

    def __init__(self, access: ClientAccess, copy: CoordinatorCopy, api_key: int) -> None:
        self._access = access
        self._copy = copy
        self._api_key = api_key

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return self._api_key

    def lost(self, now: float) -> None:
        """See PendingNotice."""
        self._access.rights.end_rule_change(self._copy.epoch(now))
