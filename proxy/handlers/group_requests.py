"""Handles requests about groups: policies judge those that change a group, and the copy may answer questions."""

from collections.abc import Callable
from functools import partial

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.headers import decode_request_header
from group_sidecar.codecs.schema import decode_start
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.proxy.dataplane.framing import DEFER, HOLD, FrameAction
from group_sidecar.proxy.dataplane.outcomes import (
    AnswerInOrder,
    DeferredRequest,
    Forward,
    Origin,
    PendingReply,
    RequestOutcome,
)
from group_sidecar.proxy.handlers.api_handler import DecodingHandler, DecodingParts
from group_sidecar.proxy.handlers.broker_questions import BrokerQuestions
from group_sidecar.proxy.handlers.enforcement import Enforcement
from group_sidecar.proxy.handlers.local_answers import LocalAnswers
from group_sidecar.proxy.handlers.pending_exchange import ExchangeReplies


class _GroupHandler(DecodingHandler):
    """The base class of the handlers of group requests and of questions."""

    def undecoded(self, api_key: int, version: int, frame: bytes | None) -> PendingReply | None:
        """See ApiHandler."""
        return self._observer.note_undecoded(api_key, frame)

    def _with_fallback(
        self, outcome: RequestOutcome, exchange: Exchange, fallback: Callable[[float], RequestOutcome]
    ) -> RequestOutcome:
        """Returns the outcome. If it is an AnswerInOrder whose `make` raises, `fallback` returns the outcome instead.

        `fallback` also replaces an AnswerInOrder that `make` returned and whose own `make` raises. If the outcome of
        `fallback` raises too, the connection ends.
        """
        if not isinstance(outcome, AnswerInOrder):
            return outcome
        answer = outcome

        def make(now: float) -> bytes | RequestOutcome:
            try:
                made = answer.make(now)
            except Exception as error:  # noqa: BLE001  Whatever the error is, the broker decides.
                self._observer.warn("question", exchange.request.KEY, error)
                return fallback(now)
            return made if isinstance(made, bytes) else self._with_fallback(made, exchange, fallback)

        return outcome._replace(make=make)


class GroupRequests(_GroupHandler):
    """Handles requests that are forwarded unless a policy refuses them."""

    def __init__(
        self, action: FrameAction, parts: DecodingParts, enforcement: Enforcement, replies: ExchangeReplies
    ) -> None:
        super().__init__(action, parts)
        self._enforcement = enforcement
        self._replies = replies
        self._decode_limits = replies.decode_limits

    def decide(self, frame: bytes, version: int, origin: Origin, now: float) -> RequestOutcome:
        """See ApiHandler."""
        if self.action is DEFER and not self._policies.policies_for(int.from_bytes(frame[:2], "big")):
            return Forward(DeferredRequest(frame, origin, now))
        return super().decide(frame, version, origin, now)

    def decode(self, frame: bytes, version: int, origin: Origin, now: float) -> RequestOutcome:
        """See DecodingHandler."""
        api = APIS[int.from_bytes(frame[:2], "big")]
        header, body = decode_request_header(frame, api.flexible(version))
        assert api.request is not None  # Only Produce has no request schema.
        judged = bool(self._policies.policies_for(api.key))
        request, _ = decode_start(api.request, version, body, self._decode_limits.request(api.key, judged=judged))
        exchange = self._observer.exchange(request, version, header.correlation_id, header.client_id or "", origin, now)
        outcome = self._enforcement.decide(exchange, header, origin, now)
        return self._with_fallback(outcome, exchange, lambda _: Forward(self._replies.pending(exchange)))


class GroupQuestions(_GroupHandler):
    """Handles requests that only ask about groups."""

    def __init__(self, parts: DecodingParts, local_answers: LocalAnswers, questions: BrokerQuestions) -> None:
        super().__init__(HOLD, parts)
        self._local_answers = local_answers
        self._questions = questions

    def decode(self, frame: bytes, version: int, origin: Origin, now: float) -> RequestOutcome:
        """See DecodingHandler."""
        api = APIS[int.from_bytes(frame[:2], "big")]
        header, body = decode_request_header(frame, api.flexible(version))
        question = self._local_answers.read(api, version, body)
        client_id = header.client_id or ""
        exchange = self._observer.exchange(question.request, version, header.correlation_id, client_id, origin, now)
        outcome = self._local_answers.decide(question, exchange, header, origin, now)
        return self._with_fallback(outcome, exchange, partial(self._questions.ask, exchange, header))
