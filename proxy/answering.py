"""Whether a question about groups is answered here, and if so with what.

Owns: the decision, made when the question's turn comes. Must not know: how replies are built
(`replying`), what a group lacks and why (`coordinator.manager`), who may see what (`rights`), what the broker is asked
in place of a version that it lacks (`translations`).
"""

from dataclasses import replace

from group_sidecar.codecs.headers import RequestHeader, framed_reply
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.registry import Api
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator import wire
from group_sidecar.coordinator.answerable import groups_of, lacking
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.coordinator.views import Lacking
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.disposals import Answer, Disposal, Forward, Origin, Pass
from group_sidecar.proxy.principals import Principals
from group_sidecar.proxy.relaying import relay
from group_sidecar.proxy.remembered import Question
from group_sidecar.proxy.replying import Replying
from group_sidecar.proxy.rights import needed
from group_sidecar.proxy.translations import translate

MOST_RIGHTS = 5_000
"""Groups for each of which a client's right is looked up before the client gets a list: about 4 ms."""


class Answering:
    """Answers ListGroups, DescribeGroups and OffsetFetch from a broker's copy, or leaves them to the broker."""

    def __init__(self, copy: BrokerCopy, principals: Principals) -> None:
        self._copy = copy
        self._principals = principals
        self._replying = Replying(copy)

    def read(self, api: Api, version: int, body: bytes) -> Question:
        """A question, decoded. Raises DecodeError where it is none."""
        return self._replying.read(api, version, body)

    def consider(
        self, question: Question, exchange: Exchange, header: RequestHeader, origin: Origin, now: float
    ) -> Disposal:
        """What is to become of a question. One that goes to the broker as it came need not wait for its turn."""
        if self._replying.is_long(exchange.request, exchange.version):
            self._copy.traffic.fell_back(exchange.request.KEY, Lacking.LARGE)
            return Pass()
        if not self._added(exchange) and (reason := self.lacking(exchange, origin, now)):
            return self._fall_back(exchange, header, reason, now)
        return Answer(lambda at: self._answer_or_ask(question, exchange, header, origin, at))

    def _answer_or_ask(
        self, question: Question, exchange: Exchange, header: RequestHeader, origin: Origin, now: float
    ) -> bytes | Disposal:
        if reason := self.lacking(exchange, origin, now):
            return self._fall_back(exchange, header, reason, now)
        rest = self._replying.reply(question, self._copy.epoch(now))
        if rest is None:
            large = self._replying.is_large(question, self._copy.epoch(now))
            return self._fall_back(exchange, header, Lacking.LARGE if large else Lacking.VERSION, now)
        self._copy.traffic.answered(header.api_key)
        self._copy.samples.take(exchange, rest)
        return framed_reply(header.correlation_id, rest)

    def _fall_back(self, exchange: Exchange, header: RequestHeader, reason: Lacking, now: float) -> Disposal:
        self._copy.traffic.fell_back(exchange.request.KEY, reason)
        return self.ask(exchange, header, now)

    def ask(self, exchange: Exchange, header: RequestHeader, now: float) -> Disposal:
        """Leaves a question to the broker. One in a version that it lacks it is asked in another, in its turn."""
        if self._added(exchange):
            self._copy.traffic.relayed(header.api_key)
            steps = translate(exchange.request, exchange.version, self._copy)
            return relay(steps, exchange, header, self._copy, now)
        if exchange.request.KEY not in wire.READ:
            return Pass()
        manager = self._copy.manager
        if isinstance(exchange.request, ListGroupsRequest) and not self._copy.hides and not manager.learns_from_lists:
            return Pass()  # To decode a list of 100,000 groups takes a tenth of a second.
        as_of = {group: manager.changes_of(group) for group in groups_of(exchange.request, exchange.version)}
        return Forward(replace(exchange, as_of=as_of, notings=manager.notings))

    def lacking(self, exchange: Exchange, origin: Origin, now: float) -> Lacking | None:
        """Why a question is left to the broker; None where it is not."""
        request, manager, at = exchange.request, self._copy.manager, self._copy.epoch(now)
        if withheld := self._copy.withheld(request.KEY):
            return withheld
        if not self._copy.speaks(request.KEY, exchange.version):
            return Lacking.VERSION
        if self._is_long(request):
            return Lacking.UNAUTHORIZED
        if not self._copy.may_see(self._principals.of(origin, now), needed(exchange, manager, at), at):
            return Lacking.UNAUTHORIZED
        if self._copy.lacks(request.KEY):
            return None  # The broker could only close the connection: the best that is known will do.
        if self._copy.losses:
            return Lacking.STALE
        return lacking(request, exchange.version, manager, at, added=self._added(exchange))

    def _is_long(self, request: Struct) -> bool:
        """Whether to look up the right to see each group would hold up other clients."""
        many = len(self._copy.manager.group_metadata_cache) > MOST_RIGHTS
        return many and self._copy.hides and isinstance(request, ListGroupsRequest)

    def _added(self, exchange: Exchange) -> bool:
        """Whether only the sidecar speaks this version: the broker would close the connection over it."""
        return self._copy.adds(exchange.request.KEY, exchange.version)
