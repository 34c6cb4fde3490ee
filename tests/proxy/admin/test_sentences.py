"""The sentences about the events of a group."""

from pathlib import Path
from typing import Any

import pytest

from group_sidecar.coordinator.model.facts import Departure, RebalanceCause
from group_sidecar.proxy.admin import sentences
from group_sidecar.proxy.admin.sentences import UserText

WHO = {"member_id": "m-1", "client_id": "orders-1", "client_host": "/10.0.0.7", "instance_id": None}
DONE = {"what": "rebalance_completed", "generation": 7, "members": 3}


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ({"what": "member_joined", **WHO, "said": ""}, "orders-1 at 10.0.0.7 joined"),
        ({"what": "member_joined", **WHO, "instance_id": "i-1"}, "orders-1 at 10.0.0.7 joined as instance i-1"),
        ({"what": "member_gone", **WHO, "how": "left", "said": "closed"}, "orders-1 at 10.0.0.7 left, saying “closed”"),
        ({"what": "member_gone", **WHO, "how": "kicked"}, "orders-1 at 10.0.0.7 was removed by an admin"),
        (
            {"what": "member_gone", **WHO, "how": "dropped"},
            "orders-1 at 10.0.0.7 was dropped: the broker continued without it",
        ),
        ({"what": "member_gone", **WHO, "how": "vanished"}, "orders-1 at 10.0.0.7 vanished"),
        (
            {"what": "rebalance_started", "cause": "session_expired", "by": WHO, "said": ""},
            "Rebalance began: orders-1 at 10.0.0.7 was not heard of within its session timeout",
        ),
        ({"what": "rebalance_started", "cause": "new_member", "by": None}, "Rebalance began: a member joined"),
        ({"what": "rebalance_started", "reason": "join"}, "Rebalance began: its cause was not seen"),
        (
            {"what": "member_joined", **WHO, "said": "need to re-join with the given member-id: orders-1-a"},
            "orders-1 at 10.0.0.7 joined",
        ),
        (
            {**DONE, "cause": "topic_metadata"},
            "Generation 7 of 3 members: topics changed, or a member lost its metadata",
        ),
        (
            {"what": "rebalance_started", "cause": "topic_metadata", "by": WHO},
            "Rebalance began: orders-1 at 10.0.0.7 saw topics change, or lost its metadata",
        ),
        (
            {
                **DONE,
                "cause": "new_member",
                "by": WHO,
                "said": "rebalance",
                "duration_seconds": 2.5,
                "joined": 1,
                "gone": 2,
                "moved_partitions": 0,
                "slowest": {**WHO, "client_id": "slow", "seconds": 0.04},
            },
            (
                "Generation 7 of 3 members after 2.5 s: orders-1 at 10.0.0.7 joined, saying “rebalance”; 1 member "
                "came, 2 members went; 0 partitions moved; the last to join was slow at 10.0.0.7, 40 ms after the first"
            ),
        ),
        (
            {"what": "offsets_committed", "accepted": 2, "refused": [{"error": "UNKNOWN_MEMBER_ID", "partitions": 1}]},
            "Commit refused: UNKNOWN_MEMBER_ID for 1 partition; 2 partitions accepted",
        ),
        (
            {
                "at": "2026-01-01T00:00:30.000Z",
                "what": "offsets_committed",
                "accepted": 0,
                "refused": [{"error": "ILLEGAL_GENERATION", "partitions": 36}],
                "by": WHO,
                "count": 12,
                "first_at": "2026-01-01T00:00:00.000Z",
            },
            "orders-1 at 10.0.0.7 could not commit 12 times in 30 s: ILLEGAL_GENERATION for 36 partitions",
        ),
        (
            {"what": "client_refused", **WHO, "policy": "p", "error": "GROUP_MAX_SIZE_REACHED", "size": 9, "limit": 8},
            "orders-1 at 10.0.0.7 was refused with GROUP_MAX_SIZE_REACHED by p, 9 of 8",
        ),
        (
            {"what": "client_audited", **WHO, "policy": "p", "error": "E", "size": 2000, "limit": 1000},
            "orders-1 at 10.0.0.7 would have been refused with E by p, 2,000 of 1,000",
        ),
        ({"what": "something_else"}, "something else"),
    ],
)
def test_event_sentences(cell: dict[str, Any], sentence: str) -> None:
    """Each kind of event has its sentence in plain text."""
    assert sentences.plain(sentences.event(cell)) == sentence


def test_user_text_is_marked() -> None:
    """Names and texts that clients chose are marked as user text."""
    cell = {"what": "member_joined", **WHO, "client_id": "and then", "instance_id": "i", "said": "why"}
    assert [part for part in sentences.event(cell) if isinstance(part, UserText)] == [
        "and then",
        "10.0.0.7",
        "i",
        "why",
    ]


@pytest.mark.parametrize(
    ("who", "name"),
    [
        (None, "somebody"),
        (WHO, "orders-1 at 10.0.0.7"),
        ({**WHO, "principal": ""}, "orders-1 at 10.0.0.7"),
        ({**WHO, "principal": "User:CN=alice"}, "orders-1 at 10.0.0.7 as User:CN=alice"),
        ({**WHO, "client_id": ""}, "m-1 at 10.0.0.7"),
        ({"client_id": "", "instance_id": "i", "client_host": ""}, "i"),
        ({}, "a client without a name"),
    ],
)
def test_client_names(who: dict[str, Any] | None, name: str) -> None:
    """A client is named by its client id, instance id or member id, its host and its principal."""
    assert sentences.plain(sentences.client(who)) == name


@pytest.mark.parametrize("by", [None, WHO])
@pytest.mark.parametrize("cause", list(RebalanceCause))
def test_every_cause_has_words(cause: RebalanceCause, by: dict[str, Any] | None) -> None:
    """Every rebalance cause has a sentence and a label."""
    sentence = sentences.plain(sentences.event({"what": "rebalance_started", "cause": cause, "by": by}))
    assert cause is RebalanceCause.UNKNOWN or "not seen" not in sentence
    assert cause in sentences.CAUSE_LABELS


@pytest.mark.parametrize("how", list(Departure))
def test_every_departure_has_words(how: Departure) -> None:
    """Every kind of departure has a sentence of its own."""
    sentence = sentences.plain(sentences.event({"what": "member_gone", **WHO, "how": how}))
    assert how is Departure.LEFT or sentence != f"orders-1 at 10.0.0.7 {how}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "40 ms"),
        (1, "1 s"),
        (2.46, "2.5 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (86400 * 3 + 4 * 3600, "3 d 4 h"),
    ],
)
def test_duration_text(seconds: float, text: str) -> None:
    """Durations are written with at most two units."""
    assert sentences.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "now"), (0.4, "now"), (40, "40 s ago"), (3599, "59 min ago"), (7200, "2 h ago"), (172800, "2 d ago")],
)
def test_age_text(seconds: float, text: str) -> None:
    """Ages are written as now or with one unit and the word ago."""
    assert sentences.ago(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(1536, "1.5 KiB"), (1 << 20, "1 MiB"), (5 << 40, "5,120 GiB")])
def test_sizes(number: int, text: str) -> None:
    assert sentences.size(number) == text


@pytest.mark.parametrize("how", Departure)
def test_departures_are_documented(how: Departure) -> None:
    """The operations page explains each departure by the text of the timeline."""
    sentence = sentences.plain(sentences.event({"what": "member_gone", **WHO, "how": how, "said": ""}))
    text = sentence.removeprefix("orders-1 at 10.0.0.7 ")
    assert f"| {text} | `{how}` |" in Path("docs/operations.md").read_text("utf-8")
