"""Which facts become lines, what these say, and how many there are."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from group_sidecar.coordinator.facts import (
    ClientRefused,
    CoordinatorMoved,
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
    Slowest,
    Who,
)
from group_sidecar.proxy.logs import Recurring
from group_sidecar.proxy.narrating import Narrator

CLIENT = {"client_id": "consumer-3", "client_host": "/10.0.0.7"}
NAMED = "consumer-3 at 10.0.0.7"


def rebalanced(group: str = "billing", cause: RebalanceCause = RebalanceCause.SESSION_EXPIRED) -> RebalanceCompleted:
    return RebalanceCompleted(
        group_id=group,
        at=1.0,
        cause=cause,
        by=Who(member_id="m-3", **CLIENT),
        generation=7,
        protocol="range",
        members=2,
        duration_seconds=1.23456,
        slowest=Slowest(member_id="m-4", client_id="consumer-4", client_host="/10.0.0.8", seconds=1.0),
        moved_partitions=0,
    )


def refused(*, enforced: bool = True) -> ClientRefused:
    return ClientRefused(
        group_id="billing",
        at=1.0,
        policy="group_max_size",
        error_code=81,
        **CLIENT,
        size=5,
        limit=5,
        enforced=enforced,
    )


def gone(how: Departure) -> MemberGone:
    return MemberGone(group_id="billing", at=1.0, member_id="m-3", **CLIENT, how=how)


def said(*facts: Fact) -> list[dict[str, Any]]:
    narrator = Narrator(Recurring(30, lambda: 0.0))
    with capture_logs() as lines:
        for fact in facts:
            narrator.observe(fact)
    return [dict(line) for line in lines]


def test_a_rebalance_says_why_and_who() -> None:
    assert said(rebalanced()) == [
        {
            "event": "group rebalanced",
            "log_level": "info",
            "group": "billing",
            "cause": "session_expired",
            "by": NAMED,
            "generation": 7,
            "members": 2,
            "seconds": 1.235,
            "slowest": "consumer-4 at 10.0.0.8",
            "moved_partitions": 0,
            "times": 1,
        }
    ]


def test_what_is_not_known_is_left_out() -> None:
    fact = RebalanceCompleted(
        group_id="g", at=1.0, cause=RebalanceCause.UNKNOWN, generation=1, protocol="", members=1, duration_seconds=0.0
    )
    [line] = said(fact)
    assert not line.keys() & {"by", "said", "slowest", "moved_partitions"}


@pytest.mark.parametrize(
    ("fact", "event", "level"),
    [
        (gone(Departure.EXPIRED), "a member's session expired", "warning"),
        (gone(Departure.DROPPED), "a member did not join or sync in time", "warning"),
        (gone(Departure.KICKED), "a member was removed by somebody else", "warning"),
        (refused(), "a client was refused", "warning"),
        (refused(enforced=False), "a client would have been refused", "warning"),
        (
            OffsetsCommitted(group_id="billing", at=1.0, accepted=2, refused=((22, 3),)),
            "offsets were not committed",
            "warning",
        ),
        (CoordinatorMoved(group_id="billing", at=1.0), "the group's coordinator has moved", "info"),
    ],
)
def test_what_somebody_may_have_to_look_at_is_a_line(fact: Fact, event: str, level: str) -> None:
    [line] = said(fact)
    assert (line["event"], line["log_level"], line["group"]) == (event, level, "billing")
    if "client" in line:
        assert line["client"] == NAMED


def test_what_is_as_it_should_be_is_none() -> None:
    joined = MemberJoined(group_id="billing", at=1.0, member_id="m-3", **CLIENT)
    started = RebalanceStarted(group_id="billing", at=1.0, cause=RebalanceCause.NEW_MEMBER)
    committed = OffsetsCommitted(group_id="billing", at=1.0, accepted=2)
    assert said(joined, started, committed, gone(Departure.LEFT), gone(Departure.FENCED)) == []


def test_errors_of_commits_have_their_names() -> None:
    lines = said(OffsetsCommitted(group_id="billing", at=1.0, accepted=0, refused=((22, 3), (12, 1))))
    assert [(line["error"], line["partitions"]) for line in lines] == [
        ("ILLEGAL_GENERATION", 3),
        ("OFFSET_METADATA_TOO_LARGE", 1),
    ]


def test_a_group_in_a_loop_is_a_line_for_each_cause() -> None:
    left = RebalanceCause.MEMBER_LEFT
    lines = said(*[rebalanced()] * 50, *[rebalanced(cause=left)] * 50, rebalanced("shipping"), *[refused()] * 50)
    assert [(line["event"], line["group"], line.get("cause")) for line in lines] == [
        ("group rebalanced", "billing", "session_expired"),
        ("group rebalanced", "billing", "member_left"),
        ("group rebalanced", "shipping", "session_expired"),
        ("a client was refused", "billing", None),
    ]


def test_a_later_line_says_how_many_it_stands_for() -> None:
    now = 0.0
    narrator = Narrator(Recurring(30, lambda: now))
    with capture_logs() as lines:
        for _ in range(4):
            narrator.observe(refused())
        now = 30.0
        narrator.observe(refused())
    assert [line["times"] for line in lines] == [1, 4]
