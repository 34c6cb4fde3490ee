"""Cases in which one step concerns all members of a large group, and a count of the instructions of that step.

Each case prepares a group, yields, performs the step, yields again, and checks the result. Run as a program, the module
prints JSON: for each case, the bytecode instructions of the step with `FEW` and with `MANY` members. Instructions can
be counted only in Python sources, see `tests.as_python`.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

from group_sidecar.codecs.offsets_topic import encode_value
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue, MemberMetadata
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    DescribedMember,
    GroupDescribed,
    JoinAccepted,
    JoiningMember,
    JoinSent,
    LeaveSent,
    MembersLeft,
    MemberUnknown,
    RebalanceSeen,
    ReplyLost,
)
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.coordinator.rules.apply import apply
from group_sidecar.coordinator.rules.internal_events import GenerationLogged
from group_sidecar.coordinator.state.group import Group

FEW, MANY = 250, 1_000
NOW = 1_000.0

Case = Callable[[GroupMetadataManager, int], Iterator[None]]


def knowing_nothing() -> GroupMetadataManager:
    """Returns a manager without groups, for a broker whose clients all use this sidecar."""
    manager = GroupMetadataManager(exclusive=True)
    manager.set_existing_groups(())
    return manager


def member_id(number: int) -> str:
    return f"member-{number}"


def instance_id(number: int) -> str:
    return f"instance-{number}"


def describe(
    manager: GroupMetadataManager, members: int, *, static: bool, state: GroupState = GroupState.STABLE
) -> Group:
    """Applies the broker's description of a group with this number of members. Returns the group."""
    described = tuple(
        DescribedMember(
            member_id=member_id(number),
            instance_id=instance_id(number) if static else None,
            client_id="c",
            client_host="/10.0.0.1",
            metadata=b"",
            assignment=b"",
        )
        for number in range(members)
    )
    manager.apply(
        [
            GroupDescribed(
                group_id="g",
                sent_at=NOW,
                state=state,
                protocol_type="consumer",
                protocol="range",
                members=described,
                as_of=manager.changes_of("g")[0],
            )
        ],
        NOW,
    )
    group = manager.group_metadata_cache["g"]
    assert len(group.members) == members
    return group


def lose(manager: GroupMetadataManager, sent: JoiningMember) -> None:
    """Applies a join whose reply is lost."""
    manager.apply([JoinSent(group_id="g", sent_at=NOW + 1, joining=sent)], NOW + 1)
    manager.apply([ReplyLost(group_id="g", sent_at=NOW + 1, token=sent.token, may_create_group=True)], NOW + 1)


def joining(number: int, *, static: bool = False, member: str = "") -> JoiningMember:
    return JoiningMember(
        token=f"{number}:1",
        member_id=member,
        instance_id=instance_id(number) if static else None,
        client_id="c",
        client_host="/10.0.0.1",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        will_park=True,
        reason="",
    )


def all_leave(manager: GroupMetadataManager, members: int, *, static: bool) -> Iterator[None]:
    group = describe(manager, members, static=static)
    leaving = tuple(("", instance_id(n)) if static else (member_id(n), None) for n in range(members))
    sent = LeaveSent(group_id="g", sent_at=NOW + 1, members=leaving, client_id="c", client_host="/10.0.0.1")
    left = MembersLeft(group_id="g", sent_at=NOW + 1, members=leaving, client_id="c", client_host="/10.0.0.1")
    yield
    manager.apply([sent, left], NOW + 2)
    yield
    assert not group.members


def all_are_unknown_and_their_joins_were_lost(manager: GroupMetadataManager, members: int) -> Iterator[None]:
    group = describe(manager, members, static=False)
    for number in range(members):
        lose(manager, joining(number, member=member_id(number)))
    unknown = [MemberUnknown(group_id="g", sent_at=NOW + 2, member_id=member_id(number)) for number in range(members)]
    yield
    manager.apply(unknown, NOW + 3)
    yield
    assert not group.members
    assert not group.pending_joins.has_lost_joins


def described_while_as_many_joins_were_lost(manager: GroupMetadataManager, members: int) -> Iterator[None]:
    group = describe(manager, members, static=True, state=GroupState.PREPARING_REBALANCE)
    for number in range(members):
        lose(manager, joining(number, member=f"other-{number}"))
    yield
    describe(manager, members, static=True, state=GroupState.PREPARING_REBALANCE)
    yield
    assert len(group.members) == members


def judged_while_as_many_joins_were_lost(manager: GroupMetadataManager, members: int) -> Iterator[None]:
    """Reads the group's occupancy once for each lost join, as a policy does for each join that it judges."""
    for number in range(members):
        lose(manager, joining(number))
    yield
    for _ in range(members):
        manager.refresh("g", NOW + 2)
        manager.view_with_occupancy("g", NOW + 2)
    yield
    assert manager.view_with_occupancy("g", NOW + 2).occupancy.parked == members


def judged_while_as_many_joins_are_unanswered(manager: GroupMetadataManager, members: int) -> Iterator[None]:
    """Reads the group's occupancy once per join that is parked at the broker."""
    for number in range(members):
        manager.apply([JoinSent(group_id="g", sent_at=NOW, joining=joining(number))], NOW)
    yield
    for _ in range(members):
        manager.refresh("g", NOW + 2)
        manager.view_with_occupancy("g", NOW + 2)
    yield
    assert manager.view_with_occupancy("g", NOW + 2).occupancy.parked == members


def leader_gets_roster(manager: GroupMetadataManager, members: int, *, static: bool) -> Iterator[None]:
    group = describe(manager, members, static=static)
    sent = joining(members + 1, member=member_id(0))
    manager.apply([JoinSent(group_id="g", sent_at=NOW + 1, joining=sent)], NOW + 1)
    roster = tuple((f"new-{n}", instance_id(n) if static else None, b"") for n in range(members))
    accepted = JoinAccepted(
        group_id="g",
        sent_at=NOW + 1,
        joining=sent,
        member_id="new-0",
        generation=group.generation + 2,
        protocol_type="consumer",
        protocol="range",
        leader="new-0",
        roster=roster,
    )
    yield
    manager.apply([accepted], NOW + 2)
    yield
    assert set(group.members) == {f"new-{n}" for n in range(members)}


def all_static_members_join_again(manager: GroupMetadataManager, members: int) -> Iterator[None]:
    group = describe(manager, members, static=True)
    joins = [joining(number, static=True) for number in range(members)]
    manager.apply([JoinSent(group_id="g", sent_at=NOW + 1, joining=each) for each in joins], NOW + 1)
    first, generation = member_id(0), group.generation
    seen = RebalanceSeen(group_id="g", sent_at=NOW + 2, member_id=first, generation=generation, is_heartbeat=True)
    yield
    manager.apply([seen], NOW + 3)
    yield
    assert group.rebalance is not None


def log_tells_of_others(manager: GroupMetadataManager, members: int) -> Iterator[None]:
    group = describe(manager, members, static=True)
    logged = tuple(
        MemberMetadata(
            member_id=f"new-{number}",
            group_instance_id=instance_id(number + members // 2),
            client_id="c",
            client_host="/10.0.0.1",
            session_timeout=45_000,
            subscription=b"",
            assignment=b"",
        )
        for number in range(members)
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=group.generation + 2, protocol="range", leader="new-0", members=logged
    )
    raw = encode_value(value, 3)
    yield
    apply(group, GenerationLogged(metadata=raw, is_live=True), NOW + 2)
    yield
    assert set(group.members) == {f"new-{n}" for n in range(members)}


CASES: dict[str, Case] = {
    "all leave": partial(all_leave, static=False),
    "all leave, static": partial(all_leave, static=True),
    "all are unknown": all_are_unknown_and_their_joins_were_lost,
    "described": described_while_as_many_joins_were_lost,
    "judged": judged_while_as_many_joins_were_lost,
    "judged, unanswered": judged_while_as_many_joins_are_unanswered,
    "leader gets roster": partial(leader_gets_roster, static=False),
    "leader gets roster, static": partial(leader_gets_roster, static=True),
    "all join again": all_static_members_join_again,
    "log": log_tells_of_others,
}


def instructions(case: Case, members: int) -> int:
    """Returns the number of bytecode instructions of a case's step in a group with this number of members."""
    counted = 0

    def count(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal counted
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        counted += event == "opcode"
        return count

    running = case(knowing_nothing(), members)
    next(running)
    sys.settrace(count)
    next(running)
    sys.settrace(None)
    return counted


if __name__ == "__main__":
    json.dump({name: [instructions(case, size) for size in (FEW, MANY)] for name, case in CASES.items()}, sys.stdout)
