"""Whether a question about groups is answered here, and if so with what.

Owns: the decision, made when the question's turn comes. Must not know: how replies are built
(`coordinator.answers`), what a group lacks and why (`coordinator.manager`).
"""

from dataclasses import replace

from group_sidecar.codecs.headers import RequestHeader, encode_reply
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator import answers
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.coordinator.views import Lacking
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.session import Answer, Forward, Pass


class Answering:
    """Answers ListGroups, DescribeGroups and OffsetFetch from a broker's copy, or leaves them to the broker."""

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy

    def consider(self, exchange: Exchange, header: RequestHeader, now: float) -> Pass | Forward | Answer:
        """What is to become of a question. One that cannot be answered here need not wait for its turn."""
        if lacking := self._lacking(exchange, now):
            return self._fall_back(exchange, lacking)
        return Answer(lambda at: self._answer_or_forward(exchange, header, at))

    def _answer_or_forward(self, exchange: Exchange, header: RequestHeader, now: float) -> bytes | Pass | Forward:
        if lacking := self._lacking(exchange, now):
            return self._fall_back(exchange, lacking)
        reply = self._answer(exchange, now)
        if reply is None:
            return self._fall_back(exchange, Lacking.VERSION)
        frame = encode_reply(reply, exchange.version, header.correlation_id)
        self._copy.traffic.answered(header.api_key)
        return frame

    def _fall_back(self, exchange: Exchange, reason: Lacking) -> Pass | Forward:
        self._copy.traffic.fell_back(exchange.request.KEY, reason)
        manager = self._copy.manager
        as_of = {group: manager.changes_of(group) for group in _groups(exchange)}
        return Forward(replace(exchange, as_of=as_of, notings=manager.notings))

    def _lacking(self, exchange: Exchange, now: float) -> Lacking | None:
        """Why a question is left to the broker; None where it is not."""
        request, manager, at = exchange.request, self._copy.manager, self._copy.epoch(now)
        if withheld := self._copy.withheld(request.KEY):
            return withheld
        if self._copy.lacks(request.KEY):
            return None  # The broker could only close the connection: the best that is known will do.
        if isinstance(request, ListGroupsRequest):
            return manager.listing_lacking(at)
        views = (manager.view(group, at) for group in _groups(exchange))
        if isinstance(request, DescribeGroupsRequest):
            if request.include_authorized_operations:
                return Lacking.VERSION
            return next((view.lacking for view in views if view.lacking), None)
        if exchange.version == 0:
            return Lacking.VERSION  # v0 asks ZooKeeper.
        return next((view.offsets_lacking for view in views if view.offsets_lacking), None)

    def _answer(self, exchange: Exchange, now: float) -> Struct | None:
        """The answer as good as it can be; None where even its form cannot be filled."""
        request, version, manager = exchange.request, exchange.version, self._copy.manager
        at = self._copy.epoch(now)
        if isinstance(request, ListGroupsRequest):
            return answers.list_groups(request, manager.views(at))
        views = {group: manager.view(group, at) for group in _groups(exchange)}
        if isinstance(request, DescribeGroupsRequest):
            return answers.describe_groups(request, version, views)
        assert isinstance(request, OffsetFetchRequest)
        return answers.offset_fetch(request, version, views, self._copy.names)


def _groups(exchange: Exchange) -> tuple[str, ...]:
    if isinstance(exchange.request, DescribeGroupsRequest):
        return exchange.request.groups
    if isinstance(exchange.request, OffsetFetchRequest):
        return answers.groups_asked(exchange.request, exchange.version)
    return ()
