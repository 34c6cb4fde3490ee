"""The summary of a timeline, and its sentences."""

from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.coordinator.model.facts import (
    ClientRefused,
    Departure,
    Fact,
    MemberGone,
    MemberInfo,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceCompleted,
    SlowestMember,
)
from group_sidecar.metrics.flight_recorder import FlightRecorder, timeline_entry
from group_sidecar.metrics.rebalance_explanation import why
from group_sidecar.metrics.refusal_totals import MAX_RUNS_PER_GROUP

HOUR = 3600.0
THREE = MemberInfo(member_id="m3", client_id="consumer-3", client_host="/10.0.0.7")
FOUR = MemberInfo(member_id="m4", client_id="consumer-4", client_host="/10.0.0.8", instance_id="four")
POLL = "consumer poll timeout has expired."
MAX_POLL = "consumer-3 at 10.0.0.7 did not poll within max.poll.interval.ms"


def completed(
    cause: RebalanceCause, by: MemberInfo | None = THREE, at: float = 10.0, **fields: Any
) -> RebalanceCompleted:
    usual: dict[str, Any] = {"said": "", "generation": 1, "protocol": "range", "members": 2, "duration_seconds": 0.5}
    return RebalanceCompleted(group_id="g", at=at, cause=cause, by=by, **(usual | fields))


def gone(how: Departure, at: float = 9.0) -> MemberGone:
    return MemberGone(group_id="g", at=at, member_id="m3", client_id="consumer-3", client_host="/10.0.0.7", how=how)


def answer(*facts: Fact, since: float = 0.0, until: float = HOUR) -> dict[str, Any]:
    return why([timeline_entry(fact) for fact in facts], since, until)


def test_quiet_group() -> None:
    """A group without facts has a summary without rebalances and empty figures."""
    assert answer() == {
        "since": "1970-01-01T00:00:00.000Z",
        "until": "1970-01-01T01:00:00.000Z",
        "rebalances": 0,
        "summary": "Has not rebalanced in the last hour.",
        "causes": [],
        "rebalancing_seconds": 0,
        "longest_seconds": 0.0,
        "slowest": None,
        "refusals": 0,
        "refused": [],
        "failed_commits": 0,
        "at_least": [],
    }


def test_repeated_cause_is_grouped() -> None:
    """Rebalances with the same cause and client form one cause with a count."""
    left = [completed(RebalanceCause.MEMBER_LEFT, said=POLL, at=float(at)) for at in range(5)]
    came = [completed(RebalanceCause.NEW_MEMBER, by=FOUR, at=20.0 + at) for at in range(2)]
    found = answer(*left, *came)
    assert found["summary"] == (
        f"Rebalanced 7 times in the last hour: 5 times because {MAX_POLL}, "
        "twice because a new member joined (consumer-4 (four) at 10.0.0.8)."
    )
    assert found["causes"] == [
        {
            "cause": "member_left",
            "reason": "leave",
            "count": 5,
            "by": {"client_id": "consumer-3", "client_host": "/10.0.0.7", "instance_id": None, "principal": ""},
            "said": POLL,
            "sentence": f"5 times because {MAX_POLL}.",
        },
        {
            "cause": "new_member",
            "reason": "join",
            "count": 2,
            "by": {"client_id": "consumer-4", "client_host": "/10.0.0.8", "instance_id": "four", "principal": ""},
            "said": "",
            "sentence": "Twice because a new member joined (consumer-4 (four) at 10.0.0.8).",
        },
    ]


def test_varying_reason_text_is_one_cause() -> None:
    """Rebalances whose client reason differs only in changing details form one cause."""
    said = [f"need to re-join with the given member-id: {number}" for number in range(3)]
    found = answer(*[completed(RebalanceCause.NEW_MEMBER, said=each) for each in said])
    assert [cause["count"] for cause in found["causes"]] == [3]


def test_reason_of_issued_member_id_is_not_in_sentences() -> None:
    """The reason that every new member of a Java client sends is in the JSON, but in no sentence."""
    said = "need to re-join with the given member-id: a-1"
    found = answer(completed(RebalanceCause.UNKNOWN, said=said))
    assert [cause["said"] for cause in found["causes"]] == [said]
    assert "need to re-join" not in found["summary"] + found["causes"][0]["sentence"]


@pytest.mark.parametrize(
    ("cause", "fields", "how", "because"),
    [
        ("new_member", {}, None, "a new member joined (consumer-3 at 10.0.0.7)"),
        ("new_member", {"joined": 3}, None, "3 new members joined (first consumer-3 at 10.0.0.7)"),
        ("static_replaced", {"by": FOUR}, None, "consumer-4 (four) at 10.0.0.8 came back under its group.instance.id"),
        ("member_left", {}, "left", "consumer-3 at 10.0.0.7 left"),
        (
            "member_left",
            {"said": "the consumer is being closed"},
            "left",
            "consumer-3 at 10.0.0.7 left and said: the consumer is being closed",
        ),
        ("member_left", {"said": POLL}, "left", MAX_POLL),
        ("member_removed", {}, "kicked", "an admin removed consumer-3 at 10.0.0.7"),
        (
            "member_removed",
            {"said": "too many"},
            "removed",
            "this sidecar removed consumer-3 at 10.0.0.7, since the group was over its limit",
        ),
        ("member_removed", {}, None, "consumer-3 at 10.0.0.7 was removed"),
        ("session_expired", {}, "expired", "consumer-3 at 10.0.0.7 was not heard of within its session timeout"),
        ("session_expired", {}, "dropped", "consumer-3 at 10.0.0.7 was not heard of, or did not sync, in time"),
        ("subscription_changed", {}, None, "consumer-3 at 10.0.0.7 joined again with another subscription"),
        ("partitions_revoked", {}, None, "consumer-3 at 10.0.0.7 gave up partitions for other members"),
        ("leader_rejoined", {}, None, "its leader consumer-3 at 10.0.0.7 joined again"),
        (
            "topic_metadata",
            {},
            None,
            "consumer-3 at 10.0.0.7 saw the partitions of its topics change, or lost its metadata",
        ),
        (
            "topic_metadata",
            {"by": None},
            None,
            "a member that is not known saw the partitions of its topics change, or lost its metadata",
        ),
        (
            "coordinator_moved",
            {},
            None,
            (
                "this broker had just become its coordinator, or been restarted: "
                "consumer-3 at 10.0.0.7 was the first to join again"
            ),
        ),
        ("unknown", {"by": None}, None, "of something that was not seen"),
        ("unknown", {}, None, "of something that was not seen (consumer-3 at 10.0.0.7 was involved)"),
    ],
)
def test_sentence_of_each_cause(cause: str, fields: dict[str, Any], how: str | None, because: str) -> None:
    """Each cause has the expected sentence, depending on the client, its reason and its departure."""
    facts: list[Fact] = [completed(RebalanceCause(cause), **fields)]
    if how:
        facts.insert(0, gone(Departure(how)))
    found = answer(*facts)
    assert found["summary"] == f"Rebalanced once in the last hour, because {because}."
    assert found["causes"][0]["sentence"] == f"Once because {because}."


def test_every_cause_has_sentence() -> None:
    """Every rebalance cause has a sentence."""
    for cause in RebalanceCause:
        assert "because" in answer(completed(cause, by=None))["summary"]


@pytest.mark.parametrize(
    ("who", "name"),
    [
        (MemberInfo(member_id="m", client_id="", client_host="/h"), "a client without a name at h"),
        (MemberInfo(member_id="m", client_id="", client_host=""), "member m"),
        (MemberInfo(member_id="", client_id="", client_host=""), "a member that is not known"),
        (MemberInfo(member_id="m", client_id="c", client_host="/::1", instance_id="i"), "c (i) at ::1"),
        (MemberInfo(member_id="m", client_id="c", client_host="/h", principal="User:u"), "c at h as User:u"),
        (MemberInfo(member_id="m", client_id="c", client_host="", principal="User:u"), "c as User:u"),
    ],
)
def test_incomplete_member_info(who: MemberInfo, name: str) -> None:
    """A member without a client id or host is named by what is known."""
    assert f"({name})" in answer(completed(RebalanceCause.NEW_MEMBER, by=who))["summary"]


def test_causes_are_counted_by_principal() -> None:
    """Rebalances of one client under different principals are different causes. Older sidecars report none."""
    users = ("User:a", "User:a", "")
    cells: list[Any] = [
        timeline_entry(completed(RebalanceCause.NEW_MEMBER, by=replace(THREE, principal=principal)))
        for principal in users
    ]
    del cells[-1]["by"]["principal"]
    found: dict[str, Any] = why(cells, 0.0, HOUR)
    assert [(cause["by"]["principal"], cause["count"]) for cause in found["causes"]] == [("User:a", 2), ("", 1)]


def test_summary_names_most_frequent_causes() -> None:
    """A summary names the most frequent causes and sums up the others."""
    facts = [
        completed(RebalanceCause.NEW_MEMBER, by=MemberInfo(member_id=str(n), client_id=f"c{n}", client_host="/h"))
        for n in range(6)
        for _ in range(7 - n)
    ]
    found = answer(*facts)
    assert found["summary"].endswith("4 times because a new member joined (c3 at h), 5 times for further causes.")
    assert len(found["causes"]) == 6


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (60, "minute"),
        (3600, "hour"),
        (86_400, "day"),
        (7200, "2 hours"),
        (5400, "90 minutes"),
        (90, "90 seconds"),
        (0.2, "second"),
    ],
)
def test_span_in_words(span: float, words: str) -> None:
    """A summary names the time span in words."""
    assert answer(until=span)["summary"] == f"Has not rebalanced in the last {words}."


def test_only_facts_within_span_count() -> None:
    """Only facts within the requested span count."""
    facts = [completed(RebalanceCause.NEW_MEMBER, at=float(at), duration_seconds=float(at)) for at in range(5)]
    found = answer(*facts, since=1.0, until=3.0)
    figures = found["rebalances"], found["rebalancing_seconds"], found["longest_seconds"]
    assert figures == (3, 6.0, 3.0)


def test_figures_of_answer() -> None:
    """The answer contains the slowest member, enforced refusals and failed commits."""
    slow = SlowestMember(member_id="m4", client_id="consumer-4", client_host="/10.0.0.8", seconds=12.0)
    slower = SlowestMember(member_id="m3", client_id="consumer-3", client_host="/10.0.0.7", seconds=30.0)
    rest = {"policy": "p", "error_code": 81, "client_id": "c", "client_host": "/h", "size": 1, "limit": 1}
    found = answer(
        completed(RebalanceCause.NEW_MEMBER, slowest=slow),
        completed(RebalanceCause.NEW_MEMBER, slowest=slower),
        completed(RebalanceCause.NEW_MEMBER),
        ClientRefused(group_id="g", at=1.0, **rest),  # type: ignore[arg-type]
        ClientRefused(group_id="g", at=1.0, enforced=False, **rest),  # type: ignore[arg-type]
        OffsetsCommitted(group_id="g", at=1.0, accepted=1, refused=((27, 3), (25, 1))),
    )
    assert found["slowest"]["client_id"] == "consumer-3"
    assert (found["slowest"]["seconds"], found["refusals"], found["failed_commits"]) == (30.0, 1, 4)


REFUSED = {"policy": "p", "error_code": 81, "client_host": "/h", "size": 1, "limit": 1}


def refusals(*, count: int, every: float, begin: float = 0.0, clients: int = 1) -> FlightRecorder:
    """Returns a flight recorder with refusals of `clients` clients in turn."""
    recorder = FlightRecorder(1 << 20)
    for number in range(count):
        client_id = f"c{number % clients}"
        recorder.observe(ClientRefused(group_id="g", at=begin + number * every, client_id=client_id, **REFUSED))  # type: ignore[arg-type]
    return recorder


def answered(recorder: FlightRecorder, since: float = 0.0, until: float = HOUR) -> dict[str, Any]:
    return why(recorder.timeline("g") or [], since, until, recorder.forgotten("g"))


@pytest.mark.parametrize(("count", "every", "clients"), [(324, 1.0, 3), (5_000, 0.5, 7), (324, 10.0, 1)])
def test_refusals_are_counted_in_full(count: int, every: float, clients: int) -> None:
    """All refusals are counted, in total and per client, with the time of the first."""
    found = answered(refusals(count=count, every=every, clients=clients))
    assert (found["refusals"], found["at_least"]) == (count, [])
    assert sum(each["count"] for each in found["refused"]) == count
    assert [each["client_id"] for each in found["refused"]] == [f"c{n}" for n in range(clients)]
    assert found["refused"][0]["first_at"] == "1970-01-01T00:00:00.000Z"


def test_refusals_beyond_capacity_are_at_least() -> None:
    """Refusals of more clients than the recorder keeps are reported as a minimum."""
    found = answered(refusals(count=2 * MAX_RUNS_PER_GROUP, every=1.0, clients=2 * MAX_RUNS_PER_GROUP))
    assert (found["refusals"], found["at_least"]) == (MAX_RUNS_PER_GROUP, ["refusals"])
    later = answered(
        refusals(count=2 * MAX_RUNS_PER_GROUP, every=1.0, clients=2 * MAX_RUNS_PER_GROUP),
        since=MAX_RUNS_PER_GROUP + 0.5,
    )
    assert later["at_least"] == []


@pytest.mark.parametrize("clients", [1, 10, 50])
def test_storm_before_span_is_at_least(clients: int) -> None:
    """A refusal storm that began before the requested hour is reported as a minimum within that hour."""
    found = answered(refusals(count=10_800, every=1.0, clients=clients), since=2 * HOUR + 30.5, until=3 * HOUR)
    assert found["at_least"] == ["refusals"]
    assert 0.5 * HOUR < found["refusals"] < HOUR - 30


def test_failed_commits_before_span_are_at_least() -> None:
    """Failed commits of a run that began before the span are a minimum, because their times are not known."""
    recorder = FlightRecorder(1 << 20)
    for at in (10.0, 20.0, 30.0, 100.0):
        recorder.observe(OffsetsCommitted(group_id="g", at=at, accepted=0, refused=((27, 3),), by=THREE))
    for since, failed, least in ((0.0, 12, []), (20.0, 4, ["failed_commits"]), (60.0, 3, [])):
        found = answered(recorder, since=since)
        assert (found["failed_commits"], found["at_least"]) == (failed, least)


def test_forgotten_facts_are_at_least() -> None:
    """If facts within the span were forgotten, rebalances and failed commits are reported as a minimum."""
    cells = [timeline_entry(completed(RebalanceCause.NEW_MEMBER, at=float(at))) for at in (20, 30)]
    gone = {"changes": "1970-01-01T00:00:10.000Z", "commits": "1970-01-01T00:00:10.000Z", "refusals": None}
    found = why(cells, 0.0, HOUR, gone)
    assert found["at_least"] == ["rebalances", "failed_commits"]
    assert str(found["summary"]).startswith("Rebalanced at least twice in the last hour")
    assert why(cells, 15.0, HOUR, gone)["at_least"] == []
    since = "Has not rebalanced since 1970-01-01T00:00:10.000Z; what happened before is not known."
    assert why([], 0.0, HOUR, gone)["summary"] == since


def test_later_departure_keeps_join_cause() -> None:
    """A departure between two joins of a client does not split the cause of its joins."""
    came = completed(RebalanceCause.NEW_MEMBER, at=10.0)
    back = completed(RebalanceCause.NEW_MEMBER, by=replace(THREE, member_id="m3-again"), at=30.0)
    [cause] = answer(came, gone(Departure.EXPIRED, at=20.0), back)["causes"]
    assert (cause["count"], cause["sentence"]) == (
        2,
        "Twice because a new member joined (consumer-3 at 10.0.0.7).",
    )
