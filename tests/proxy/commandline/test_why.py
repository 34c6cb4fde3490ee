"""`groups why`: the output about the reasons for a group's rebalances."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from group_sidecar.proxy.commandline.times import format_time
from tests.proxy.commandline.admin_ports import AdminPort, answered, group, listening, run

BY = {"member_id": "app-1", "client_id": "app", "client_host": "/10.0.0.7", "instance_id": None}


def rebalance(minutes: int, **more: Any) -> dict[str, Any]:
    """Returns the entry of a rebalance that was completed `minutes` minutes ago."""
    at = datetime.now(UTC) - timedelta(minutes=minutes)
    cell = {
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "what": "rebalance_completed",
        "reason": "expired",
        "cause": "session_expired",
        "by": BY,
        "said": "",
        "generation": 4,
        "protocol": "range",
        "members": 2,
        "duration_seconds": 2.5,
        "joined": 0,
        "gone": 1,
        "slowest": BY | {"seconds": 1.5},
        "moved_partitions": 3,
    }
    return cell | more


def refusal(**more: Any) -> dict[str, Any]:
    """Returns a refusal of a minute ago, as older sidecars report it."""
    return {
        "at": rebalance(1)["at"],
        "what": "client_refused",
        "policy": "group_max_size",
        "error_code": 81,
        "error": "GROUP_MAX_SIZE_REACHED",
        "client_id": "app",
        "client_host": "/10.0.0.7",
        "size": 3,
        "limit": 3,
        "enforced": True,
        **more,
    }


def test_why_prints_sentence_and_tables() -> None:
    """The command prints a sentence, a table of causes and the totals."""
    events = [rebalance(50), rebalance(40), rebalance(30, cause="new_member", reason="join", by=None, joined=1)]
    port = AdminPort([group("g")], timelines={"g": events})
    with listening(port):
        result = run("why", "g", ports=[port])
    assert (result.exit_code, result.stderr) == (0, "")
    summary, *rest = result.stdout.splitlines()
    assert summary.startswith("Rebalanced 3 times in the last hour: twice because app at 10.0.0.7 was not heard of")
    assert rest == [
        "",
        "COUNT  CAUSE            REASON   CLIENT-ID  GROUP-INSTANCE-ID  HOST       SAID",
        "2      session_expired  expired  app        -                  /10.0.0.7  -",
        "1      new_member       join     -          -                  -          -",
        "",
        "REBALANCING     7.5 s",
        "LONGEST         2.5 s",
        "LAST-TO-JOIN    app at 10.0.0.7, 1.5 s after the first",
        "REFUSALS        0",
        "FAILED-COMMITS  0",
    ]


def test_why_omits_reason_of_every_new_member() -> None:
    """The reason that every new Java member sends is not in the table. The JSON has it."""
    said = "need to re-join with the given member-id: app-1"
    port = AdminPort([group("g")], timelines={"g": [rebalance(5, cause="new_member", reason="join", said=said)]})
    with listening(port):
        printed = run("why", "g", ports=[port]).stdout
        found = answered(run("why", "g", "--json", ports=[port]))
    assert "need to re-join" not in printed
    assert found["causes"][0]["said"] == said


def test_why_prints_known_principals() -> None:
    """The tables of causes and of refusals have the principals of clients, if any is known."""
    events = [rebalance(50), rebalance(40, by=BY | {"principal": "User:app"}), refusal(principal="User:other")]
    port = AdminPort([group("g")], timelines={"g": events})
    with listening(port):
        lines = run("why", "g", ports=[port]).stdout.splitlines()
    assert "once because app at 10.0.0.7 as User:app was not heard of" in lines[0]
    tables = [line.split() for line in lines if "/10.0.0.7" in line or line.startswith("COUNT")]
    assert [[cell for cell in row if cell in ("PRINCIPAL", "User:app", "User:other")] for row in tables] == [
        ["PRINCIPAL"],
        ["User:app"],
        [],
        ["PRINCIPAL"],
        ["User:other"],
    ]


def test_why_counts_refusals_by_client() -> None:
    """Refusals are counted by client. If a sidecar forgot refusals, their number is a minimum."""
    refused = refusal()
    at = refused["at"]
    events = [refused | {"count": 323, "first_at": at}, refused]
    forgotten = {"forgotten": {"changes": None, "commits": None, "refusals": at}}
    ports = [
        AdminPort([group("g")], timelines={"g": events}, forgotten=forgotten),
        AdminPort([group("g")], timelines={"g": []}),
    ]
    with listening(*ports):
        printed = run("why", "g", "--utc", ports=ports).stdout.splitlines()
        found = answered(run("why", "g", "--json", ports=ports))
    moment = format_time(at, utc=True).split()
    assert [line.split() for line in printed if "group_max_size" in line] == [
        ["324", "GROUP_MAX_SIZE_REACHED", "group_max_size", "app", "/10.0.0.7", *moment, *moment]
    ]
    figures = dict(line.split(maxsplit=1) for line in printed if line.startswith(("REFUSALS", "FAILED", "ALL-KNOWN")))
    assert figures == {
        "REFUSALS": "at least 324",
        "FAILED-COMMITS": "0",
        "ALL-KNOWN-SINCE": format_time(at, utc=True),
    }
    assert (found["refusals"], found["at_least"]) == (324, ["refusals"])


def test_why_merges_two_sidecars() -> None:
    """The rebalances of two sidecars are added up."""
    ports = [AdminPort([group("g")], timelines={"g": [rebalance(minutes)]}) for minutes in (10, 20)]
    with listening(*ports):
        output = answered(run("why", "g", "--json", ports=ports))
    assert (output["group"], output["rebalances"], output["problems"]) == ("g", 2, [])
    assert [(cause["cause"], cause["count"]) for cause in output["causes"]] == [("session_expired", 2)]
    assert output["rebalancing_seconds"] == 5.0


@pytest.mark.parametrize(("since", "rebalances"), [("1h", 1), ("3h", 2), ("1m", 0)])
def test_why_since_limits_time_span(since: str, rebalances: int) -> None:
    """The flag --since limits the time span of the counted rebalances."""
    port = AdminPort([group("g")], timelines={"g": [rebalance(120), rebalance(30)]})
    with listening(port):
        assert answered(run("why", "g", "--since", since, "--json", ports=[port]))["rebalances"] == rebalances


def test_why_without_rebalances() -> None:
    """A group without rebalances gets one sentence with the time span."""
    port = AdminPort([group("g")])
    with listening(port):
        result = run("why", "g", "--since", "2h", ports=[port])
    assert (result.exit_code, result.stdout) == (0, "Has not rebalanced in the last 2 hours.\n")


def test_why_prints_failed_commits_without_rebalances() -> None:
    """Failed commits of a group without rebalances are printed, as refusals are."""
    refused = [{"error": "UNKNOWN_MEMBER_ID", "error_code": 25, "partitions": 2}]
    failed = {"at": rebalance(1)["at"], "what": "offsets_committed", "accepted": 0, "refused": refused, "by": BY}
    port = AdminPort([group("g")], timelines={"g": [failed]})
    with listening(port):
        summary, *rest = run("why", "g", ports=[port]).stdout.splitlines()
    assert summary == "Has not rebalanced in the last hour."
    assert [line.split() for line in rest if line.startswith(("REFUSALS", "FAILED"))] == [
        ["REFUSALS", "0"],
        ["FAILED-COMMITS", "2"],
    ]


@pytest.mark.parametrize("odd", [{"cause": "sunspots"}, {"slowest": 5}, {"joined": None}])
def test_why_of_unknown_timeline_fails(odd: dict[str, Any]) -> None:
    """A timeline with unknown values fails with one line that names the sidecar."""
    port = AdminPort([group("g")], timelines={"g": [rebalance(5, **odd)]})
    with listening(port):
        result = run("why", "g", ports=[port])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"group-sidecar: {port.address}: of another version, whose timeline cannot be summed up here\n"
    )


@pytest.mark.parametrize("since", ["1", "h", "-1h", "1w", "0s", "4000d", ""])
def test_invalid_since_is_refused(since: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid --since value is refused with status 2."""
    monkeypatch.setenv("COLUMNS", "200")
    for command in ("why", "timeline"):
        result = run(command, "g", f"--since={since}", "--sidecar", "127.0.0.1:1")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "Invalid value for '--since'" in result.stderr


@pytest.mark.parametrize(("flags", "hours", "zone"), [((), 2, "+02:00"), (("--utc",), 0, "Z")])
@pytest.mark.parametrize("command", ["why", "timeline"])
def test_commands_show_times_in_one_zone(
    command: str, flags: tuple[str, ...], hours: int, zone: str, local_zone: None
) -> None:
    """Both commands show the time since when all events are known in the same zone, and name the zone."""
    known_since = datetime.now(UTC) - timedelta(minutes=10)
    forgotten = {"changes": known_since.isoformat(), "commits": None, "refusals": None}
    port = AdminPort([group("g")], forgotten={"forgotten": forgotten})
    with listening(port):
        result = run(command, "g", *flags, ports=[port])
    shown = known_since + timedelta(hours=hours)
    assert f"since {shown:%Y-%m-%d %H:%M:%S}{zone}" in result.stdout + result.stderr


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine's zone is UTC+02:00, which POSIX writes with the opposite sign."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XYZ-2")
        time.tzset()
        yield
    time.tzset()
