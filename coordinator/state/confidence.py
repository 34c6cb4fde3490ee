"""Why a question about groups may not be answered from the copy.

`Confidence.reason` returns the reason for a question about one group. `Confidence.listing_fallback_reason` returns the
reason for ListGroups. This second method checks neither the state of each group nor the age of the list, because the
manager checks both. The two methods combine what other modules know to be missing:

- `completeness`: what is missing from the members of one group
- `group_offsets`: what is missing from the offsets of one group
- `unread_writes`, `unseen_history`: writes that could not be decoded, and groups whose history was not observed
- `log_partitions`: whether the partition that stores a group is read, and how fresh it is
- `group_cache`: groups for which verification found a difference, and deletions of topics

The log contains the offsets of all groups, and the whole state of groups of the newer protocols. The log does not
contain what a classic group does between two generations. Only the wire shows these changes, and only if every client
uses this sidecar. If clients may bypass this sidecar, the reason for a question about such changes is NOT_EXCLUSIVE.
This reason precedes all other reasons of a group.
"""

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.model.events import FOREVER
from group_sidecar.coordinator.model.views import FallbackReason, GroupKind, TopicPartition
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.group_cache import GroupCache
from group_sidecar.coordinator.state.log_partitions import FRESH_SECONDS, PartitionState

GROUPS_PER_STEP = 500
"""Groups per step of a loop over all groups. A step takes less than a millisecond."""
LEAST_RETENTION_SECONDS = 60.0
"""Seconds for which every broker keeps the offsets of a group without members: `offsets.retention.minutes` is at least
one minute."""
_ERRORS = {
    PartitionState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    PartitionState.OWNED: ErrorCode.COORDINATOR_NOT_AVAILABLE,  # The log is not fresh.
    PartitionState.FAILED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class Question(Enum):
    """A question about one group."""

    STATE = auto()
    """The state of the group and its members."""
    DESCRIPTION = auto()
    """The answer to DescribeGroups."""
    OFFSETS = auto()
    """The answer to OffsetFetch."""
    CONSUMER_GROUP = auto()
    """The answer to ConsumerGroupDescribe, whose content only the log has."""


class Confidence:
    """Decides which questions about the groups of a cache may not be answered, and why."""

    def __init__(self, cache: GroupCache) -> None:
        self._cache = cache

    def reason(self, question: Question, group_id: str, now: float) -> FallbackReason | None:
        """Returns why a question about a group may not be answered; None if the copy may answer."""
        group = self._cache.group(group_id)
        exclusivity_reason = self._cache.exclusivity.fallback_reason(now)
        if exclusivity_reason is not None and self._needs_exclusive(question, group_id, group, now):
            # This reason precedes the others: while it holds, the copy may not answer even after the others have ended.
            return exclusivity_reason
        if self._cache.may_have_other_brokers and not self._cache.partitions.in_use:
            return FallbackReason.COLD
        if self._needs_deleted_records(question, group_id, group):
            return FallbackReason.COLD
        if question is Question.DESCRIPTION:
            return self._description_fallback_reason(group_id, group, now)
        if group_id in self._cache.distrusted:
            return FallbackReason.IN_DOUBT
        if question is Question.OFFSETS:
            return self._offsets_fallback_reason(group_id, group, now)
        if question is Question.CONSUMER_GROUP:
            return self._consumer_fallback_reason(group_id, group, now)
        return self._group_fallback_reason(group_id, group, now)

    def _needs_exclusive(self, question: Question, group_id: str, group: Group | None, now: float) -> bool:
        """Whether the answer depends on changes of the group that only the wire shows.

        An unknown group may be a group of a newer protocol whose records were not read yet. The log, not the wire, then
        decides about the answer.
        """
        in_use = self._cache.partitions.in_use
        if question is Question.OFFSETS:
            return not in_use
        if group is None and in_use:
            return self._log_fallback_reason(group_id, now) is None
        return question is not Question.CONSUMER_GROUP and (group is None or group.kind is GroupKind.CLASSIC)

    def _needs_deleted_records(self, question: Question, group_id: str, group: Group | None) -> bool:
        """Whether the answer needs the whole log of a group, but the broker has deleted records from its start.

        `offsets_are_known` decides about the offsets of such a group.
        """
        if question is Question.OFFSETS or not self._cache.partitions.may_lack_records(group_id):
            return False
        return question is Question.CONSUMER_GROUP or group is None or group.kind is not GroupKind.CLASSIC

    def offsets_are_known(self, group_id: str, partitions: Iterable[TopicPartition] | None) -> bool:
        """Whether the copy has all offsets that the broker has of these partitions, although records may be deleted.

        `partitions` is None for all partitions of the group.
        """
        if not self._cache.partitions.may_lack_records(group_id):
            return True
        offsets = self._cache.group_offsets(group_id)
        return offsets is not None and partitions is not None and all(map(offsets.committed.is_known, partitions))

    def _description_fallback_reason(self, group_id: str, group: Group | None, now: float) -> FallbackReason | None:
        """Returns why DescribeGroups may not be answered; None if the copy may answer.

        The reply contains metadata, assignments and hosts besides state and members. Without `true_hosts`, a member's
        host in the reply is the sidecar's address. The copy must know that address from the broker, because the sidecar
        may have several addresses.
        """
        if group is not None and group.metadata_omitted:
            return FallbackReason.COLD
        if group_id in self._cache.distrusted:
            return FallbackReason.IN_DOUBT
        hosts_known = (
            self._cache.true_hosts or group is None or all(each.broker_host for each in group.members.values())
        )
        return self._group_fallback_reason(group_id, group, now) or (None if hosts_known else FallbackReason.IN_DOUBT)

    def _group_fallback_reason(self, group_id: str, group: Group | None, now: float) -> FallbackReason | None:
        cache, log_reason = self._cache, self._log_fallback_reason(group_id, now)
        if group is not None and group.kind is not GroupKind.CLASSIC:
            return group.fallback_reason(now) or log_reason
        if log_reason is not None and cache.partitions.in_use:
            return log_reason
        if group is None:
            return None if cache.fully_observed(group_id) else FallbackReason.COLD
        may_be_gone = cache.may_be_removed_soon(group) or now >= self.expires_at(group)
        return group.fallback_reason(now) or (FallbackReason.IN_DOUBT if may_be_gone else None)

    def expires_at(self, group: Group) -> float:
        """Returns from when on the broker may have removed the group, because its offsets have expired.

        The result is FOREVER for a group with members or without offsets. It is also FOREVER if the log is read,
        because the log shows the removal.
        """
        offsets = None if group.members or self._cache.partitions.in_use else self._cache.group_offsets(group.group_id)
        return FOREVER if offsets is None else offsets.confirmed_at + LEAST_RETENTION_SECONDS

    def _offsets_fallback_reason(self, group_id: str, group: Group | None, now: float) -> FallbackReason | None:
        cache = self._cache
        if cache.partitions.in_use:
            return self._log_fallback_reason(group_id, now) or self._logged_offsets_fallback_reason(group_id, now)
        if group is not None and group.kind is not GroupKind.CLASSIC:
            return FallbackReason.VERSION
        offsets = cache.group_offsets(group_id)
        if offsets is not None:
            may_have_expired = group is None or now >= self.expires_at(group)
            return offsets.fallback_reason or (FallbackReason.STALE if may_have_expired else None)
        return None if cache.fully_observed(group_id) and cache.keeps_empty_groups else FallbackReason.COLD

    def _logged_offsets_fallback_reason(self, group_id: str, now: float) -> FallbackReason | None:
        cache, offsets = self._cache, self._cache.group_offsets(group_id)
        partition = cache.partitions.partition_of(group_id)
        assert partition is not None
        if now < cache.topic_deletion_until:
            return FallbackReason.STALE
        if partition.fresh_at < cache.unread_writes.until:
            return FallbackReason.UNDECODABLE
        if offsets is not None:
            return offsets.fallback_reason
        logged = partition.log.groups.get(group_id.encode())
        if logged is not None and (group_id not in cache.groups or logged.has_offsets):
            return FallbackReason.COLD  # The copy does not keep the group: see `limits.groups` and `not_coordinated`.
        return FallbackReason.IN_DOUBT if cache.settled_at(group_id) > partition.fresh_at else None

    def _consumer_fallback_reason(self, group_id: str, group: Group | None, now: float) -> FallbackReason | None:
        if self._cache.partitions.count is None:
            return FallbackReason.VERSION
        if now < self._cache.topic_deletion_until:
            return FallbackReason.STALE  # The broker leaves out topics that were deleted.
        if group is None:
            # The reply depends on the kind of the group, and the log has no classic group before its first generation.
            return self._group_fallback_reason(group_id, group, now)
        if group.kind is GroupKind.CLASSIC:
            offsets = self._cache.group_offsets(group_id)  # The log may keep offsets a little longer than the group.
            logged = group.logged_metadata is not None or (offsets is not None and bool(offsets.committed.log_values))
            if (log_reason := self._log_fallback_reason(group_id, now)) is not None:
                return log_reason
            partition = self._cache.partitions.partition_of(group_id)
            assert partition is not None
            # A lost request may have deleted the group, or made it a consumer group.
            settled = logged and group.completeness.unknown_until(group_id) <= partition.fresh_at
            return None if settled else FallbackReason.IN_DOUBT
        return group.fallback_reason(now) or self._log_fallback_reason(group_id, now)

    def coordinator_error(self, group_id: str, now: float) -> ErrorCode:
        """Returns the error that Kafka's GroupMetadataManager would return if it had read the log as far as the copy.

        The result is NONE if Kafka would return no error.
        """
        partitions = self._cache.partitions
        if partitions.count is None or partitions.is_current(group_id, now):
            return ErrorCode.NONE
        partition = partitions.partition_of(group_id)
        return _ERRORS[partition.state] if partition else ErrorCode.NOT_COORDINATOR

    def listing_fallback_reason(self, now: float) -> FallbackReason | None:
        """Returns why ListGroups may not be answered, apart from the states of groups; None if there is no reason."""
        cache = self._cache
        if (exclusivity_reason := cache.exclusivity.fallback_reason(now)) is not None:
            return exclusivity_reason
        is_current = cache.partitions.all_current(now) if cache.partitions.in_use else not cache.may_have_other_brokers
        if cache.partitions.trimmed or not (cache.unseen_history.all_known and is_current):
            return FallbackReason.COLD
        uncertain = not cache.distrusted <= cache.groups.keys() or any(
            each.lost_deletions for _, each in cache.partitions
        )
        return FallbackReason.IN_DOUBT if uncertain else None

    def groups_to_describe(self) -> Iterator[list[str]]:
        """Yields the groups that the broker has to describe, in batches that may be empty.

        Yields nothing if clients may bypass this sidecar, because a description could be outdated at once.
        """
        cache = self._cache
        if not cache.exclusive:
            return
        names = [*cache.unseen_history.noted(), *cache.groups]
        for first in range(0, len(names), GROUPS_PER_STEP):
            yield [group_id for group_id in names[first : first + GROUPS_PER_STEP] if self._needs_description(group_id)]

    def _needs_description(self, group_id: str) -> bool:
        group = self._cache.group(group_id)
        return self._cache.unseen_history.may_be_there(group_id) if group is None else group.needs_description

    def _log_fallback_reason(self, group_id: str, now: float) -> FallbackReason | None:
        """Returns why the log of a group cannot be used; None if the log can be used."""
        partition = self._cache.partitions.partition_of(group_id)
        if partition is None or partition.state is not PartitionState.OWNED:
            return FallbackReason.COLD
        if now - partition.fresh_at > FRESH_SECONDS:
            return FallbackReason.STALE
        # The wire has shown that the group was deleted. If the log was read beyond that time and still contains the
        # group, a client that bypasses this sidecar may have created the group again.
        deleted_at = partition.deleted.get(group_id)
        may_exist_again = deleted_at is not None and deleted_at <= partition.fresh_at
        uncertain = may_exist_again or partition.lost_deletions or partition.log.has_partial_batch
        return FallbackReason.IN_DOUBT if uncertain else None
