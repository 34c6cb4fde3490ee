"""Tests the operator's statement that clients reach the broker only through this sidecar (`answers.exclusive`).

A commit or a new member in the log must follow from a request that passed through the sidecar. This module judges three
kinds of evidence:

- A commit: an OffsetCommit or TxnOffsetCommit for the same partition of the group must pass. The record may be read
  before the broker replies. `CommittedOffsets.wire_offsets` keeps a confirmed commit until the log has been read past
  the commit's record. So an offset from the wire explains the record, whatever its value is.
- A new member of a KIP-848 group: the member's heartbeat must pass.
- A member of a classic generation: the broker must have removed the member after its session timeout, if none of its
  requests passed. A Stable description that still contains the member proves that its heartbeats bypass the sidecar.

The module judges the records of a partition only when SETTLE_SECONDS have passed since its load. Older records may
follow from requests to the previous leader.
"""

from collections.abc import Iterable

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.offsets_topic import decode_key_suffix
from group_sidecar.codecs.offsets_topic_values import MemberMetadata
from group_sidecar.coordinator.model.events import GroupDescribed
from group_sidecar.coordinator.model.facts import ClientBypassed, Fact, MemberInfo, MemberJoined
from group_sidecar.coordinator.model.views import GroupKind, GroupState, TopicPartition
from group_sidecar.coordinator.rules.log_records import logged_members
from group_sidecar.coordinator.state.exclusivity import SETTLE_SECONDS, UnexplainedRecord
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.group_cache import GroupCache
from group_sidecar.coordinator.state.log_partitions import Partition
from group_sidecar.coordinator.state.member import Member

SESSIONS = 2
"""The number of session timeouts after which a silent member of a classic group must be gone. The second session
timeout leaves time for the broker's timers."""


class Bypasses:
    """Finds commits and members that bypassed the sidecar."""

    def __init__(self, cache: GroupCache) -> None:
        self._cache = cache
        self._exclusivity = cache.exclusivity

    # Records.

    def begin(self, partition: Partition, asked_at: float) -> None:
        """Begins to judge the records of a partition if the Fetch at `asked_at` was sent long enough after the load."""
        if self._exclusivity.stated and asked_at >= partition.loaded_at + SETTLE_SECONDS:
            partition.log.keep_commit_keys()

    def connection_lost(self, partitions: Iterable[Partition], now: float) -> None:
        """Stops judging records for SETTLE_SECONDS, because the broker may have restarted."""
        for partition in partitions:
            partition.loaded_at = now
            partition.log.drop_commit_keys()
        self._exclusivity.connection_lost(now)

    def judge_commits(self, partition: Partition, now: float) -> None:
        """Judges the commits that were read since the last call."""
        for group_id, key_suffix in partition.log.take_commit_keys():
            try:
                topic_partition = decode_key_suffix(key_suffix)
            except DecodeError:
                continue
            if not self._is_explained(group_id, topic_partition, partition.fresh_at):
                self._exclusivity.add_unexplained(group_id, topic_partition, partition.fresh_at, now)

    def _is_explained(self, group_id: str, topic_partition: TopicPartition, appended_after: float) -> bool:
        """Whether an observed request explains a commit, or a request of unknown effect may explain the commit."""
        offsets = self._cache.group_offsets(group_id)
        if offsets is not None and (topic_partition in offsets.committed.wire_offsets or offsets.has_unknown_changes):
            return True
        return self._may_be_explained(group_id, appended_after)

    def _may_be_explained(self, group_id: str, appended_after: float) -> bool:
        unread_until = self._cache.unread_writes.until_of(group_id)
        return unread_until >= appended_after or self._exclusivity.may_be_explained(group_id, appended_after)

    def judge_members(self, group_id: str, facts: Iterable[Fact], partition: Partition, now: float) -> None:
        """Judges the members that the log shows as new members of a KIP-848 group."""
        if not partition.log.keeps_commit_keys or (group := self._cache.group(group_id)) is None:
            return
        if (view := group.consumer) is None or view.kind is not GroupKind.CONSUMER:
            return
        joined = {fact.member_id for fact in facts if isinstance(fact, MemberJoined)}
        if not joined:
            return
        classic = {member.member_id for member in view.members if member.classic}
        for member_id in joined - classic:
            self._exclusivity.add_unexplained(group_id, member_id, partition.fresh_at, now)

    def due(self, now: float) -> list[Fact]:
        """Returns the facts about the records that no request has explained in time."""
        facts: list[Fact] = []
        for record in self._exclusivity.take_due(now):
            if not self._may_be_explained(record.group_id, record.appended_after):
                facts += self._concluded(record, now)
        return facts

    def _concluded(self, record: UnexplainedRecord, now: float) -> list[Fact]:
        group_id, subject = record.group_id, record.subject
        if not isinstance(subject, str):
            self._exclusivity.record_bypass(subject, now)
            topic, partition = subject
            return [ClientBypassed(group_id=group_id, at=now, topic=topic, partition=partition)]
        group = self._cache.group(group_id)
        member = group.members.get(subject) if group is not None else None
        if member is None or member.since > record.at or not _is_unseen(member):
            return []  # Requests of the member were seen, its session has expired, or the log was loaded again.
        self._exclusivity.record_bypass(subject, now)
        return [ClientBypassed(group_id=group_id, at=now, member=member.info)]

    # Descriptions.

    def described(self, event: GroupDescribed, now: float) -> list[Fact]:
        """Judges the members of a classic group that the broker has described. Call before the event is applied."""
        group = self._cache.group(event.group_id)
        if not self._exclusivity.stated or group is None or event.state is not GroupState.STABLE or group.joins:
            return []
        if self._may_be_explained(event.group_id, event.sent_at):
            return []
        here = {**group.overdue, **group.members}
        unseen = {
            each.member_id: here[each.member_id]
            for each in event.members
            if each.member_id in here and not here[each.member_id].seen_on_wire
        }
        facts: list[Fact] = []
        for logged in logged_members(group) if unseen else ():
            member = unseen.get(logged.member_id)
            if member is None or not self._must_be_gone(group, member, logged, event.sent_at):
                continue
            self._exclusivity.record_bypass(member.member_id, now, is_new=not member.bypasses)
            if not member.bypasses:
                facts.append(ClientBypassed(group_id=group.group_id, at=now, member=_info(logged)))
            member.note_bypass()
        return facts

    def _must_be_gone(self, group: Group, member: Member, logged: MemberMetadata, at: float) -> bool:
        """Whether the broker must have removed a member without requests, before the time `at`.

        The first call for a generation, or after the broker may have restarted, only sets `silent_since`. The member
        was in the same Stable generation then, so its session had begun by then.
        """
        generation, since = member.silent_since
        began_at = max(group.leader_term.began_at, self._exclusivity.connection_lost_at)
        if generation != group.generation or since <= began_at:
            member.note_silence(group.generation, at)
            return False
        return at > since + SESSIONS * logged.session_timeout / 1000


def _is_unseen(member: Member | None) -> bool:
    """Whether no request of a known KIP-848 member was seen. The copy knows the host of a member that asked to join."""
    return member is not None and not member.seen_on_wire and not member.true_host


def _info(logged: MemberMetadata) -> MemberInfo:
    return MemberInfo(
        member_id=logged.member_id,
        client_id=logged.client_id,
        client_host=logged.client_host,
        instance_id=logged.group_instance_id,
    )
