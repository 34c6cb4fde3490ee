"""Returns the reason why the copy may not answer a question about groups, or None if the copy may answer.

`FallbackReasons` combines the reasons that apply to all groups with those of the groups themselves
(`coordinator.answer_requirements`).
"""

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answer_requirements import fallback_reason
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.proxy.broker.answer_settings import AnswerSettings
from group_sidecar.proxy.broker.authorization_cache import required_rights
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.client_access import ClientAccess
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.lost_requests import LostRequests
from group_sidecar.proxy.dataplane.outcomes import Origin

MAX_RIGHTS_LOOKED_UP = 5_000
"""Maximum number of groups for which the client's rights are looked up to answer ListGroups, in about 4 ms."""


class FallbackReasons:
    """The reasons not to answer the clients of one broker from the copy.

    Args:
        copy: the copy of the broker's group coordinator.
        versions: which versions the broker and the sidecar offer.
        access: what a client may see.
        settings: which questions the sidecar may answer.
        lost_requests: the lost requests that were not handled yet. While there are any, every group counts as stale.
    """

    def __init__(
        self,
        copy: CoordinatorCopy,
        versions: BrokerVersions,
        access: ClientAccess,
        settings: AnswerSettings,
        lost_requests: LostRequests,
    ) -> None:
        self._copy = copy
        self._versions = versions
        self._access = access
        self._settings = settings
        self._lost_requests = lost_requests

    def fallback_reason(self, exchange: Exchange, origin: Origin, now: float) -> FallbackReason | None:
        """Returns why a question is left to the broker, or None if the copy may answer it."""
        request, manager, at = exchange.request, self._copy.manager, self._copy.epoch(now)
        if disabled_reason := self._settings.disabled_reason(request.KEY):
            return disabled_reason
        if not self._versions.speaks(request.KEY, exchange.version):
            return FallbackReason.VERSION
        if self._is_long(request):
            return FallbackReason.UNAUTHORIZED
        principal = self._access.principals.principal_of(origin, now)
        if not self._access.may_see(principal, required_rights(exchange, manager, at), at):
            return FallbackReason.UNAUTHORIZED
        if self._versions.lacks_api(request.KEY):
            return None  # The broker would close the connection for this API, so the copy answers.
        if self._lost_requests:
            return FallbackReason.STALE
        added = self._versions.is_added_version(request.KEY, exchange.version)
        return fallback_reason(request, exchange.version, manager, at, added=added)

    def asks_first(self, exchange: Exchange, reason: FallbackReason) -> bool:
        """Whether the sidecar must first ask the broker whether the client has authenticated or need not do so.

        The sidecar asks first if the broker lacks the question's API, and the sidecar has offered this API to clients
        (`ApiVersionsReplies`). The broker would close the connection if it got the question itself.
        """
        return (
            reason is FallbackReason.UNAUTHORIZED
            and self._versions.lacks_api(exchange.request.KEY)
            and not self._versions.lacks_api(ApiKey.HEARTBEAT)
            and not self._access.may_have_authorizer
        )

    def _is_long(self, request: Struct) -> bool:
        """Whether an answer needs the look-up of so many rights that other clients would wait."""
        many = len(self._copy.manager.group_metadata_cache) > MAX_RIGHTS_LOOKED_UP
        return many and self._access.may_have_authorizer and isinstance(request, ListGroupsRequest)
