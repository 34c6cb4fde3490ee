"""The reply to a question that may be answered, in bytes.

Owns: what a reply is made from, so that it is made again only when that is another; and how. Must not know: whether
the question may be answered (`answering`), what stands in a reply (`coordinator.answers`), which replies are kept
(`remembered`).
"""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import replace
from uuid import UUID

from group_sidecar.codecs.headers import encode_reply_rest, reply_rest
from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from group_sidecar.codecs.registry import Api, ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator import answers
from group_sidecar.coordinator.answers_consumer import consumer_group_describe
from group_sidecar.coordinator.committed import CommittedOffsets
from group_sidecar.coordinator.consumer_groups import consumer_group_of
from group_sidecar.coordinator.encoded_offsets import MANY, SOME, EncodedFetch, partitions_asked
from group_sidecar.coordinator.views import GroupView
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.element_bounds import ElementBounds
from group_sidecar.proxy.remembered import Question, Remembered
from group_sidecar.proxy.translations import operations

DESCRIPTIONS = frozenset({int(ApiKey.DESCRIBE_GROUPS), int(ApiKey.CONSUMER_GROUP_DESCRIBE)})
MOST_DESCRIBED = 300
"""Groups that are described at a time. More are the broker's to describe."""


class Replying:
    """Makes replies from a broker's copy, and remembers them."""

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy
        limits = copy.config.limits
        self._bounds = ElementBounds(limits.inspected_elements)
        self._remembered = Remembered(limits.remembered_answers, copy.traffic)
        self._offers = copy.offers

    def read(self, api: Api, version: int, body: bytes) -> Question:
        """A question, decoded. Raises DecodeError where it is none."""
        if self._offers != self._copy.offers:  # What is told in a version depends on which there are.
            self._offers = self._copy.offers
            self._remembered.clear()
        most = self._bounds.request(api.key)
        if api.key in DESCRIPTIONS and not self._copy.adds(api.key, version):
            most = min(most, MOST_DESCRIBED)
        return self._remembered.read(api, version, body, most)

    def reply(self, question: Question, at: float) -> bytes | None:
        """What stands behind the correlation id; None where something is not known that it would tell."""
        made_from = self._made_from(question, at)
        rest = self._remembered.recall(question, made_from) if self._ids_are_fresh(question, at) else None
        if rest is None and not self.is_large(question, at):
            rest = self._make(question, at)
            if rest is not None and made_from is not None:
                self._remembered.keep(question, made_from, rest)
        return rest

    def is_long(self, request: Struct, version: int) -> bool:
        """Whether a question names so many groups that its answer would be large."""
        return not (self._only_here(request, version) or self._bounds.allows_question(request))

    def is_large(self, question: Question, at: float) -> bool:
        """Whether an answer would take long to make, for all clients. Nothing is where nobody else can answer."""
        request, version = question.request, question.version
        if self._only_here(request, version):
            return False
        return not self._bounds.allows_answer(request, version, self._copy.manager, at)

    def _only_here(self, request: Struct, version: int) -> bool:
        return self._copy.lacks(request.KEY) or self._copy.adds(request.KEY, version)

    def anew(self, request: Struct, version: int, at: float) -> bytes | None:
        """As `reply`, but made anew, and not remembered."""
        return self._make(Question((request.KEY, version, b""), request), at)

    def _ids_are_fresh(self, question: Question, at: float) -> bool:
        """Whether the broker has lately confirmed the topic ids that the reply depends on, if it does on any."""
        request = question.request
        by_id = isinstance(request, OffsetFetchRequest) and question.version >= answers.TOPIC_IDS_SINCE
        if not by_id and not isinstance(request, ConsumerGroupDescribeRequest):
            return True
        return self._confirmed((), at)

    def _confirmed(self, topic_ids: Collection[UUID], at: float) -> bool:
        """Whether the broker has lately confirmed these ids, and all others that remembered replies depend on."""
        known = self._copy.topic_ids.have(topic_ids)
        return self._copy.topic_ids.fresh(at, self._copy.manager.log.offsets_removed_at) and known

    def _made_from(self, question: Question, at: float) -> Hashable:
        """What stands for all that the reply is made from. None where nothing does."""
        request, manager = question.request, self._copy.manager
        if self._copy.lacks(request.KEY):
            return None  # The best that is known, which may be another with time.
        if isinstance(request, ConsumerGroupDescribeRequest):
            changes = tuple(manager.changes_of(group)[0] for group in request.group_ids)
            return (self._copy.topic_ids.revision, manager.default_assignor, manager.explains, *changes)
        if isinstance(request, DescribeGroupsRequest):
            return (self._copy.hides, *(manager.changes_of(group)[0] for group in request.groups))
        if isinstance(request, OffsetFetchRequest):
            groups = answers.groups_asked(request, question.version)
            return (self._copy.topic_ids.revision, *(manager.changes_of(group)[1] for group in groups))
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
        manager, names = self._copy.manager, self._copy.topic_ids.names
        views = {group: consumer_group_of(manager.view(group, at)) for group in request.group_ids}
        owned = set().union(*(view.topic_ids for view in views.values() if view))
        if not self._confirmed(owned, at):
            return None
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

    def _named(self, request: OffsetFetchRequest, views: Iterable[GroupView], at: float) -> bool:
        """Whether each topic asked for exists, and so do those of the offsets, under the same names.

        Of a topic that was made anew under its old name the broker decides what counts.
        """
        asked = {topic.topic_id for group in request.groups for topic in group.topics or ()}
        if not self._confirmed(asked, at):
            return False
        offsets = [view.offsets for view in views]
        stored = set().union(*(each.topics() for each in offsets if isinstance(each, CommittedOffsets)))
        names = self._copy.topic_ids.names
        return self._confirmed({topic_id for _, topic_id in stored}, at) and all(
            names[topic_id] == name for name, topic_id in stored
        )

    def _fetch(self, question: Question, request: OffsetFetchRequest, at: float) -> bytes | None:
        version, manager, names = question.version, self._copy.manager, self._copy.topic_ids.names
        parts = question.parts
        if not request.topics and self._copy.gives_all_for_none and not self._copy.adds(request.KEY, version):
            request = replace(request, topics=None)
        if parts is None and not answers.is_plain(request, version):
            return None
        views = {group: manager.offsets_view(group, at) for group in answers.groups_asked(request, version)}
        if version >= answers.TOPIC_IDS_SINCE and not self._named(request, views.values(), at):
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
