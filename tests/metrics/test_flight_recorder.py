"""The history of each group: its contents, its lifetime, and its form."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.coordinator.model.facts import (
    ClientRefused,
    CoordinatorMoved,
    Departure,
    Fact,
    MemberGone,
    MemberInfo,
    MemberJoined,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceReason,
    RebalanceStarted,
    SlowestMember,
)
from group_sidecar.metrics.flight_recorder import MAX_FACTS_PER_GROUP, FlightRecorder, timeline_entry
from group_sidecar.metrics.rebalance_explanation import why
from group_sidecar.metrics.records import timestamp
from group_sidecar.metrics.refusal_totals import MAX_RUNS_PER_GROUP, RUN_SECONDS
from tests.metrics.metrics_world import rebalanced

PLENTY = 1 << 30
CLIENT = {"client_id": "c", "client_host": "/10.0.0.1"}
WHO_CELLS: dict[str, Any] = {"member_id": "m", **CLIENT, "instance_id": "i", "principal": "User:CN=a"}
WHO, SLOWEST = MemberInfo(**WHO_CELLS), SlowestMember(**WHO_CELLS, seconds=0.1)
REFUSED = {"policy": "group_max_size", "error_code": 81, **CLIENT, "principal": "User:CN=a", "size": 5, "limit": 5}

ONCE = {"error": "GROUP_MAX_SIZE_REACHED", "count": 1, "first_at": "1970-01-01T00:00:01.000Z"}


def joined(group_id: str = "g", at: float = 1.0, member_id: str = "m") -> MemberJoined:
    return MemberJoined(group_id=group_id, at=at, member_id=member_id, client_id="c", client_host="/10.0.0.1")


def refused(group_id: str = "g", at: float = 1.0, *, enforced: bool = True) -> ClientRefused:
    return ClientRefused(group_id=group_id, at=at, enforced=enforced, **REFUSED)  # type: ignore[arg-type]


def commit(group_id: str = "g", at: float = 1.0, **counts: Any) -> OffsetsCommitted:
    return OffsetsCommitted(group_id=group_id, at=at, **counts)


def recorder(*facts: Fact, max_bytes: int = PLENTY) -> FlightRecorder:
    made = FlightRecorder(max_bytes)
    for fact in facts:
        made.observe(fact)
    return made


def timeline(made: FlightRecorder, group_id: str = "g") -> list[dict[str, Any]]:
    return made.timeline(group_id) or []


# The entries.


@pytest.mark.parametrize(
    ("fact", "cells"),
    [
        (
            RebalanceStarted(group_id="g", at=0.25, cause=RebalanceCause.MEMBER_LEFT, by=WHO, said="bye"),
            {"what": "rebalance_started", "reason": "leave", "cause": "member_left", "by": WHO_CELLS, "said": "bye"},
        ),
        (
            replace(rebalanced("g"), by=WHO, said="hello", joined=2, gone=1, slowest=SLOWEST, moved_partitions=4),
            {
                "what": "rebalance_completed",
                "reason": "join",
                "cause": "new_member",
                "by": WHO_CELLS,
                "said": "hello",
                "generation": 1,
                "protocol": "range",
                "members": 2,
                "duration_seconds": 0.2,
                "joined": 2,
                "gone": 1,
                "slowest": {**WHO_CELLS, "seconds": 0.1},
                "moved_partitions": 4,
            },
        ),
        (
            joined(),
            {"what": "member_joined", "member_id": "m", **CLIENT, "instance_id": None, "principal": "", "said": ""},
        ),
        (
            MemberGone(group_id="g", at=1.0, **WHO_CELLS, how=Departure.EXPIRED, said="bye"),
            {"what": "member_gone", **WHO_CELLS, "how": "expired", "said": "bye"},
        ),
        (CoordinatorMoved(group_id="g", at=1.0), {"what": "coordinator_moved"}),
        (
            commit(accepted=2, refused=((27, 3), (12345, 1)), by=WHO),
            {
                "what": "offsets_committed",
                "accepted": 2,
                "refused": [
                    {"error_code": 27, "error": "REBALANCE_IN_PROGRESS", "partitions": 3},
                    {"error_code": 12345, "error": "other", "partitions": 1},
                ],
                "by": WHO_CELLS,
                "count": 1,
                "first_at": "1970-01-01T00:00:01.000Z",
            },
        ),
        (refused(), {"what": "client_refused", **REFUSED, **ONCE, "enforced": True}),
        (refused(enforced=False), {"what": "client_audited", **REFUSED, **ONCE, "enforced": False}),
    ],
    ids=lambda value: value.get("what") if isinstance(value, dict) else "",
)
def test_timeline_entry_of_each_fact(fact: Fact, cells: dict[str, object]) -> None:
    """Each kind of fact becomes the expected timeline entry."""
    at = {0.25: "1970-01-01T00:00:00.250Z", 1.0: "1970-01-01T00:00:01.000Z"}[fact.at]
    assert json.loads(json.dumps(timeline_entry(fact))) == {"at": at, **cells}


def test_all_fact_types_have_timeline_entries() -> None:
    """Every fact class becomes a timeline entry with all its fields."""

    def anything(name: str) -> Any:
        return {"refused": (), "at": 1.0, "by": None, "slowest": None, "cause": RebalanceCause.UNKNOWN}.get(name, 77)

    for kind in Fact.__subclasses__():
        made: Any = kind(**{field.name: anything(field.name) for field in fields(kind)})
        assert timeline_entry(made).keys() >= {"at", "what"} | {field.name for field in fields(kind)} - {"group_id"}


def test_timeline_is_ordered_by_time() -> None:
    """A timeline is ordered by time, and repeated refusals appear as one entry at their last time."""
    facts = [joined(at=3.0, member_id="late"), refused(at=2.0), joined(at=1.0, member_id="early"), refused(at=4.0)]
    ats = [cells["at"] for cells in timeline(recorder(*facts))]
    assert ats == [f"1970-01-01T00:00:0{second}.000Z" for second in (1, 3, 4)]


def test_groups_have_separate_timelines() -> None:
    """Each group has a timeline of its own, and an unknown group has none."""
    made = recorder(joined("a", member_id="x"), joined("b", member_id="y"))
    assert [cells["member_id"] for cells in timeline(made, "a")] == ["x"]
    assert [cells["member_id"] for cells in timeline(made, "b")] == ["y"]
    assert made.timeline("c") is None


# Kept entries.


def test_newest_facts_per_group_are_kept() -> None:
    """The recorder keeps the newest MAX_FACTS_PER_GROUP facts of a group."""
    facts = [joined(at=float(n), member_id=str(n)) for n in range(MAX_FACTS_PER_GROUP + 5)]
    made = recorder(*facts)
    assert [cells["member_id"] for cells in timeline(made)] == [str(n) for n in range(5, MAX_FACTS_PER_GROUP + 5)]
    assert made.held_bytes == recorder(*facts[5:]).held_bytes


def test_only_refused_commits_are_recorded() -> None:
    """The recorder keeps a commit only if the broker refused a part of it."""
    made = recorder(commit(accepted=3), commit(accepted=0))
    assert made.timeline("g") is None
    assert made.held_bytes == 0
    made.observe(commit(accepted=3, refused=((27, 1),)))
    assert [cells["accepted"] for cells in timeline(made)] == [3]


def test_refused_commits_keep_other_facts() -> None:
    """Many refused commits do not evict the other facts of a group."""
    many = [
        commit(at=9.0, accepted=0, refused=((27, 1),), by=replace(WHO, client_id=str(n)))
        for n in range(3 * MAX_RUNS_PER_GROUP)
    ]
    whats = [cells["what"] for cells in timeline(recorder(joined(), rebalanced("g"), *many))]
    assert {"member_joined", "rebalance_completed"} < set(whats)
    assert len(whats) == MAX_RUNS_PER_GROUP + 2


def test_refused_commits_are_summed_up() -> None:
    """Refused commits of one client with the same errors are one entry, with the sums of their partitions."""
    again = [commit(at=float(at), accepted=1, refused=((22, 2), (25, 1)), by=WHO) for at in range(1, 4)]
    another = commit(at=4.0, accepted=0, refused=((22, 2),), by=replace(WHO, client_id="another"))
    later = replace(again[0], at=1.0 + RUN_SECONDS)
    first, other, last = timeline(recorder(*again, another, later))
    assert (first["count"], first["accepted"], first["first_at"][17:19], first["at"][17:19]) == (3, 3, "01", "03")
    assert [(of["error_code"], of["partitions"]) for of in first["refused"]] == [(22, 6), (25, 3)]
    assert (other["by"]["client_id"], other["count"], last["count"]) == ("another", 1, 1)


def test_merged_runs_of_commits_keep_sums() -> None:
    """If a group has too many runs of refused commits, merged runs keep the number of partitions."""
    commits = [
        commit(at=n * RUN_SECONDS, accepted=1, refused=((22, 2),), by=WHO) for n in range(3 * MAX_RUNS_PER_GROUP)
    ]
    entries = timeline(recorder(*commits))
    assert len(entries) == MAX_RUNS_PER_GROUP
    assert sum(cells["refused"][0]["partitions"] for cells in entries) == 2 * len(commits)
    assert sum(cells["accepted"] for cells in entries) == sum(cells["count"] for cells in entries) == len(commits)


def test_refusals_are_evicted_first() -> None:
    """The recorder evicts refusals of other groups before membership changes."""
    of_changes = recorder(joined("quiet"), rebalanced("quiet")).held_bytes
    made = FlightRecorder(10 * of_changes)
    for fact in (joined("quiet"), rebalanced("quiet")):
        made.observe(fact)
    for number in range(1_000):
        made.observe(refused(f"g{number}", at=float(number)))
    assert [cells["what"] for cells in timeline(made, "quiet")] == ["member_joined", "rebalance_completed"]
    assert made.timeline("g0") is None
    assert timeline(made, "g999")


# Removed entries.


def test_nothing_forgotten_before_eviction() -> None:
    """Nothing is reported as forgotten while the recorder keeps all facts."""
    made = recorder(joined(), refused(), commit(accepted=0, refused=((27, 1),)))
    assert made.forgotten("g") == {"changes": None, "commits": None, "refusals": None}


def test_forgotten_reports_newest_lost_time() -> None:
    """forgotten returns the time of the newest evicted fact of each kind."""
    changes = [joined(at=float(n)) for n in range(MAX_FACTS_PER_GROUP + 5)]
    commits = [
        commit(at=float(n), accepted=0, refused=((27, 1),), by=replace(WHO, client_id=str(n)))
        for n in range(MAX_RUNS_PER_GROUP + 2)
    ]
    refusals = [replace(refused(at=float(n)), client_id=str(n)) for n in range(MAX_RUNS_PER_GROUP + 3)]
    made = recorder(*changes, *commits, *refusals, joined("h"))
    assert made.forgotten("g") == {
        "changes": "1970-01-01T00:00:04.000Z",
        "commits": "1970-01-01T00:00:01.000Z",
        "refusals": "1970-01-01T00:00:02.000Z",
    }
    assert made.forgotten("h")["changes"] is None


def test_evicted_group_is_not_new() -> None:
    """A group whose facts were all evicted keeps the time until which facts are forgotten."""
    made = FlightRecorder(recorder(joined("a")).held_bytes)
    for fact in (joined("a", at=3.0), joined("b", at=4.0), joined("a", at=5.0)):
        made.observe(fact)
    assert made.forgotten("a")["changes"] == "1970-01-01T00:00:03.000Z"
    assert made.forgotten("b")["changes"] == "1970-01-01T00:00:04.000Z"


# Queries over all groups.


def completed(group_id: str = "g", at: float = 1.0, cause: RebalanceCause = RebalanceCause.UNKNOWN) -> Fact:
    return replace(rebalanced(group_id), at=at, cause=cause)


def test_last_rebalance_and_count() -> None:
    """The recorder returns a group's last completed rebalance and the number of rebalances since a time."""
    started = RebalanceStarted(group_id="g", at=9.0, cause=RebalanceCause.SESSION_EXPIRED)
    expired = completed(at=5.0, cause=RebalanceCause.SESSION_EXPIRED)
    made = recorder(completed(at=1.0), completed(at=3.0), joined(at=4.0), expired, started, completed("h", at=7.0))
    assert made.last_rebalance("g") == (5.0, RebalanceCause.SESSION_EXPIRED, RebalanceReason.EXPIRED)
    assert made.last_rebalance("nobody") is None
    assert [made.rebalances_since("g", since) for since in (0.0, 3.0, 3.5, 6.0)] == [3, 2, 1, 0]
    assert made.rebalances_since("nobody", 0.0) == 0


def test_refusals_of_all_groups() -> None:
    """The recorder lists the refusals of all groups, newest first, up to a limit."""
    made = recorder(
        refused("a", at=1.0),
        replace(refused("a", at=6.0), client_id="another"),
        joined("a", at=7.0),
        refused("b", at=2.0, enforced=False),
        refused("b", at=5.0),
        commit("c", at=8.0, accepted=0, refused=((27, 1),)),
        refused("c", at=3.0),
    )
    told_of = [(cell["group"], str(cell["at"])[17:19], cell["what"]) for cell in made.refusals(10)]
    expected = [("a", 6), ("b", 5), ("c", 3), ("b", 2), ("a", 1)]
    assert told_of == [
        (group, f"{second:02}", "client_audited" if second == 2 else "client_refused") for group, second in expected
    ]
    for limit in range(6):
        assert [cell["group"] for cell in made.refusals(limit)] == [group for group, _ in expected][:limit]


@given(told_of=st.lists(st.sampled_from("abc"), max_size=30), limit=st.integers(0, 12))
def test_refusals_are_newest_of_all_groups(told_of: list[str], limit: int) -> None:
    """The listed refusals are the newest, whatever their groups."""
    made = recorder(*[refused(group, at=RUN_SECONDS * at) for at, group in enumerate(told_of)])
    assert [cell["group"] for cell in made.refusals(limit)] == told_of[::-1][:limit]


# Forgotten groups.


def test_quietest_group_is_evicted_first() -> None:
    """The recorder evicts the oldest facts of the group without facts for the longest time."""
    of_one = recorder(joined("quiet")).held_bytes
    made = recorder(joined("quiet", member_id="0"), joined("quiet", member_id="1"), joined("noisy", member_id="2"))
    bounded = FlightRecorder(made.held_bytes)
    for group_id, member_id in (("noisy", "0"), ("quiet", "1"), ("quiet", "2"), ("noisy", "3")):
        bounded.observe(joined(group_id, member_id=member_id))
    assert [cells["member_id"] for cells in timeline(bounded, "quiet")] == ["2"]
    assert [cells["member_id"] for cells in timeline(bounded, "noisy")] == ["0", "3"]
    bounded.observe(joined("third"))
    assert bounded.timeline("quiet") is None
    assert bounded.held_bytes <= made.held_bytes < 3 * of_one


def test_named_members_count_towards_bytes() -> None:
    """Members named in a rebalance fact count towards the held bytes."""
    nobody = recorder(rebalanced("g")).held_bytes
    for name in ("by", "slowest"):
        told_of = {name: replace(SLOWEST, client_id="c" * 30_000, principal="p" * 30_000)}
        assert recorder(replace(rebalanced("g"), **told_of)).held_bytes - nobody >= 60_000  # type: ignore[arg-type]


def test_long_names_count_towards_bytes() -> None:
    """Long member and group names count towards the held bytes."""
    short, long = recorder(joined(member_id="m")), recorder(joined(member_id="m" * 30_000))
    assert long.held_bytes - short.held_bytes >= 29_999
    assert recorder(joined("g" * 30_000)).held_bytes - short.held_bytes >= 29_999
    assert recorder(replace(joined(), principal="p" * 30_000)).held_bytes - short.held_bytes >= 29_999


names = st.sampled_from(["a", "b", "c", "d" * 500])
told_facts = st.one_of(
    st.builds(joined, names),
    st.builds(refused, names, enforced=st.booleans()),
    st.builds(commit, names, accepted=st.integers(0, 3), refused=st.sampled_from([(), ((27, 1),)])),
)


@given(facts=st.lists(told_facts, max_size=60), max_bytes=st.integers(0, 12_000))
def test_byte_bound_holds(facts: list[Fact], max_bytes: int) -> None:
    """The held bytes never exceed the limit and are zero exactly if no facts are left."""
    made = FlightRecorder(max_bytes)
    for fact in facts:
        made.observe(fact)
        assert 0 <= made.held_bytes <= max_bytes
    kept = sum(len(timeline(made, group_id)) for group_id in ("a", "b", "c", "d" * 500))
    assert (kept == 0) == (made.held_bytes == 0)
    made.observe(joined("too long for it" * max_bytes))
    assert made.held_bytes <= max_bytes


def test_time_before_start_is_forgotten() -> None:
    """Everything before the recorder's start is forgotten, so a new sidecar does not report a quiet hour."""
    made = FlightRecorder(PLENTY, began=100.0)
    made.observe(joined("g", at=110.0))
    began = dict.fromkeys(("changes", "commits", "refusals"), timestamp(100.0))
    assert made.forgotten("g") == made.forgotten("unheard of") == began
    summary = why(made.timeline("g") or [], 50.0, 120.0, made.forgotten("g"))["summary"]
    assert summary == "Has not rebalanced since 1970-01-01T00:01:40.000Z; what happened before is not known."
    assert why([], 101.0, 161.0, made.forgotten("g"))["summary"] == "Has not rebalanced in the last minute."
