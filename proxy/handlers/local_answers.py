"""Decides whether a question about groups is answered from the copy or by the broker.

A question that the copy may answer waits for its turn, and is then checked again. `reply_builder` builds the answer.
`version_translation` asks the broker if it lacks the question's version.
"""

from dataclasses import replace

from group_sidecar.codecs.api_registry import Api
from group_sidecar.codecs.headers import RequestHeader, framed_reply
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answer_requirements import fallback_reason, groups_of
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.proxy.broker.authorization_cache import required_rights
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.outcomes import Answer, Forward, Origin, Pass, RequestOutcome
from group_sidecar.proxy.handlers.pending_exchange import ExchangeReplies
from group_sidecar.proxy.handlers.relay import relay
from group_sidecar.proxy.handlers.reply_builder import ReplyBuilder
from group_sidecar.proxy.handlers.reply_cache import CachedRequest
from group_sidecar.proxy.handlers.version_translation import translate

MAX_RIGHTS_LOOKED_UP = 5_000
"""Maximum number of groups for which the client's rights are looked up to answer ListGroups, in about 4 ms."""


class LocalAnswers:
    """Answers ListGroups, DescribeGroups and OffsetFetch from a broker's copy, or leaves them to the broker."""

    def __init__(self, copy: BrokerState, replies: ExchangeReplies) -> None:
        self._copy = copy
        self._replies = replies
        self._reply_builder = ReplyBuilder(copy)

    def read(self, api: Api, version: int, body: bytes) -> CachedRequest:
        """Returns a decoded question. Raises DecodeError if the body cannot be decoded."""
        return self._reply_builder.read(api, version, body)

    def decide(
        self, question: CachedRequest, exchange: Exchange, header: RequestHeader, origin: Origin, now: float
    ) -> RequestOutcome:
        """Returns what happens to a question. A question that is forwarded unchanged need not wait for its turn."""
        if self._reply_builder.names_too_many_groups(exchange.request, exchange.version):
            self._copy.traffic.fell_back(exchange.request.KEY, FallbackReason.LARGE)
            return Pass()
        if not self._added(exchange) and (reason := self.fallback_reason(exchange, origin, now)):
            return self._fall_back(exchange, header, reason, now)
        return Answer(lambda at: self._answer_or_ask(question, exchange, header, origin, at))

    def _answer_or_ask(
        self, question: CachedRequest, exchange: Exchange, header: RequestHeader, origin: Origin, now: float
    ) -> bytes | RequestOutcome:
        if reason := self.fallback_reason(exchange, origin, now):
            return self._fall_back(exchange, header, reason, now)
        rest = self._reply_builder.reply(question, self._copy.epoch(now))
        if rest is None:
            large = self._reply_builder.is_too_large(question, self._copy.epoch(now))
            return self._fall_back(exchange, header, FallbackReason.LARGE if large else FallbackReason.VERSION, now)
        self._copy.traffic.answered(header.api_key)
        self._copy.samples.sample_answer(exchange, rest)
        return framed_reply(header.correlation_id, rest)

    def _fall_back(
        self, exchange: Exchange, header: RequestHeader, reason: FallbackReason, now: float
    ) -> RequestOutcome:
        self._copy.traffic.fell_back(exchange.request.KEY, reason)
        return self.ask(exchange, header, now)

    def ask(self, exchange: Exchange, header: RequestHeader, now: float) -> RequestOutcome:
        """Leaves a question to the broker. A version that the broker lacks is translated, in the question's turn."""
        if self._added(exchange):
            self._copy.traffic.relayed(header.api_key)
            steps = translate(exchange.request, exchange.version, self._copy)
            return relay(steps, exchange, header, self._copy, self._replies, now)
        if exchange.request.KEY not in exchange_events.GROUP_API_KEYS:
            return Pass()
        manager = self._copy.manager
        if (
            isinstance(exchange.request, ListGroupsRequest)
            and not self._copy.may_have_authorizer
            and not manager.learns_from_listings
        ):
            return Pass()  # Nothing is learnt, and decoding a list of 100,000 groups takes 0.1 s.
        as_of = {group: manager.changes_of(group) for group in groups_of(exchange.request, exchange.version)}
        return Forward(self._replies.pending(replace(exchange, as_of=as_of, note_count=manager.note_count)))

    def fallback_reason(self, exchange: Exchange, origin: Origin, now: float) -> FallbackReason | None:
        """Returns why a question is left to the broker, or None if the copy may answer it."""
        request, manager, at = exchange.request, self._copy.manager, self._copy.epoch(now)
        if disabled_reason := self._copy.disabled_reason(request.KEY):
            return disabled_reason
        if not self._copy.speaks(request.KEY, exchange.version):
            return FallbackReason.VERSION
        if self._is_long(request):
            return FallbackReason.UNAUTHORIZED
        if not self._copy.may_see(
            self._copy.principals.principal_of(origin, now), required_rights(exchange, manager, at), at
        ):
            return FallbackReason.UNAUTHORIZED
        if self._copy.lacks_api(request.KEY):
            return None  # The broker would close the connection, so the copy has to do.
        if self._copy.lost_requests:
            return FallbackReason.STALE
        return fallback_reason(request, exchange.version, manager, at, added=self._added(exchange))

    def _is_long(self, request: Struct) -> bool:
        """Whether looking up the right to list each group would delay other clients."""
        many = len(self._copy.manager.group_metadata_cache) > MAX_RIGHTS_LOOKED_UP
        return many and self._copy.may_have_authorizer and isinstance(request, ListGroupsRequest)

    def _added(self, exchange: Exchange) -> bool:
        """Whether only the sidecar supports this version. The broker would close the connection for such a request."""
        return self._copy.is_added_version(exchange.request.KEY, exchange.version)
