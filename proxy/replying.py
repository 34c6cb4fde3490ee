"""The reply to a question that may be answered, in bytes.

Owns: what a reply is made from, so that it is made again only when that is another; and how. Must not know: whether
the question may be answered (`answering`), what stands in a reply (`coordinator.answers`), which replies are kept
(`remembered`).
"""

from collections.abc import Hashable, Iterable
from dataclasses import replace

from group_sidecar.codecs.headers import encode_reply_rest, reply_rest
from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from group_sidecar.codecs.registry import Api
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator import answers
from group_sidecar.coordinator.answers_consumer import consumer_group_describe
from group_sidecar.coordinator.committed import CommittedOffsets
from group_sidecar.coordinator.consumer_groups import consumer_group_of
from group_sidecar.coordinator.encoded_offsets import MANY, SOME, EncodedFetch, partitions_asked
from group_sidecar.coordinator.views import GroupView
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.remembered import Question, Remembered
from group_sidecar.proxy.translations import operations


class Replying:
    """Makes replies from a broker's copy, and remembers them."""

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy
        self._remembered = Remembered(copy.config.limits.remembered_answers, copy.traffic)
        self._offers = copy.offers

    def read(self, api: Api, version: int, body: bytes) -> Question:
        """A question, decoded. Raises DecodeError where it is none."""
        if self._offers != self._copy.offers:  # What is told in a version depends on which there are.
            self._offers = self._copy.offers
            self._remembered.clear()
        return self._remembered.read(api, version, body)

    def reply(self, question: Question, at: float) -> bytes | None:
        """What stands behind the correlation id; None where something is not known that it would tell."""
        made_from = self._made_from(question, at)
        rest = self._remembered.recall(question, made_from)
        if rest is None:
            rest = self._make(question, at)
            if rest is not None and made_from is not None:
                self._remembered.keep(question, made_from, rest)
        return rest

    def anew(self, request: Struct, version: int, at: float) -> bytes | None:
        """As `reply`, but made anew, and not remembered."""
        return self._make(Question((request.KEY, version, b""), request), at)

    def _made_from(self, question: Question, at: float) -> Hashable:
        """What stands for all that the reply is made from. None where nothing does."""
        request, manager = question.request, self._copy.manager
        if self._copy.lacks(request.KEY):
            return None  # The best that is known, which may be another with time.
        if isinstance(request, ConsumerGroupDescribeRequest):
            changes = tuple(manager.changes_of(group)[0] for group in request.group_ids)
            return (len(self._copy.names), manager.default_assignor, manager.explains, *changes)
        if isinstance(request, DescribeGroupsRequest):
            return (self._copy.hides, *(manager.changes_of(group)[0] for group in request.groups))
        if isinstance(request, OffsetFetchRequest):
            groups = answers.groups_asked(request, question.version)
            return (len(self._copy.names), *(manager.changes_of(group)[1] for group in groups))
        if isinstance(request, ListGroupsRequest):
            return manager.listing(at).revision
        return None

    def _make(self, question: Question, at: float) -> bytes | None:
        request, version, manager = question.request, question.version, self._copy.manager
        if isinstance(request, ListGroupsRequest):
            empty = self._copy.tells_empty(request.KEY, version)
            return reply_rest(ListGroupsResponse, version, manager.listing(at).reply(request, version, empty=empty))
        if isinstance(request, ConsumerGroupDescribeRequest):
            return self._consumer_groups(request, version, at)
        if isinstance(request, DescribeGroupsRequest):
            views = {group: manager.view(group, at) for group in request.groups}
            added = self._copy.adds(request.KEY, version)
            described = answers.describe_groups(
                request,
                version,
                views,
                true_hosts=self._copy.true_hosts,
                operations=operations(request, self._copy) if added else answers.OPERATIONS_UNTOLD,
                empty=self._copy.tells_empty(request.KEY, version),
            )
            return encode_reply_rest(described, version)
        assert isinstance(request, OffsetFetchRequest)
        return self._fetch(question, request, at)

    def _consumer_groups(self, request: ConsumerGroupDescribeRequest, version: int, at: float) -> bytes | None:
        manager, names = self._copy.manager, self._copy.names
        views = {group: consumer_group_of(manager.view(group, at)) for group in request.group_ids}
        for view in views.values():
            self._copy.want_names(view.topic_ids if view else ())
        if manager.explains is None and any(view is None or not view.told for view in views.values()):
            return None
        if any(view and len(view.members) > 1 and not view.ordered for view in views.values()):
            return None  # The tools print members as they come: the broker says once in what order.
        reply = consumer_group_describe(
            request,
            version,
            views,
            names,
            manager.default_assignor,
            explains=bool(manager.explains),
            true_hosts=self._copy.true_hosts,
        )
        return None if reply is None else encode_reply_rest(reply, version)

    def _named(self, request: OffsetFetchRequest, views: Iterable[GroupView]) -> bool:
        """Whether each topic asked for has a known name, and those of the offsets are still called the same.

        Of a topic that was made anew under its old name the broker decides what counts.
        """
        names = self._copy.names
        asked = {topic.topic_id for group in request.groups for topic in group.topics or ()}
        offsets = [view.offsets for view in views]
        stored = set().union(*(each.topics() for each in offsets if isinstance(each, CommittedOffsets)))
        self._copy.want_names((*asked, *(topic_id for _, topic_id in stored)))
        return asked <= names.keys() and all(names.get(topic_id) == name for name, topic_id in stored)

    def _fetch(self, question: Question, request: OffsetFetchRequest, at: float) -> bytes | None:
        version, manager, names = question.version, self._copy.manager, self._copy.names
        parts = question.parts
        if not request.topics and self._copy.gives_all_for_none and not self._copy.adds(request.KEY, version):
            request = replace(request, topics=None)
        if parts is None and not answers.is_plain(request, version):
            return None
        views = {group: manager.offsets_view(group, at) for group in answers.groups_asked(request, version)}
        if version >= answers.TOPIC_IDS_SINCE and not self._named(request, views.values()):
            return None
        count = partitions_asked(request, version, views)
        if count < SOME or any(view.error_code for view in views.values()):
            reply = answers.offset_fetch(request, version, views, names)
            return None if reply is None else encode_reply_rest(reply, version)
        parts = parts or EncodedFetch(request, version)
        if count >= MANY:
            question.parts = parts
        body = parts.encode(views, names)
        return None if body is None else reply_rest(OffsetFetchResponse, version, body)
