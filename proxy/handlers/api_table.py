"""Maps each API to the handler of its requests."""

from collections.abc import Iterable, Iterator

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.proxy.broker.answer_settings import LOCAL_APIS
from group_sidecar.proxy.broker.authorization_cache import RULE_CHANGE_APIS
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.client_access import ClientAccess
from group_sidecar.proxy.broker.tail_rewrite import TAIL_APIS
from group_sidecar.proxy.dataplane.framing import DEFER, HOLD
from group_sidecar.proxy.handlers.api_handler import ApiHandler, DecodingParts
from group_sidecar.proxy.handlers.api_versions import ApiVersionsReplies
from group_sidecar.proxy.handlers.broker_questions import BrokerQuestions
from group_sidecar.proxy.handlers.disconnect import Disconnector
from group_sidecar.proxy.handlers.enforcement import Enforcement
from group_sidecar.proxy.handlers.fallback_reasons import FallbackReasons
from group_sidecar.proxy.handlers.fetches import Fetches
from group_sidecar.proxy.handlers.find_coordinator import FindCoordinatorRequests
from group_sidecar.proxy.handlers.group_read_access import GroupReadAccess
from group_sidecar.proxy.handlers.group_requests import GroupQuestions, GroupRequests
from group_sidecar.proxy.handlers.kip40_group_metadata import Kip40GroupMetadata
from group_sidecar.proxy.handlers.local_answers import LocalAnswers
from group_sidecar.proxy.handlers.observer import Observer
from group_sidecar.proxy.handlers.pending_exchange import ExchangeReplies
from group_sidecar.proxy.handlers.reply_builder import ReplyBuilder
from group_sidecar.proxy.handlers.reply_rewriter import ReplyRewriter, rewritten_apis
from group_sidecar.proxy.handlers.rewritten_replies import (
    ApiVersionsRequests,
    RewrittenReplies,
    RewrittenTails,
    TailRewriter,
)
from group_sidecar.proxy.handlers.rule_changes import RuleChanges
from group_sidecar.proxy.handlers.sasl import SASL_APIS, SaslRequests
from group_sidecar.proxy.handlers.unread_apis import NamedGroupWrites, TopicDeletions

DEFERRED_APIS = exchange_events.GROUP_API_KEYS - exchange_events.REQUEST_EVENT_KEYS - LOCAL_APIS
"""APIs whose requests and replies are forwarded first and decoded afterwards, unless a policy judges the requests. Two
kinds of group requests are decoded before they are forwarded: questions, and requests that change the copy as soon as
they are sent."""

_Rows = Iterator[tuple[Iterable[int], ApiHandler]]
"""Handlers, each with the API keys that it handles."""


class ApiTable:
    """The handlers of the APIs for the clients of one listener of one broker.

    Args:
        state: what is known of the broker.
        access: what the broker shows to the listener's clients.
        reply_builder: builds local answers; all listeners of the broker share it.
        disconnector: logs the connections that must be closed.

    Attributes:
        observer: applies requests and replies to the copy; the handlers share it.
        enforcement: asks the policies; the handlers share it.
        replies: makes the pending replies of exchanges; the handlers share it.
        by_api: the handlers by API key. A request with any other key passes unread.
    """

    def __init__(
        self, state: BrokerState, access: ClientAccess, reply_builder: ReplyBuilder, disconnector: Disconnector
    ) -> None:
        copy, traffic, limits = state.copy, state.traffic, state.config.limits
        self._access = access
        self._reply_builder = reply_builder
        kip40_enabled, gateway = state.config.group_metadata_request, state.advertise is not None
        self._rewritten = rewritten_apis(gateway=gateway, kip40=kip40_enabled)
        decoded = exchange_events.GROUP_API_KEYS | LOCAL_APIS | self._rewritten | SASL_APIS
        settings = state.answer_settings
        self._api_versions = ApiVersionsReplies(
            decoded, state.versions, access, settings, gateway=gateway, kip40=kip40_enabled
        )
        self._rewriter = ReplyRewriter(self._api_versions, copy, state.topic_names, settings, limits, state.advertise)
        self._disconnector = disconnector
        self.observer = Observer(copy, access, state.topic_names, traffic, limits)
        self.replies = ExchangeReplies(self.observer, self._rewriter, limits)
        self._read_access = GroupReadAccess(access, state.versions, copy)
        self.enforcement = Enforcement(
            state.active_policies, copy, state.versions, self._read_access, self.replies, traffic
        )
        self._reasons = FallbackReasons(copy, state.versions, access, settings, state.lost_requests)
        self.by_api: dict[int, ApiHandler] = {}
        for keys, handler in (*self._decoding_handlers(state), *self._forwarding_handlers(state)):
            for key in map(int, keys):
                assert key not in self.by_api, key
                self.by_api[key] = handler

    def _decoding_handlers(self, state: BrokerState) -> _Rows:
        """Yields the handlers that decode requests."""
        copy, access, replies = state.copy, self._access, self.replies
        parts = DecodingParts(state.active_policies, state.versions, self.observer, self._disconnector)
        yield DEFERRED_APIS, GroupRequests(DEFER, parts, self.enforcement, replies)
        yield exchange_events.REQUEST_EVENT_KEYS, GroupRequests(HOLD, parts, self.enforcement, replies)
        questions = BrokerQuestions(copy, state.versions, state.authorizer_state, replies, state.traffic)
        answers = LocalAnswers(
            self._reasons, self._reply_builder, questions, self._read_access, copy, state.samples, state.traffic
        )
        yield LOCAL_APIS, GroupQuestions(parts, answers, questions)
        gateway = state.advertise is not None
        yield SASL_APIS, SaslRequests(parts, access, replies.decode_limits, gateway=gateway)

    def _forwarding_handlers(self, state: BrokerState) -> _Rows:
        """Yields the handlers that forward requests without decoding them."""
        copy, observer, rewriter, traffic = state.copy, self.observer, self._rewriter, state.traffic
        yield exchange_events.GROUP_ONLY_KEYS, NamedGroupWrites(observer)
        yield (ApiKey.DELETE_TOPICS,), TopicDeletions(copy)
        yield RULE_CHANGE_APIS, RuleChanges(self._access, copy)
        tails = TailRewriter(state.advertise, observer, traffic) if state.advertise else None
        yield (ApiKey.FETCH,), Fetches(observer, state.config.limits.inspected_frame, state.deferred, tails)
        if tails is not None:
            yield TAIL_APIS - {ApiKey.FETCH}, RewrittenTails(tails)
        api_versions = ApiVersionsRequests(rewriter, traffic, state.versions, self._api_versions)
        yield (ApiKey.API_VERSIONS,), api_versions
        kip40 = Kip40GroupMetadata(
            copy,
            state.versions,
            self._reasons,
            observer,
            self.replies,
            self._disconnector,
            advertise=state.advertise,
            true_hosts=state.answer_settings.true_hosts,
            enabled=state.config.group_metadata_request,
        )
        yield self._rewritten & {ApiKey.FIND_COORDINATOR}, FindCoordinatorRequests(rewriter, traffic, kip40)
        others = self._rewritten - {ApiKey.API_VERSIONS, ApiKey.FIND_COORDINATOR}
        yield others, RewrittenReplies(rewriter, traffic)


def make_reply_builder(state: BrokerState) -> ReplyBuilder:
    """Returns the builder of one broker's local answers."""
    return ReplyBuilder(
        state.copy,
        state.versions,
        state.authorizer_state,
        state.topic_ids,
        state.answer_settings,
        state.traffic,
        state.config.limits,
    )
