"""group.max.size in each state of a group, as in Kafka's acceptJoiningMember since 2.6; and group.consumer.max.size."""

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.coordinator.model.views import GroupKind, GroupState, GroupView, Occupancy
from group_sidecar.policies.group_max_size import GroupMaxSize, GroupMaxSizeSettings
from group_sidecar.policies.verdicts import ALLOW, CONFIRM, Refuse, Verdict

LIMIT = 2
STABLE, COMPLETING = GroupState.STABLE, GroupState.COMPLETING_REBALANCE
PREPARING, EMPTY, DEAD = GroupState.PREPARING_REBALANCE, GroupState.EMPTY, GroupState.DEAD
FULL = "The consumer group has reached its maximum capacity of 2 members."


def view(
    state: GroupState, members: str = "", parked: str = "", *, certain: bool = True, kind: GroupKind = GroupKind.CLASSIC
) -> GroupView:
    seats = Occupancy(
        state=state,
        members=tuple(members),
        parked=len(parked),
        is_parked=lambda who, _: bool(who) and who in parked,
        certain=certain,
    )
    return GroupView(group_id="g", kind=kind, state=state, occupancy=seats)


def policy(**settings: Any) -> GroupMaxSize:
    return GroupMaxSize(GroupMaxSizeSettings.model_validate(settings))


def joins(group: GroupView, caller: str, **settings: Any) -> Verdict:
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, member_id=caller, protocol_type="consumer", protocols=()
    )
    return policy(**(settings or {"limit": LIMIT})).judge(join, group, "")


def beats(group: GroupView, caller: str, epoch: int = 0, **settings: Any) -> Verdict:
    heartbeat = ConsumerGroupHeartbeatRequest(group_id="g", member_id=caller, member_epoch=epoch)
    return policy(**(settings or {"consumer_max_size": LIMIT})).judge(heartbeat, group, "")


@pytest.mark.parametrize(
    ("state", "caller", "members", "parked"),
    [
        (EMPTY, "", "", ""),
        (DEAD, "", "", ""),
        (EMPTY, "", "", "xyz"),
        (STABLE, "", "a", ""),
        (STABLE, "a", "ab", ""),
        (STABLE, "a", "abc", ""),
        (COMPLETING, "", "a", ""),
        (COMPLETING, "b", "ab", ""),
        (PREPARING, "", "ab", "a"),
        (PREPARING, "a", "abc", "ab"),
        (PREPARING, "z", "abc", "abz"),
        (PREPARING, "c", "abc", "a"),
    ],
)
def test_allowed_joins(state: GroupState, caller: str, members: str, parked: str) -> None:
    """A join is allowed if the group has room or the caller already counts, as in Kafka."""
    assert joins(view(state, members, parked), caller) is ALLOW


@pytest.mark.parametrize(
    ("state", "caller", "members", "parked", "size", "remove"),
    [
        (STABLE, "", "ab", "", 2, ""),
        (STABLE, "z", "ab", "", 2, ""),
        (STABLE, "", "abc", "", 3, ""),
        (COMPLETING, "", "ab", "", 2, ""),
        (COMPLETING, "z", "abc", "", 3, ""),
        (PREPARING, "", "a", "ab", 2, ""),
        (PREPARING, "c", "abc", "ab", 2, "c"),
        (PREPARING, "z", "abc", "abc", 3, "z"),
    ],
)
def test_refused_joins(state: GroupState, caller: str, members: str, parked: str, size: int, remove: str) -> None:
    """A join beyond the limit is refused with the group's size, and the member to remove, as in Kafka."""
    verdict = joins(view(state, members, parked), caller)
    assert verdict == Refuse(error_code=77, size=size, limit=LIMIT, message=FULL, remove=remove)


@pytest.mark.parametrize(
    ("state", "caller", "members", "parked", "verdict"),
    [
        (DEAD, "", "", "", CONFIRM),
        (EMPTY, "", "", "", CONFIRM),
        (STABLE, "", "", "", CONFIRM),
        (STABLE, "", "ab", "", CONFIRM),
        (STABLE, "a", "ab", "", ALLOW),
        (COMPLETING, "z", "ab", "", CONFIRM),
        (PREPARING, "", "", "", CONFIRM),
        (PREPARING, "", "", "ab", CONFIRM),
        (PREPARING, "a", "", "ab", ALLOW),
    ],
)
def test_uncertain_join_is_confirmed(
    state: GroupState, caller: str, members: str, parked: str, verdict: Verdict
) -> None:
    """A join is confirmed with the broker if the group's size is uncertain and the caller is unknown."""
    assert joins(view(state, members, parked, certain=False), caller) is verdict


@pytest.mark.parametrize(("caller", "members", "is_refused"), [("", "ab", True), ("", "a", False), ("b", "ab", False)])
def test_join_while_rebalance_is_uncertain(caller: str, members: str, is_refused: bool) -> None:
    """While only lost joins may begin a rebalance, a new member needs room among the members too."""
    group = view(PREPARING, members, "a")
    group = replace(group, occupancy=replace(group.occupancy, may_be_settled=True))
    refusal = Refuse(error_code=77, size=2, limit=LIMIT, message=FULL, remove="")
    assert joins(group, caller) == (refusal if is_refused else ALLOW)


def test_configured_error_code() -> None:
    """A refusal has the configured error code, which is 77 by default."""
    for settings, error_code in (({}, 77), ({"error_code": 81}, 81), ({"error_code": "81"}, 81)):
        verdict = joins(view(STABLE, "a"), "", limit=1, **settings)
        assert isinstance(verdict, Refuse)
        assert verdict.error_code == error_code
    assert policy(limit=1).error_codes == {77, 81}


# Consumer groups.


@pytest.mark.parametrize("kind", [GroupKind.CLASSIC, GroupKind.CONSUMER])
@pytest.mark.parametrize(
    ("caller", "epoch", "members", "refused"),
    [
        ("", 0, "ab", True),
        ("z", 0, "ab", True),
        ("z", 5, "abc", True),
        ("z", 0, "a", False),
        ("a", 0, "ab", False),
        ("a", 5, "abc", False),
        ("z", -1, "ab", False),
        ("z", -2, "ab", False),
    ],
)
def test_consumer_heartbeat_limit(kind: GroupKind, caller: str, epoch: int, members: str, refused: bool) -> None:
    """A consumer group heartbeat of an unknown member is refused at the limit. Members and departures are allowed."""
    verdict = beats(view(STABLE, members, kind=kind), caller, epoch)
    size = len(members)
    assert verdict == (Refuse(error_code=81, size=size, limit=LIMIT, message=FULL) if refused else ALLOW)


def test_uncertain_consumer_group() -> None:
    """In an uncertain consumer group, the policy refuses only new members. In a classic group, it asks for
    confirmation.
    """
    unread = view(STABLE, "ab", certain=False, kind=GroupKind.CONSUMER)
    assert isinstance(beats(unread, "z"), Refuse), "the observed members alone reach the limit"
    assert beats(unread, "z", 5) is ALLOW, "the member may have joined unobserved"
    assert beats(view(STABLE, "ab", certain=False), "z") is CONFIRM, "the broker can describe a classic group"


def test_classic_member_uses_consumer_limit() -> None:
    """A classic member of a consumer group is judged by the consumer group's limit."""
    group = view(STABLE, "ab", kind=GroupKind.CONSUMER)
    assert joins(group, "", limit=1, consumer_max_size=3) is ALLOW
    assert joins(group, "a", limit=1, consumer_max_size=2) is ALLOW
    verdict = joins(group, "", limit=9, consumer_max_size=2)
    assert verdict == Refuse(error_code=77, size=2, limit=2, message=FULL)


def test_limit_per_protocol() -> None:
    """Each protocol has a limit of its own, and share groups have none."""
    assert beats(view(STABLE, "abc", kind=GroupKind.CONSUMER), "", limit=1) is ALLOW
    assert joins(view(STABLE, "abc"), "", consumer_max_size=1) is ALLOW
    assert joins(view(STABLE, "abc", kind=GroupKind.SHARE), "", limit=1, consumer_max_size=1) is ALLOW


# Limits of single groups.

OVERRIDES = [
    {"group": "billing", "limit": 5},
    {"pattern": "etl-.*", "limit": 9, "consumer_max_size": 8},
    {"pattern": "etl-free", "limit": 1},
    {"pattern": ".*-free", "limit": None},
]


@pytest.mark.parametrize(
    ("group_id", "limits"),
    [
        ("billing", (5, 3)),
        ("billing2", (2, 3)),
        ("etl-", (9, 8)),
        ("etl-free", (9, 8)),
        ("an-etl-1", (2, 3)),
        ("so-free", (None, 3)),
        ("", (2, 3)),
    ],
)
def test_first_matching_override_counts(group_id: str, limits: tuple[int | None, int | None]) -> None:
    """The first override that matches the group id and sets the limit determines it."""
    rules = policy(limit=2, consumer_max_size=3, overrides=OVERRIDES)
    assert rules.limits(group_id) == limits
    for kind, limit in zip((GroupKind.CLASSIC, GroupKind.CONSUMER), limits, strict=True):
        assert rules.max_members(GroupView(group_id=group_id, kind=kind)) == limit
    assert rules.max_members(GroupView(group_id=group_id, kind=GroupKind.STREAMS)) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"limit": 0},
        {"limit": -1},
        {"consumer_max_size": 0},
        {},
        {"limit": 1, "error_code": 78},
        {"limit": 1, "overrides": [{"limit": 1}]},
        {"limit": 1, "overrides": [{"group": "g"}]},
        {"limit": 1, "overrides": [{"group": "g", "pattern": "g", "limit": 1}]},
        {"limit": 1, "overrides": [{"pattern": "(", "limit": 1}]},
        {"limit": 1, "overrides": [{"group": "g", "limit": 0}]},
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any]) -> None:
    """Invalid settings of the policy raise ValidationError."""
    with pytest.raises(ValidationError):
        policy(**settings)


def test_replaced_policy_is_freed_without_collector() -> None:
    """A reload replaces the policy. The old one and its cached limits are freed at once, without the cyclic collector,
    which never frees a frozen cycle. `python -m tests.soak` found that each reload kept up to 1,000 group ids.
    """
    old = policy(limit=LIMIT)
    assert old.limits("group").classic == LIMIT
    freed = weakref.ref(old)
    gc.disable()
    try:
        del old
        assert freed() is None
    finally:
        gc.enable()
