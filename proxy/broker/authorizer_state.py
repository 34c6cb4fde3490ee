"""Stores whether one broker has an authorizer, and the rights that the broker's replies have shown.

`ClientAccess.may_see` decides from this state what a client may see. `AuthorizerState` applies the deferred replies
before it gives access to the rights, because such a reply may change them.
"""

from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.authorization_cache import AuthorizationCache
from group_sidecar.proxy.broker.deferred_replies import DeferredReplies
from group_sidecar.proxy.config.model import Config


class AuthorizerState:
    """Whether one broker has an authorizer, and what it has granted, as far as it is known.

    Args:
        config: all settings.
        traffic: counts the cached grants.
        deferred: the replies that are applied before the rights are used.
    """

    def __init__(self, config: Config, traffic: TrafficCounters, deferred: DeferredReplies) -> None:
        self._deferred = deferred
        self._rights = AuthorizationCache(config.answers.rights_seconds, config.limits.rights, traffic)
        self._asks_for_authorizer = config.answers.authorizer == "auto"
        self._authorizer: bool | None = None if self._asks_for_authorizer else False

    @property
    def rights(self) -> AuthorizationCache:
        """What the broker has granted to its clients."""
        self._deferred.apply_waiting()
        return self._rights

    @property
    def may_have_authorizer(self) -> bool:
        """Whether the broker has an authorizer, or may have one. An authorizer hides what a client may not see."""
        return self._authorizer is not False

    def learn_authorizer(self, present: bool) -> None:
        """Stores whether the broker has an authorizer. With an authorizer, local answers contain only what the broker
        has lately granted to the client.
        """
        if self._asks_for_authorizer:
            self._authorizer = present

    def reset_learned(self) -> None:
        """Forgets what may be wrong after a restart of the broker."""
        self.rights.forget()
        if self._asks_for_authorizer:
            self._authorizer = None

    def broker_lost(self) -> None:
        """Forgets the rights, because the broker does not answer and may have other rules when it is back."""
        self.rights.forget()
