"""Answers a client's question by sending other requests to the broker on the client's own connection.

`Steps` yields requests, receives their replies, may yield further requests, and returns the reply to the client.

The client's own connection is authenticated as the client, so the broker shows what this client may see. Clients get
their replies in the order of their requests.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from group_sidecar.codecs.headers import RequestHeader, encode_reply
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answer_requirements import groups_of
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.dataplane.framing import HOLD, FrameAction
from group_sidecar.proxy.dataplane.outcomes import UNCHANGED, AnswerInOrder, Origin, PendingReply, Reply
from group_sidecar.proxy.handlers.injected_requests import RELAY_CORRELATION, encode_injected
from group_sidecar.proxy.handlers.pending_exchange import ExchangeReplies
from group_sidecar.proxy.handlers.reply_rewriter import decode_reply


class BrokerRequest(NamedTuple):
    """A request to the broker, in a version that the broker has."""

    request: Struct
    version: int


Steps = Generator[Sequence[BrokerRequest], Sequence[Struct], Struct]
"""A generator that yields requests, is sent their replies in the same order, and returns the reply to the client.
`UnreadableReply` is thrown into the generator if a reply could not be decoded."""


class UnreadableReply(Exception):
    """The broker's reply to a request could not be decoded."""


class PendingRelay(PendingReply):
    """The pending reply to a `BrokerRequest`. `take` is called with the decoded reply."""

    __slots__ = ("_exchange", "_replies", "_take")

    def __init__(self, exchange: Exchange, replies: ExchangeReplies, take: Callable[[Struct], None]) -> None:
        self._exchange = exchange
        self._replies = replies
        self._take = take

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return self._exchange.request.KEY

    def classify_reply(self, size: int, now: float) -> FrameAction:
        """See PendingReply."""
        return HOLD

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        exchange, key = self._exchange, self._exchange.request.KEY
        message = decode_reply(key, exchange.version, frame).message
        if key in exchange_events.GROUP_API_KEYS:
            self._replies.observer.replied(exchange, message, origin, now)
        self._take(self._replies.rewriter.relocated(key, message))
        return UNCHANGED


def relay(
    steps: Steps, exchange: Exchange, header: RequestHeader, copy: CoordinatorCopy, replies: ExchangeReplies, now: float
) -> AnswerInOrder:
    """Answers a client's question by sending other requests to the broker. All earlier requests of the connection must
    have their replies.

    Args:
        steps: yields the requests and returns the client's reply; not started yet.
        exchange: the exchange of the client's question.
        header: the header of the client's question.
        copy: the copy of the broker's group coordinator.
        replies: the object that all pending replies of the broker share.
        now: the time on trio's clock.
    """
    return _Relay(steps, exchange, header, copy, replies).ask(now, partial(next, steps))


class _Relay:
    def __init__(
        self, steps: Steps, exchange: Exchange, header: RequestHeader, copy: CoordinatorCopy, replies: ExchangeReplies
    ) -> None:
        self._steps = steps
        self._exchange = exchange
        self._header = header
        self._copy = copy
        self._pending_replies = replies
        self._replies: list[Struct] = []
        self._asked = 0

    def ask(self, now: float, advance: Callable[[], Sequence[BrokerRequest]]) -> AnswerInOrder:
        """Returns the outcome that sends the next requests, or the client's reply if no request is left."""
        try:
            asked = advance()
        except StopIteration as done:
            frame = encode_reply(done.value, self._exchange.version, self._header.correlation_id)
            return AnswerInOrder(lambda _: frame)
        self._replies, self._asked = [], len(asked)
        return AnswerInOrder(self._continue, [self._question(each, now) for each in asked])

    def _continue(self, now: float) -> AnswerInOrder:
        if len(self._replies) < self._asked:
            return self.ask(now, lambda: self._steps.throw(UnreadableReply()))
        return self.ask(now, lambda: self._steps.send(self._replies))

    def _question(self, asked: BrokerRequest, now: float) -> tuple[bytes, PendingReply]:
        manager = self._copy.manager
        exchange = replace(
            self._exchange,
            request=asked.request,
            version=asked.version,
            token=f"{self._exchange.token}:relayed",
            sent_at=self._copy.epoch(now),
            as_of={group: manager.changes_of(group) for group in groups_of(asked.request, asked.version)},
            note_count=manager.note_count,
        )
        frame = encode_injected(asked.request, asked.version, RELAY_CORRELATION, self._header)
        return frame, PendingRelay(exchange, self._pending_replies, self._replies.append)
