"""Questions that the sidecar puts to the broker on a client's own connection, to answer one of the client's.

Owns: the turn-taking: some questions, their replies, perhaps further questions, at last the client's reply. Must not
know: which questions (`Steps` says), what the replies are good for, whether the client's question is answered so.

The client's own connection is authenticated as the client, so the broker shows what this client may see, and its
replies come in the order of the client's requests.
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
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.framing import HOLD, FrameAction
from group_sidecar.proxy.dataplane.outcomes import UNCHANGED, Answer, Origin, PendingReply, Reply
from group_sidecar.proxy.handlers.injected_requests import encode_injected
from group_sidecar.proxy.handlers.pending_exchange import ExchangeReplies
from group_sidecar.proxy.handlers.reply_rewriter import decode_reply

CORRELATION = -88
"""Correlation id of these questions. Clients count up from 0, and the broker answers in order."""


class BrokerRequest(NamedTuple):
    """A question to the broker, in a version that it has."""

    request: Struct
    version: int


Steps = Generator[Sequence[BrokerRequest], Sequence[Struct], Struct]
"""Yields questions, is sent their replies in the same order, returns the reply to the client. `UnreadableReply` is
thrown in where a reply could not be read."""


class UnreadableReply(Exception):
    """The broker's reply to a question could not be read."""


class PendingRelay(PendingReply):
    """The pending reply to such a question. `take`: is called with the decoded reply."""

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
    steps: Steps, exchange: Exchange, header: RequestHeader, copy: BrokerState, replies: ExchangeReplies, now: float
) -> Answer:
    """Answers a client's question by asking the broker others; to be called when the client's turn has come.

    Args:
        steps: what to ask, and what to make of it; not begun.
        exchange: the client's question.
        header: its header.
        copy: of the broker.
        replies: handles the replies.
        now: the shell's clock.
    """
    return _Relay(steps, exchange, header, copy, replies).ask(now, partial(next, steps))


class _Relay:
    def __init__(
        self, steps: Steps, exchange: Exchange, header: RequestHeader, copy: BrokerState, replies: ExchangeReplies
    ) -> None:
        self._steps = steps
        self._exchange = exchange
        self._header = header
        self._copy = copy
        self._pending_replies = replies
        self._replies: list[Struct] = []
        self._asked = 0

    def ask(self, now: float, advance: Callable[[], Sequence[BrokerRequest]]) -> Answer:
        """Puts the next questions; or, if there are none, gives the reply."""
        try:
            asked = advance()
        except StopIteration as done:
            frame = encode_reply(done.value, self._exchange.version, self._header.correlation_id)
            return Answer(lambda _: frame)
        self._replies, self._asked = [], len(asked)
        return Answer(self._continue, [self._question(each, now) for each in asked])

    def _continue(self, now: float) -> Answer:
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
        frame = encode_injected(asked.request, asked.version, CORRELATION, self._header)
        return frame, PendingRelay(exchange, self._pending_replies, self._replies.append)
