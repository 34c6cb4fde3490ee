"""Leaves a client's question to the broker: forwards it, or asks in a version that the broker has.

If the broker lacks the question's version, `version_translation` makes requests in versions that the broker has.
`relay` sends these requests on the client's connection.
"""

from dataclasses import replace

from group_sidecar.codecs.headers import RequestHeader
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.coordinator.answer_requirements import groups_of
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.authorizer_state import AuthorizerState
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.dataplane.outcomes import Forward, Pass, RequestOutcome
from group_sidecar.proxy.handlers.pending_exchange import ExchangeReplies
from group_sidecar.proxy.handlers.relay import relay
from group_sidecar.proxy.handlers.version_translation import translate


class BrokerQuestions:
    """The questions that one broker answers.

    Args:
        copy: learns from the broker's answers.
        versions: the versions that the broker offers.
        authorizer_state: whether the broker may have an authorizer.
        replies: handles the broker's answers.
        traffic: counts the questions that were translated.
    """

    def __init__(
        self,
        copy: CoordinatorCopy,
        versions: BrokerVersions,
        authorizer_state: AuthorizerState,
        replies: ExchangeReplies,
        traffic: TrafficCounters,
    ) -> None:
        self._copy = copy
        self._versions = versions
        self._authorizer_state = authorizer_state
        self._replies = replies
        self._traffic = traffic

    def is_translated(self, exchange: Exchange) -> bool:
        """Whether only the sidecar supports this version. For a request in such a version, the broker would close the
        connection.
        """
        return self._versions.is_added_version(exchange.request.KEY, exchange.version)

    def ask(self, exchange: Exchange, header: RequestHeader, now: float) -> RequestOutcome:
        """Leaves a question to the broker.

        A question in a version that the broker lacks is translated. Call the method for such a question only when all
        earlier requests of the connection have their replies.
        """
        if self.is_translated(exchange):
            self._traffic.relayed(header.api_key)
            steps = translate(exchange.request, exchange.version, self._versions, self._authorizer_state)
            return relay(steps, exchange, header, self._copy, self._replies, now)
        if exchange.request.KEY not in exchange_events.GROUP_API_KEYS:
            return Pass()
        manager = self._copy.manager
        if (
            isinstance(exchange.request, ListGroupsRequest)
            and not self._authorizer_state.may_have_authorizer
            and not manager.learns_from_listings
        ):
            return Pass()  # The copy learns nothing, and decoding a list of 100,000 groups takes 0.1 s.
        as_of = {group: manager.changes_of(group) for group in groups_of(exchange.request, exchange.version)}
        return Forward(self._replies.pending(replace(exchange, as_of=as_of, note_count=manager.note_count)))
