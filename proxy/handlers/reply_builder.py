"""Builds the encoded reply to a question from the copy.

A cached reply is reused until the state from which it was built changes (`reply_cache`). `fallback_reasons` decides
whether the question may be answered. `coordinator.answers` determines the contents of a reply.
"""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import replace
from uuid import UUID

from group_sidecar.codecs.api_registry import Api, ApiKey
from group_sidecar.codecs.headers import encode_reply_rest, reply_rest
from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answers import group_replies
from group_sidecar.coordinator.answers.consumer_group_describe import consumer_group_describe
from group_sidecar.coordinator.answers.encoded_offsets import (
    MIN_CACHED_PARTITIONS,
    MIN_ENCODED_PARTITIONS,
    EncodedFetch,
    partitions_asked,
)
from group_sidecar.coordinator.log.consumer_groups import consumer_group_of
from group_sidecar.coordinator.model.views import GroupView
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.answer_settings import AnswerSettings
from group_sidecar.proxy.broker.authorizer_state import AuthorizerState
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.existing_topic_ids import TopicIds
from group_sidecar.proxy.config.limits_section import Limits
from group_sidecar.proxy.handlers.decode_limits import DecodeLimits
from group_sidecar.proxy.handlers.reply_cache import CachedRequest, ReplyCache
from group_sidecar.proxy.handlers.version_translation import operations

DESCRIBE_APIS = frozenset({int(ApiKey.DESCRIBE_GROUPS), int(ApiKey.CONSUMER_GROUP_DESCRIBE)})
MAX_DESCRIBED_GROUPS = 300
"""Maximum number of groups in a question of `DESCRIBE_APIS` that is decoded. A question about more groups is forwarded
to the broker. The limit does not apply to versions that the sidecar adds."""


class ReplyBuilder:
    """Builds replies from a broker's copy, and caches them.

    Args:
        copy: the copy of the broker's group coordinator.
        versions: the versions that the broker offers.
        authorizer_state: whether the broker may have an authorizer.
        topic_ids: which topics the broker still has.
        settings: which hosts a reply contains.
        traffic: counts the answers from the cache, and the bytes of the cache.
        limits: how large a reply may be, and how many bytes the cache may have.
    """

    def __init__(
        self,
        copy: CoordinatorCopy,
        versions: BrokerVersions,
        authorizer_state: AuthorizerState,
        topic_ids: TopicIds,
        settings: AnswerSettings,
        traffic: TrafficCounters,
        limits: Limits,
    ) -> None:
        self._copy = copy
        self._versions = versions
        self._authorizer_state = authorizer_state
        self._topic_ids = topic_ids
        self._true_hosts = settings.true_hosts
        self._decode_limits = DecodeLimits(limits.inspected_elements)
        self._reply_cache = ReplyCache(limits.remembered_answers, traffic)
        self._versions_revision = versions.revision

    def read(self, api: Api, version: int, body: bytes) -> CachedRequest:
        """Returns a decoded question. Raises DecodeError if the body cannot be decoded."""
        if self._versions_revision != self._versions.revision:  # Replies depend on the broker's versions.
            self._versions_revision = self._versions.revision
            self._reply_cache.clear()
        max_elements = self._decode_limits.request(api.key)
        if api.key in DESCRIBE_APIS and not self._versions.is_added_version(api.key, version):
            max_elements = min(max_elements, MAX_DESCRIBED_GROUPS)
        return self._reply_cache.read(api, version, body, max_elements)

    def reply(self, question: CachedRequest, at: float) -> bytes | None:
        """Returns the bytes after the correlation id; None if the copy lacks a value, or the reply is too large."""
        state_key = self._state_key(question, at)
        rest = self._reply_cache.lookup(question, state_key) if self._ids_are_fresh(question, at) else None
        if rest is None and not self.is_too_large(question, at):
            rest = self._make(question, at)
            if rest is not None and state_key is not None:
                self._reply_cache.put(question, state_key, rest)
        return rest

    def names_too_many_groups(self, request: Struct, version: int) -> bool:
        """Whether a question names too many groups for a local answer. False if only the sidecar can answer."""
        return not (self._only_sidecar_answers(request, version) or self._decode_limits.allows_question(request))

    def is_too_large(self, question: CachedRequest, at: float) -> bool:
        """Whether building the answer would delay all clients too long. False if only the sidecar can answer."""
        request, version = question.request, question.version
        if self._only_sidecar_answers(request, version):
            return False
        return not self._decode_limits.allows_answer(request, version, self._copy.manager, at)

    def _only_sidecar_answers(self, request: Struct, version: int) -> bool:
        return self._versions.lacks_api(request.KEY) or self._versions.is_added_version(request.KEY, version)

    def build_uncached(self, request: Struct, version: int, at: float) -> bytes | None:
        """Does the same as `reply`, but without the cache and without the limit on the size."""
        return self._make(CachedRequest((request.KEY, version, b""), request), at)

    def _ids_are_fresh(self, question: CachedRequest, at: float) -> bool:
        """Whether the broker has lately confirmed the topic ids that the reply depends on, if the reply has any."""
        request = question.request
        by_id = isinstance(request, OffsetFetchRequest) and question.version >= group_replies.TOPIC_IDS_SINCE
        if not by_id and not isinstance(request, ConsumerGroupDescribeRequest):
            return True
        return self._confirmed((), at)

    def _confirmed(self, topic_ids: Collection[UUID], at: float) -> bool:
        """Whether the broker has lately confirmed these ids, and all others that cached replies depend on."""
        known = self._topic_ids.are_confirmed(topic_ids)
        return self._topic_ids.are_fresh(at, self._copy.manager.log.offsets_removed_at) and known

    def _state_key(self, question: CachedRequest, at: float) -> Hashable:
        """Returns a key of the state that the reply is built from, or None if the reply must not be cached."""
        request, manager = question.request, self._copy.manager
        if self._versions.lacks_api(request.KEY):
            return None  # The answer may be incomplete, and may change as time passes.
        if isinstance(request, ConsumerGroupDescribeRequest):
            changes = tuple(manager.changes_of(group)[0] for group in request.group_ids)
            return (self._topic_ids.revision, manager.default_assignor, manager.sends_error_messages, *changes)
        if isinstance(request, DescribeGroupsRequest):
            return (
                self._authorizer_state.may_have_authorizer,
                *(manager.changes_of(group)[0] for group in request.groups),
            )
        if isinstance(request, OffsetFetchRequest):
            groups = group_replies.groups_asked(request, question.version)
            return (self._topic_ids.revision, *(manager.changes_of(group)[1] for group in groups))
        if isinstance(request, ListGroupsRequest):
            return manager.listing(at).revision
        return None

    def _make(self, question: CachedRequest, at: float) -> bytes | None:
        request, version, manager = question.request, question.version, self._copy.manager
        if isinstance(request, ListGroupsRequest):
            empty = self._versions.includes_empty_groups(request.KEY, version)
            return reply_rest(ListGroupsResponse, version, manager.listing(at).reply(request, version, empty=empty))
        if isinstance(request, ConsumerGroupDescribeRequest):
            return self._consumer_groups(request, version, at)
        if isinstance(request, DescribeGroupsRequest):
            views = {group: manager.view(group, at) for group in request.groups}
            added = self._versions.is_added_version(request.KEY, version)
            described = group_replies.describe_groups(
                request,
                version,
                views,
                true_hosts=self._true_hosts,
                operations=operations(request, self._authorizer_state) if added else group_replies.OPERATIONS_UNKNOWN,
                empty=self._versions.includes_empty_groups(request.KEY, version),
            )
            return encode_reply_rest(described, version)
        assert isinstance(request, OffsetFetchRequest)
        return self._fetch(question, request, at)

    def _consumer_groups(self, request: ConsumerGroupDescribeRequest, version: int, at: float) -> bytes | None:
        manager, names = self._copy.manager, self._topic_ids.names
        views = {group: consumer_group_of(manager.view(group, at)) for group in request.group_ids}
        owned = set().union(*(view.topic_ids for view in views.values() if view))
        if not self._confirmed(owned, at):
            return None
        if manager.sends_error_messages is None and any(
            view is None or not view.is_describable for view in views.values()
        ):
            return None
        if any(view and len(view.members) > 1 and not view.ordered for view in views.values()):
            return None  # Tools print members in the reply's order. Only the broker's reply shows this order.
        reply = consumer_group_describe(
            request,
            version,
            views,
            names,
            manager.default_assignor,
            sends_error_messages=bool(manager.sends_error_messages),
            true_hosts=self._true_hosts,
        )
        return None if reply is None else encode_reply_rest(reply, version)

    def _topics_exist(self, request: OffsetFetchRequest, views: Iterable[GroupView], at: float) -> bool:
        """Whether all requested topics, and all topics with offsets, still exist under the same names.

        If a topic was deleted and created again under its old name, only the broker knows which offsets are valid.
        """
        asked = {topic.topic_id for group in request.groups for topic in group.topics or ()}
        if not self._confirmed(asked, at):
            return False
        offsets = [view.offsets for view in views]
        stored = set().union(*(each.topics() for each in offsets if isinstance(each, CommittedOffsets)))
        names = self._topic_ids.names
        return self._confirmed({topic_id for _, topic_id in stored}, at) and all(
            names[topic_id] == name for name, topic_id in stored
        )

    def _fetch(self, question: CachedRequest, request: OffsetFetchRequest, at: float) -> bytes | None:
        version, manager, names = question.version, self._copy.manager, self._topic_ids.names
        parts = question.parts
        if (
            not request.topics
            and self._versions.empty_topics_fetch_all
            and not self._versions.is_added_version(request.KEY, version)
        ):
            request = replace(request, topics=None)
        if parts is None and not group_replies.is_plain(request, version):
            return None
        views = {group: manager.offsets_view(group, at) for group in group_replies.groups_asked(request, version)}
        if version >= group_replies.TOPIC_IDS_SINCE and not self._topics_exist(request, views.values(), at):
            return None
        count = partitions_asked(request, version, views)
        if count < MIN_ENCODED_PARTITIONS or any(view.error_code for view in views.values()):
            reply = group_replies.offset_fetch(request, version, views, names)
            return None if reply is None else encode_reply_rest(reply, version)
        parts = parts or EncodedFetch(request, version)
        if count >= MIN_CACHED_PARTITIONS:
            question.parts = parts
        body = parts.encode(views, names)
        return None if body is None else reply_rest(OffsetFetchResponse, version, body)
