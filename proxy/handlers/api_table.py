"""Maps each API to the handler of its requests."""

from collections.abc import Iterable

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.proxy.broker.authorization_cache import RULE_CHANGE_APIS
from group_sidecar.proxy.broker.broker_state import LOCAL_APIS, BrokerState
from group_sidecar.proxy.dataplane.framing import COPY, HOLD
from group_sidecar.proxy.handlers.api_handler import ApiHandler
from group_sidecar.proxy.handlers.api_versions import ApiVersionsReplies
from group_sidecar.proxy.handlers.disconnect import Disconnector
from group_sidecar.proxy.handlers.enforcement import Enforcement
from group_sidecar.proxy.handlers.fetches import Fetches
from group_sidecar.proxy.handlers.find_coordinator import FindCoordinatorRequests
from group_sidecar.proxy.handlers.group_requests import GroupQuestions, GroupRequests
from group_sidecar.proxy.handlers.kip40_group_metadata import Kip40GroupMetadata
from group_sidecar.proxy.handlers.local_answers import LocalAnswers
from group_sidecar.proxy.handlers.observer import Observer
from group_sidecar.proxy.handlers.pending_exchange import ExchangeReplies
from group_sidecar.proxy.handlers.reply_rewriter import ReplyRewriter, rewritten_apis
from group_sidecar.proxy.handlers.rewritten_replies import ApiVersionsRequests, RewrittenReplies
from group_sidecar.proxy.handlers.rule_changes import RuleChanges
from group_sidecar.proxy.handlers.sasl import SASL_APIS, SaslRequests
from group_sidecar.proxy.handlers.unread_apis import NamedGroupWrites, TopicDeletions

DEFERRED_APIS = exchange_events.GROUP_API_KEYS - exchange_events.REQUEST_EVENT_KEYS - LOCAL_APIS
"""APIs whose requests and replies are forwarded first and decoded afterwards, unless a policy judges the requests. A
question, or a request that itself leads to events, is decoded before it is forwarded."""


class ApiTable:
    """The handlers of one broker's APIs.

    Attributes:
        observer: applies requests and replies to the copy; the handlers share it.
        enforcement: asks the policies; the handlers share it.
        local_answers: answers questions.
        replies: makes the pending replies of exchanges, which share it.
        by_api: the handlers by API key. A request with any other key passes unread.
    """

    def __init__(self, copy: BrokerState, disconnector: Disconnector) -> None:
        rewritten = rewritten_apis(copy)
        decoded = exchange_events.GROUP_API_KEYS | LOCAL_APIS | rewritten | SASL_APIS
        api_versions = ApiVersionsReplies(copy, decoded)
        rewriter = ReplyRewriter(copy, api_versions)
        self.observer = observer = Observer(copy)
        self.replies = replies = ExchangeReplies(copy, observer, rewriter)
        self.enforcement = Enforcement(copy, replies)
        self.local_answers = LocalAnswers(copy, replies)
        kip40 = Kip40GroupMetadata(copy, observer, self.local_answers, disconnector, replies)
        writes = observer, disconnector, self.enforcement, replies
        table: Iterable[tuple[Iterable[int], ApiHandler]] = (
            (DEFERRED_APIS, GroupRequests(copy, COPY, *writes)),
            (exchange_events.REQUEST_EVENT_KEYS, GroupRequests(copy, HOLD, *writes)),
            (LOCAL_APIS, GroupQuestions(copy, observer, disconnector, self.local_answers)),
            (exchange_events.GROUP_ONLY_KEYS, NamedGroupWrites(copy, observer)),
            ((ApiKey.DELETE_TOPICS,), TopicDeletions(copy)),
            (RULE_CHANGE_APIS, RuleChanges(copy)),
            (SASL_APIS, SaslRequests(copy, observer, disconnector)),
            ((ApiKey.FETCH,), Fetches(copy, observer)),
            ((ApiKey.API_VERSIONS,), ApiVersionsRequests(copy, rewriter, api_versions)),
            (rewritten & {ApiKey.FIND_COORDINATOR}, FindCoordinatorRequests(copy, rewriter, kip40)),
            (rewritten - {ApiKey.API_VERSIONS, ApiKey.FIND_COORDINATOR}, RewrittenReplies(copy, rewriter)),
        )
        self.by_api: dict[int, ApiHandler] = {}
        for keys, handler in table:
            for key in map(int, keys):
                assert key not in self.by_api, key
                self.by_api[key] = handler
