"""Questions that the sidecar puts to the broker on a client's own connection, to answer one of the client's.

Owns: the turn-taking: some questions, their replies, perhaps further questions, at last the client's reply. Must not
know: which questions (`Steps` says), what the replies are good for, whether the client's question is answered so.

The client's own connection is authenticated as the client, so the broker shows what this client may see, and its
replies come in the order of the client's requests.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from group_sidecar.codecs.headers import RequestHeader, encode_reply
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answerable import groups_of
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.disposals import Answer
from group_sidecar.proxy.injecting import injected

CORRELATION = -88
"""Correlation id of these questions. Clients count up from 0, and the broker answers in order."""


class Asked(NamedTuple):
    """A question to the broker, in a version that it has."""

    request: Struct
    version: int


Steps = Generator[Sequence[Asked], Sequence[Struct], Struct]
"""Yields questions, is sent their replies in the same order, returns the reply to the client. `Unanswered` is thrown
in where a reply could not be read."""


class Unanswered(Exception):
    """The broker's reply to a question could not be read."""


class Relayed(NamedTuple):
    """A note for the reply to such a question. `take`: is given the reply, decoded."""

    exchange: Exchange
    take: Callable[[Struct], None]

    @property
    def api_key(self) -> int:
        """Of the question."""
        return self.exchange.request.KEY


def relay(steps: Steps, exchange: Exchange, header: RequestHeader, copy: BrokerCopy, now: float) -> Answer:
    """Answers a client's question by asking the broker others; to be called when the client's turn has come.

    Args:
        steps: what to ask, and what to make of it; not begun.
        exchange: the client's question.
        header: its header.
        copy: of the broker.
        now: the shell's clock.
    """
    return _Relay(steps, exchange, header, copy).ask(now, partial(next, steps))


class _Relay:
    def __init__(self, steps: Steps, exchange: Exchange, header: RequestHeader, copy: BrokerCopy) -> None:
        self._steps = steps
        self._exchange = exchange
        self._header = header
        self._copy = copy
        self._replies: list[Struct] = []
        self._asked = 0

    def ask(self, now: float, advance: Callable[[], Sequence[Asked]]) -> Answer:
        """Puts the next questions; or, if there are none, gives the reply."""
        try:
            asked = advance()
        except StopIteration as done:
            frame = encode_reply(done.value, self._exchange.version, self._header.correlation_id)
            return Answer(lambda _: frame)
        self._replies, self._asked = [], len(asked)
        return Answer(self._go_on, [self._question(each, now) for each in asked])

    def _go_on(self, now: float) -> Answer:
        if len(self._replies) < self._asked:
            return self.ask(now, lambda: self._steps.throw(Unanswered()))
        return self.ask(now, lambda: self._steps.send(self._replies))

    def _question(self, asked: Asked, now: float) -> tuple[bytes, Any]:
        manager = self._copy.manager
        exchange = replace(
            self._exchange,
            request=asked.request,
            version=asked.version,
            token=f"{self._exchange.token}:relayed",
            sent_at=self._copy.epoch(now),
            as_of={group: manager.changes_of(group) for group in groups_of(asked.request, asked.version)},
            notings=manager.notings,
        )
        frame = injected(asked.request, asked.version, CORRELATION, self._header)
        return frame, Relayed(exchange, self._replies.append)
