"""Which clients the broker serves, and what it shows to each of them.

`ClientAccess` owns what replies show about access: whether the broker has an authorizer, whether its listener serves
clients without authentication, which principal is on each connection (`principals`), and what the broker has granted
to each principal (`authorization_cache`). It applies the deferred replies before it gives access to anything that such
a reply may change, so no caller has to remember them.
"""

from collections.abc import Iterable

from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.authorization_cache import AuthorizationCache, Right
from group_sidecar.proxy.broker.deferred_replies import DeferredReplies
from group_sidecar.proxy.broker.principals import ANONYMOUS, Principal, Principals
from group_sidecar.proxy.config.model import Config


class ClientAccess:
    """The access of clients to one broker, as far as it is known.

    Args:
        config: all settings.
        traffic: counts the cached grants.
        deferred: the replies that are applied before access is given.
    """

    def __init__(self, config: Config, traffic: TrafficCounters, deferred: DeferredReplies) -> None:
        self._deferred = deferred
        self._rights = AuthorizationCache(config.answers.rights_seconds, config.limits.rights, traffic)
        self._principals = Principals()
        self._allows_anonymous = False
        self._wants_sasl = False
        self._asks_for_authorizer = config.answers.authorizer == "auto"
        self._authorizer: bool | None = None if self._asks_for_authorizer else False
        own = config.own_connection
        self._connects_as_clients_do = own.address is None and own.sasl is None and own.tls is None

    # State that deferred replies may change.

    @property
    def rights(self) -> AuthorizationCache:
        """What the broker has granted to its clients."""
        self._deferred.apply_waiting()
        return self._rights

    @property
    def principals(self) -> Principals:
        """Which principal is on each connection."""
        self._deferred.apply_waiting()
        return self._principals

    @property
    def allows_anonymous(self) -> bool:
        """Whether the listener is known to serve clients that do not authenticate."""
        self._deferred.apply_waiting()
        return self._allows_anonymous

    @property
    def wants_sasl(self) -> bool:
        """Whether the listener is known to require SASL: it accepted a handshake."""
        return self._wants_sasl

    # What a client may see.

    @property
    def may_have_authorizer(self) -> bool:
        """Whether the broker has an authorizer, or may have one. An authorizer hides what a client may not see."""
        return self._authorizer is not False

    def may_see(self, principal: Principal | None, rights: Iterable[Right], at: float) -> bool:
        """Whether the broker would show a principal what these rights allow.

        `principal`: None if it is not known. `at`: seconds since the epoch.
        """
        if principal is None or (principal == ANONYMOUS and not self.allows_anonymous):
            return False
        return not self.may_have_authorizer or self.rights.has_all(principal, rights, at)

    # What is learnt.

    def learn_authorizer(self, present: bool) -> None:
        """Stores whether the broker has an authorizer. If it has, a client sees only what the broker lately granted."""
        self.learn_from_own_connection()
        if self._asks_for_authorizer:
            self._authorizer = present

    def learn_from_own_connection(self) -> None:
        """Notes that the broker has served the sidecar's own connection.

        If that connection uses the clients' listener without TLS and SASL, the listener serves anonymous clients.
        """
        if self._connects_as_clients_do:
            self.learn_anonymous_access()

    def learn_anonymous_access(self) -> None:
        """Notes that the listener serves clients that did not authenticate."""
        self._allows_anonymous = True

    def learn_sasl_required(self) -> None:
        """Notes that the listener accepted a SASL handshake."""
        self._wants_sasl = True

    def reset_learned(self) -> None:
        """Forgets what may be wrong after a restart of the broker."""
        self.rights.forget()
        self._allows_anonymous = False
        if self._asks_for_authorizer:
            self._authorizer = None

    def broker_lost(self) -> None:
        """Notes that the broker does not answer. When it is back, it may have other rules, and require SASL."""
        self.rights.forget()
        self._allows_anonymous = self._wants_sasl = False
