"""Tests which facts are logged, the text of the lines, and how many there are."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from group_sidecar.coordinator.model.facts import (
    ClientBypassed,
    ClientRefused,
    CoordinatorMoved,
    Departure,
    Fact,
    MemberGone,
    MemberInfo,
    MemberJoined,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
    SlowestMember,
)
from group_sidecar.proxy.runtime.event_log import EventLog
from group_sidecar.proxy.runtime.log_throttle import LogThrottle

CLIENT = {"client_id": "consumer-3", "client_host": "/10.0.0.7"}
NAMED = "consumer-3 at 10.0.0.7"


def rebalanced(group: str = "billing", cause: RebalanceCause = RebalanceCause.SESSION_EXPIRED) -> RebalanceCompleted:
    return RebalanceCompleted(
        group_id=group,
        at=1.0,
        cause=cause,
        by=MemberInfo(member_id="m-3", **CLIENT),
        generation=7,
        protocol="range",
        members=2,
        duration_seconds=1.23456,
        slowest=SlowestMember(member_id="m-4", client_id="consumer-4", client_host="/10.0.0.8", seconds=1.0),
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


def log_lines(*facts: Fact) -> list[dict[str, Any]]:
    narrator = EventLog(LogThrottle(30, lambda: 0.0))
    with capture_logs() as lines:
        for fact in facts:
            narrator.observe(fact)
    return [dict(line) for line in lines]


def test_rebalance_line_has_cause_and_member() -> None:
    """The log line of a rebalance contains its cause, the member that caused it, and its figures."""
    assert log_lines(rebalanced()) == [
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


def test_rebalance_line_omits_unknown_fields() -> None:
    """The log line of a rebalance omits unknown fields."""
    fact = RebalanceCompleted(
        group_id="g", at=1.0, cause=RebalanceCause.UNKNOWN, generation=1, protocol="", members=1, duration_seconds=0.0
    )
    [line] = log_lines(fact)
    assert not line.keys() & {"by", "said", "slowest", "moved_partitions"}


@pytest.mark.parametrize(
    ("fact", "event", "level"),
    [
        (gone(Departure.EXPIRED), "a member's session expired", "warning"),
        (gone(Departure.DROPPED), "a member did not join or sync in time, or left unobserved", "warning"),
        (gone(Departure.REMOVED_BY_CLIENT), "a member was removed by somebody else", "warning"),
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
def test_notable_facts_are_logged(fact: Fact, event: str, level: str) -> None:
    """Each notable kind of fact is one log line with its text and level."""
    [line] = log_lines(fact)
    assert (line["event"], line["log_level"], line["group"]) == (event, level, "billing")
    if "client" in line:
        assert line["client"] == NAMED


def test_routine_facts_are_not_logged() -> None:
    """Joins, started rebalances, complete commits and ordinary departures are not logged."""
    joined = MemberJoined(group_id="billing", at=1.0, member_id="m-3", **CLIENT)
    started = RebalanceStarted(group_id="billing", at=1.0, cause=RebalanceCause.NEW_MEMBER)
    committed = OffsetsCommitted(group_id="billing", at=1.0, accepted=2)
    assert log_lines(joined, started, committed, gone(Departure.LEFT), gone(Departure.FENCED)) == []


def test_bypass_is_logged_once_per_group_and_kind() -> None:
    """A client that bypasses the sidecar is logged with what its record shows, once for each group and kind."""
    member = MemberInfo(member_id="m-3", **CLIENT)
    lines = log_lines(
        ClientBypassed(group_id="billing", at=1.0, topic="orders", partition=0),
        ClientBypassed(group_id="billing", at=61.0, topic="orders", partition=1),
        ClientBypassed(group_id="billing", at=61.0, member=member),
        ClientBypassed(group_id="search", at=61.0, member=member),
    )
    assert [(line["event"][:8], line["group"]) for line in lines] == [
        ("a commit", "billing"),
        ("a member", "billing"),
        ("a member", "search"),
    ]
    assert {line["log_level"] for line in lines} == {"warning"}
    assert lines[0]["topic"] == "orders"
    assert (lines[1]["member"], lines[1]["client"]) == ("m-3", NAMED)


def test_commit_errors_have_names() -> None:
    """The log lines of refused commits name each error and its number of partitions."""
    lines = log_lines(OffsetsCommitted(group_id="billing", at=1.0, accepted=0, refused=((22, 3), (12, 1))))
    assert [(line["error"], line["partitions"]) for line in lines] == [
        ("ILLEGAL_GENERATION", 3),
        ("OFFSET_METADATA_TOO_LARGE", 1),
    ]


def test_repeated_facts_are_throttled_per_cause() -> None:
    """Repeated facts of a group are one log line for each cause."""
    left = RebalanceCause.MEMBER_LEFT
    lines = log_lines(*[rebalanced()] * 50, *[rebalanced(cause=left)] * 50, rebalanced("shipping"), *[refused()] * 50)
    assert [(line["event"], line["group"], line.get("cause")) for line in lines] == [
        ("group rebalanced", "billing", "session_expired"),
        ("group rebalanced", "billing", "member_left"),
        ("group rebalanced", "shipping", "session_expired"),
        ("a client was refused", "billing", None),
    ]


def test_throttled_line_has_count() -> None:
    """The next log line after the throttle interval contains the number of facts since the last line."""
    now = 0.0
    narrator = EventLog(LogThrottle(30, lambda: now))
    with capture_logs() as lines:
        for _ in range(4):
            narrator.observe(refused())
        now = 30.0
        narrator.observe(refused())
    assert [line["times"] for line in lines] == [1, 4]
