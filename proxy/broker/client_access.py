"""Decides what a client of one listener may see, from what the broker has served and granted.

`ClientAccess` owns the state of one listener of the broker: whether the listener serves clients without authentication,
and the principal of each connection (`client_principals`). The broker's replies show both. All listeners of the broker
share one `AuthorizerState`: whether the broker has an authorizer, and which rights it has granted.
`ClientAccess.may_see` makes the decision. `ClientAccess` applies the deferred replies before a caller reads anything
that such a reply may change. So callers need not apply deferred replies.
"""

from collections.abc import Iterable

from group_sidecar.proxy.broker.authorization_cache import AuthorizationCache, Right
from group_sidecar.proxy.broker.authorizer_state import AuthorizerState
from group_sidecar.proxy.broker.client_principals import ANONYMOUS, Principal, Principals
from group_sidecar.proxy.broker.deferred_replies import DeferredReplies
from group_sidecar.proxy.dataplane.outcomes import Origin


class ClientAccess:
    """The access of one listener's clients to one broker, as far as it is known.

    Args:
        authorizer_state: what the broker grants.
        deferred: the replies that are applied before a caller reads state that they may change.
        listener: the name of the listener.
        has_identities: whether the sidecar connects to the broker with several certificates, depending on the client.
        shared_with_sidecar: whether the sidecar's own connection uses the same listener of the broker as the clients
            do, without SASL. If it uses TLS, the clients' connections to the broker use TLS too.
        max_per_principal: the maximum number of connections of one principal, or 0 for no limit.

    Attributes:
        user_of: see Principals. Replies to SASL requests are never deferred, so no deferred reply is applied first.
    """

    def __init__(
        self,
        authorizer_state: AuthorizerState,
        deferred: DeferredReplies,
        listener: str,
        *,
        has_identities: bool,
        shared_with_sidecar: bool,
        max_per_principal: int,
    ) -> None:
        self._authorizer_state = authorizer_state
        self._deferred = deferred
        principals = Principals(listener, max_per_principal)
        self._principals = principals
        self.user_of = principals.user_of
        self._has_identities = has_identities
        self._shared_with_sidecar = shared_with_sidecar
        self._allows_anonymous = False
        self._served: set[Principal] = set()
        """The principals without SASL that the broker has served. The sidecar presents a different certificate to the
        broker for each of these principals.
        """
        self._wants_sasl = False

    # State that deferred replies may change.

    @property
    def rights(self) -> AuthorizationCache:
        """What the broker has granted to its clients."""
        return self._authorizer_state.rights

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
        """See AuthorizerState."""
        return self._authorizer_state.may_have_authorizer

    def may_see(self, principal: Principal | None, rights: Iterable[Right], at: float) -> bool:
        """Decides whether a principal may see what these rights allow: whether the broker would show it.

        `principal`: None if it is not known. `at`: seconds since the epoch.
        """
        if principal is None or (principal.mechanism == ANONYMOUS and not self._is_served(principal)):
            return False
        return not self.may_have_authorizer or self.rights.has_all(principal, rights, at)

    def _is_served(self, principal: Principal) -> bool:
        """Whether the broker is known to serve clients without SASL under the certificate of this principal.

        A completed handshake does not show this: in TLS 1.3 the sidecar's handshake ends before the broker has checked
        the certificate.
        """
        allows_anonymous = self.allows_anonymous  # Applies the deferred replies, which may add to `_served`.
        return principal in self._served if self._has_identities else allows_anonymous

    # What is learnt.

    def learn_from_own_connection(self) -> None:
        """Notes that the broker has served the sidecar's own connection.

        If that connection uses the clients' listener without SASL, the listener serves anonymous clients.
        """
        if self._shared_with_sidecar:
            self._allows_anonymous = True

    def learn_anonymous_access(self, origin: Origin) -> None:
        """Notes that the listener has served a client that did not authenticate by SASL."""
        self._allows_anonymous = True
        if self._has_identities:
            self._served.add(self.principals.without_sasl(origin))

    def learn_sasl_required(self) -> None:
        """Notes that the listener accepted a SASL handshake."""
        self._wants_sasl = True

    def reset_learned(self) -> None:
        """Forgets what may be wrong after a restart of the broker."""
        self._deferred.apply_waiting()
        self._forget_served()

    def broker_lost(self) -> None:
        """Notes that the broker does not answer. Afterwards the broker may have other rules, also about SASL."""
        self._deferred.apply_waiting()
        self._forget_served()
        self._wants_sasl = False

    def _forget_served(self) -> None:
        self._allows_anonymous = False
        self._served.clear()
