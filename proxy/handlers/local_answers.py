"""Decides the route of a question about groups: an answer from the copy, or the way to the broker.

A question that the copy may answer waits until all earlier requests of the connection have their replies. Then the
question is checked again. `fallback_reasons` returns the reason why the copy may not answer. `reply_builder` builds the
answer. `broker_questions` leaves a question to the broker.
"""

from group_sidecar.codecs.api_registry import Api
from group_sidecar.codecs.headers import RequestHeader, framed_reply
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.verification import SampleQueue
from group_sidecar.proxy.dataplane.outcomes import AnswerInOrder, Origin, Pass, PendingReply, RequestOutcome
from group_sidecar.proxy.handlers.broker_questions import BrokerQuestions
from group_sidecar.proxy.handlers.fallback_reasons import FallbackReasons
from group_sidecar.proxy.handlers.group_read_access import GroupReadAccess
from group_sidecar.proxy.handlers.reply_builder import ReplyBuilder
from group_sidecar.proxy.handlers.reply_cache import CachedRequest


class LocalAnswers:
    """Answers questions (`LOCAL_APIS`) from the copy of the broker's coordinator, or leaves them to the broker.

    Args:
        reasons: why the copy may not answer a question.
        reply_builder: builds the answers.
        questions: leaves questions to the broker.
        read_access: asks the broker whether a client has authenticated or need not do so.
        copy: converts trio's clock to seconds since the epoch.
        samples: queues a share of the answers for verification.
        traffic: counts answers and fallbacks.
    """

    def __init__(
        self,
        reasons: FallbackReasons,
        reply_builder: ReplyBuilder,
        questions: BrokerQuestions,
        read_access: GroupReadAccess,
        copy: CoordinatorCopy,
        samples: SampleQueue,
        traffic: TrafficCounters,
    ) -> None:
        self._reasons = reasons
        self._reply_builder = reply_builder
        self._questions = questions
        self._read_access = read_access
        self._copy = copy
        self._samples = samples
        self._traffic = traffic

    def read(self, api: Api, version: int, body: bytes) -> CachedRequest:
        """Returns a decoded question. Raises DecodeError if the body cannot be decoded."""
        return self._reply_builder.read(api, version, body)

    def decide(
        self, question: CachedRequest, exchange: Exchange, header: RequestHeader, origin: Origin, now: float
    ) -> RequestOutcome:
        """Returns what happens to a question. A question that is forwarded unchanged waits for no earlier reply."""
        if self._reply_builder.names_too_many_groups(exchange.request, exchange.version):
            self._traffic.fell_back(exchange.request.KEY, FallbackReason.LARGE)
            return Pass()
        asked: list[tuple[bytes, PendingReply]] = []
        if not self._questions.is_translated(exchange) and (
            reason := self._reasons.fallback_reason(exchange, origin, now)
        ):
            if not self._reasons.asks_first(exchange, reason):
                return self._fall_back(exchange, header, reason, now)
            asked.append(self._read_access.authentication_question(header))
        return AnswerInOrder(lambda at: self._answer_or_ask(question, exchange, header, origin, at), asked)

    def _answer_or_ask(
        self, question: CachedRequest, exchange: Exchange, header: RequestHeader, origin: Origin, now: float
    ) -> bytes | RequestOutcome:
        if reason := self._reasons.fallback_reason(exchange, origin, now):
            return self._fall_back(exchange, header, reason, now)
        rest = self._reply_builder.reply(question, self._copy.epoch(now))
        if rest is None:
            large = self._reply_builder.is_too_large(question, self._copy.epoch(now))
            return self._fall_back(exchange, header, FallbackReason.LARGE if large else FallbackReason.VERSION, now)
        self._traffic.answered(header.api_key)
        self._samples.sample_answer(exchange, rest)
        return framed_reply(header.correlation_id, rest)

    def _fall_back(
        self, exchange: Exchange, header: RequestHeader, reason: FallbackReason, now: float
    ) -> RequestOutcome:
        self._traffic.fell_back(exchange.request.KEY, reason)
        return self._questions.ask(exchange, header, now)
