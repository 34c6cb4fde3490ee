"""The members of one group, and the ids of its former members.

The group's state and generation are in `lifecycle`. Joins without a reply are in `pending_joins`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from group_sidecar.coordinator.model.events import FOREVER, NEVER, DescribedMember, JoiningMember, MemberUnknown
from group_sidecar.coordinator.state.bounded_ids import MAX_ID_LENGTH, MAX_LEFT_MEMBER_IDS, ContestedIds, IssuedIds
from group_sidecar.coordinator.state.member import Leave, Member

StaticMembers = Mapping[str, Sequence[Member]]
"""Members by their instance ids."""


class Roster:
    """The known members of a group.

    Attributes:
        members: members by member id.
        overdue: members whose sessions must have expired, by member id. The broker has most likely removed them. The
            next request of such a member makes it a member again.
        pending: member ids that the broker issued and no client has used yet (KIP-394).
        left_member_ids: ids of members that left during this generation, and issued ids that were given up. Replies in
            flight may still contain them.
        contested: instance ids whose member the broker may have fenced before the copy knew that member. A member with
            such an instance id is uncertain, because it may have taken over the identity of the fenced member.
        pending_leaves: leaves without a reply, by member id.
        may_have_unseen_static: whether the group may have static members that were not observed.
        heartbeat_seconds: how often KIP-848 members send heartbeats; None if the broker has not said so.
    """

    def __init__(self, may_have_unseen_static: bool) -> None:
        self.members: dict[str, Member] = {}
        self.overdue: dict[str, Member] = {}
        self.pending = IssuedIds()
        self.left_member_ids: set[str] = set()
        self.contested = ContestedIds()
        self.pending_leaves: dict[str, Leave] = {}
        self.may_have_unseen_static = may_have_unseen_static
        self.heartbeat_seconds: float | None = None
        self._earliest_timeout: tuple[int, float] = (-1, NEVER)

    # Members join.

    def add_member(
        self, joining: JoiningMember, member_id: str, now: float, generation_at: float, *, syncs: bool
    ) -> Member:
        """Adds a member that the broker accepted into the generation. Returns the member.

        `generation_at` is when the generation was first seen. `syncs` is whether its members have yet to sync.
        """
        member = self.members.get(member_id) or self.overdue.pop(member_id, None)
        if member is None:
            member = self._new_member(member_id, joining.instance_id, now)
        member.update_from_join(joining)
        self._start_timers(member, generation_at, syncs=syncs)
        return member

    def _new_member(self, member_id: str, instance_id: str | None, now: float) -> Member:
        """Returns a new member.

        A new static member is uncertain if it may have taken over the identity of an unobserved member.
        """
        certain = not (instance_id and self.may_have_unseen_static)
        return Member(member_id=member_id, since=now, instance_id=instance_id, certain=certain)

    def _start_timers(self, member: Member, generation_at: float, *, syncs: bool) -> None:
        """Restarts the timers of a member, as the broker does when a generation begins, and adds the member."""
        member.certain = member.certain and member.instance_id not in self.contested
        member.seen_at = max(member.seen_at, generation_at)
        if syncs:
            member.sync_by = generation_at + member.rebalance_timeout_ms / 1000
            member.assignment = b""
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)

    def replace_members(
        self,
        roster: Iterable[tuple[str, str | None, bytes]],
        protocol: str,
        joins: Mapping[str | None, JoiningMember],
        now: float,
        generation_at: float,
        *,
        syncs: bool,
    ) -> tuple[list[Member], list[Member]]:
        """Replaces the members with those in the leader's reply. Returns the added and the removed members.

        `joins` has the joins without a reply by member id, or by instance id if the member has no id yet.
        `generation_at` is when the generation was first seen. `syncs` is whether its members have yet to sync.
        """
        here, before, new = self.members, self.known(), list[Member]()
        static = {member.instance_id: member for member in before.values() if member.instance_id}
        self.members, self.overdue = {}, {}
        for member_id, instance_id, metadata in roster:
            if member_id in self.left_member_ids:
                continue  # The member has left since.
            member = before.get(member_id)
            if member is None:
                old = static.get(instance_id) if instance_id else None
                member = old.successor(member_id, now) if old else self._new_member(member_id, instance_id, now)
                new.append(member)
                if instance_id and member.client_host and (back := joins.get(instance_id)) is not None:
                    # The reply to the member's own join will set the rest.
                    member.see_client(back.client_id, back.client_host, back.principal)
            if (joining := joins.get(member_id)) is not None:
                member.identify(joining.client_id, joining.client_host, joining.principal)
                member.update_from_join(joining)
            member.protocols[protocol] = metadata
            self._start_timers(member, generation_at, syncs=syncs)
        return new, [member for member in here.values() if member.member_id not in self.members]

    def succeed(self, old: Member, joining: JoiningMember, member_id: str, sent_at: float, now: float) -> Member:
        """Returns the static member that joined again under a new member id, updated with the content of its join.

        The caller drops the old member first, and then adds the returned member with `include`.
        """
        new = old.successor(member_id, now)
        new.identify(joining.client_id, joining.client_host, joining.principal)
        new.update_from_join(joining)
        new.seen_at = sent_at
        return new

    def include(self, member: Member) -> None:
        """Adds a member unchanged."""
        self.members[member.member_id] = member

    def restore(self, member_id: str) -> Member | None:
        """Moves an overdue member back to `members`. Returns the member; None if no member with this id is overdue."""
        member = self.overdue.pop(member_id, None)
        if member is not None:
            self.members[member_id] = member
        return member

    def replace(self, members: dict[str, Member]) -> None:
        """Replaces all members. No member is overdue afterwards."""
        self.members, self.overdue = members, {}

    def follow_log(self, members: dict[str, Member]) -> None:
        """Replaces the members with the members of a KIP-848 group that the log contains."""
        self.members = members

    def adopt_description(self, members: Iterable[DescribedMember], protocol: str, now: float) -> None:
        """Replaces the members with those that the broker described.

        Known members keep everything that the description does not contain. A broker that has restarted may have
        members again that had left, because the log contains no leaves.
        """
        before = self.known()
        self.members, self.overdue = {}, {}
        for described in members:
            member = before.get(described.member_id)
            if member is None:
                # The description does not contain the time of the last request.
                member = Member(member_id=described.member_id, since=now, instance_id=described.instance_id)
            member.learn_instance_id(described.instance_id)
            member.adopt_description(described.client_id, described.client_host)
            member.assignment = described.assignment
            if protocol:
                member.learn_metadata(protocol, described.metadata)
            self.members[described.member_id] = member
            self.left_member_ids.discard(described.member_id)

    def adopt_former(self, reported_gone: Mapping[str, float]) -> None:
        """Marks the members that were reported as gone at these times, unless their requests were seen since then."""
        for member_id, at in reported_gone.items():
            if (member := self.members.get(member_id)) is not None and not member.seen_on_wire:
                member.note_gone(at)

    def note_seen_before(self, member_ids: Iterable[str]) -> None:
        """Notes that requests of these members were seen before the copy forgot the group's state."""
        for member_id in member_ids:
            if (member := self.members.get(member_id)) is not None:
                member.note_seen_before()

    def forget_metadata(self) -> None:
        """Forgets the metadata of all members, who may have joined a new generation with other metadata."""
        for member in (*self.members.values(), *self.overdue.values()):
            member.forget_metadata()

    def complete(self) -> None:
        """Notes that no static member is unobserved."""
        self.may_have_unseen_static = False

    # Members send requests.

    def record_activity(self, member: Member, sent_at: float) -> None:
        """Resets the session timer of a member, because a request of the member was seen."""
        member.seen_on_wire = True
        if member.seen_at < sent_at:
            member.seen_at = sent_at

    def note_heartbeat_interval(self, seconds: float | None) -> None:
        """Notes how often the broker expects heartbeats of KIP-848 members; None if the group is classic now."""
        self.heartbeat_seconds = seconds

    def begin_sessions(self, now: float) -> None:
        """Restarts the session timers of all members."""
        for member in self.members.values():
            member.seen_at = max(member.seen_at, now)

    def sync(self, member: Member, sent_at: float, stable_at: float) -> None:
        """Ends the sync deadline of a member that has synced.

        A sync that was sent before the generation was stable waited for the leader's sync. The broker answers such a
        sync when the generation becomes stable, so the member's session timer restarts at that time.
        """
        member.sync_by, member.seen_on_wire = FOREVER, True
        if sent_at <= stable_at:
            member.seen_at = max(member.seen_at, stable_at)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Sets the assignments of all members to those in the leader's sync."""
        for each in self.members.values():
            each.assignment = assignments.get(each.member_id, b"")

    def earliest_timeout(self, changes: int, now: float, *, log_shows_sessions: bool = False) -> float:
        """Returns a time before which no timer of a member expires. `changes` is the number of the group's last change.

        The result is cached until the next change, because requests only move timers to later times.
        `log_shows_sessions`: leave out members of unknown session timeout, because the log shows when they are gone.
        """
        if self._earliest_timeout[0] != changes or now > self._earliest_timeout[1]:
            members = self.members.values()
            timed = [each for each in members if not log_shows_sessions or each.session_timeout_ms is not None]
            until = min((member.earliest_timeout for member in timed), default=FOREVER)
            self._earliest_timeout = changes, until
        return self._earliest_timeout[1]

    # Members leave.

    def has_expired(self, member: Member, now: float, began_at: float) -> bool:
        """Whether a member that the broker has removed was silent until its session ended.

        The broker does not tell the session timeout of KIP-848 members. `began_at`: see `Member.session_expired`.
        """
        if member.session_timeout_ms is None and self.heartbeat_seconds is not None:
            return member.missed_heartbeat(now, self.heartbeat_seconds)
        return member.session_expired(now, began_at)

    def note_leave(self, member_id: str, leave: Leave) -> None:
        """Keeps a leave that was requested by the member or by another client, until the reply is seen."""
        self.pending_leaves[member_id] = leave

    def take_leave(self, member_id: str) -> Leave | None:
        """Returns the pending leave of a member and forgets it; None if there is none."""
        return self.pending_leaves.pop(member_id, None)

    def set_aside(self, members: Iterable[Member]) -> None:
        """Moves members whose sessions must have expired to `overdue`."""
        for member in members:
            self.overdue[member.member_id] = self.members.pop(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Removes a member, which may be overdue or pending. Returns the member; None if it was not known."""
        self.pending.discard(member_id)
        self.pending_leaves.pop(member_id, None)
        return self.members.pop(member_id, None) or self.overdue.pop(member_id, None)

    def record_departure(self, member_id: str) -> bool:
        """Keeps the id of a member that has left. Returns False if there is no room for the id."""
        if len(self.left_member_ids) < MAX_LEFT_MEMBER_IDS and len(member_id) <= MAX_ID_LENGTH:
            self.left_member_ids.add(member_id)
        return member_id in self.left_member_ids

    def retain_left_ids(self, ids: Iterable[str]) -> None:
        """Forgets the ids of members that have left, except the given ids."""
        self.left_member_ids.intersection_update(ids)

    def forget_departure(self, member_id: str) -> None:
        """Forgets that a member with this id has left, because a member joins under this id.

        Clients of KIP-848 groups choose their own member ids and may use one again.
        """
        self.left_member_ids.discard(member_id)
        self.pending_leaves.pop(member_id, None)

    def contest(self, instance_id: str, static: StaticMembers | None = None) -> None:
        """Notes that a member unknown to the copy may have used this instance id.

        The known member with this instance id is no longer certain. `static` may have the static members by instance
        id, for a faster search.
        """
        self.contested.add(instance_id)
        if (member := self.members.get(self.member_id_of_instance(instance_id, static))) is not None:
            member.certain = False

    def doubt_client_ids(self) -> None:
        """Notes that the broker may have other client ids for the members."""
        for member in self.known().values():
            member.certain = False

    # Look-ups.

    def may_still_have(self, event: MemberUnknown) -> bool:
        """Whether the broker may have the member to whose request it replied UNKNOWN_MEMBER_ID.

        Kafka replies so to an instance id that no member uses, even if the member id is right. It also does so if a
        member id that it has issued is used before the join (`ClassicGroup.validateMember`), and keeps the id.
        """
        member = self.members.get(event.member_id) or self.overdue.get(event.member_id)
        if member is None:
            return event.member_id in self.pending and not event.is_join
        return event.instance_id is not None and event.instance_id != member.instance_id

    def known(self) -> dict[str, Member]:
        """Returns all members by member id, including the overdue members."""
        return {**self.overdue, **self.members}

    def static_members(self) -> StaticMembers:
        """Returns the static members by their instance ids, for a caller that looks up many of them."""
        found: dict[str, list[Member]] = {}
        for member in (*self.members.values(), *self.overdue.values()):
            if member.instance_id:
                found.setdefault(member.instance_id, []).append(member)
        return found

    def _members_of_instance(self, instance_id: str, static: StaticMembers | None) -> Collection[Member]:
        """Returns the members with this instance id. Some members in `static` may have been removed meanwhile."""
        if static is None:
            return [m for m in (*self.members.values(), *self.overdue.values()) if m.instance_id == instance_id]
        known = static.get(instance_id, ())
        return [m for m in known if m.member_id in self.members or m.member_id in self.overdue]

    def predecessor(
        self, instance_id: str | None, member_id: str, static: StaticMembers | None = None
    ) -> Member | None:
        """Returns the member with the same instance id and another member id (KIP-345); None if there is none.

        `static` makes the search faster. It is a result of `static_members`, from a call after the last member joined.
        """
        if instance_id is None:
            return None
        return next((m for m in self._members_of_instance(instance_id, static) if m.member_id != member_id), None)

    def member_id_of_instance(self, instance_id: str | None, static: StaticMembers | None = None) -> str:
        """Returns the member id for an instance id; empty if there is none. `static` makes the search faster."""
        namesakes = self._members_of_instance(instance_id, static) if instance_id else ()
        return next((member.member_id for member in namesakes), "")
