"""The commands about groups with sidecars: the requests to each admin port, and the output."""

import json
import socket
import ssl
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from group_sidecar.proxy.commandline import sidecar_queries
from tests.certificates import Authority
from tests.proxy.commandline.admin_ports import AdminPort, answered, group, listening, run
from tests.proxy.commandline.groups_shell import failed
from tests.proxy.real_ports import kafka_port, server_context
from tests.proxy.scripted_broker import ScriptedBroker

DOWN = AdminPort(address="127.0.0.1:1")
UNREACHABLE = "127.0.0.1:1 cannot be reached: Connection refused"
MEMBER = {
    "member_id": "m-1",
    "instance_id": None,
    "client_id": "app",
    "client_host": "/10.0.0.7",
    "principal": "",
    "since": "2026-11-21T13:59:00.250Z",
    "assignment": {"t": [1, 0]},
    "assignment_bytes": 30,
}
OFFSET = {
    "topic": "t",
    "partition": 0,
    "current_offset": 7,
    "log_end_offset": 10,
    "log_end_at": "2026-11-21T13:59:00.000Z",
    "lag": 3,
    "metadata": "note",
    "committed_at": "2026-11-21T13:58:00.000Z",
    "member_id": "m-1",
    "client_id": "app",
    "client_host": "/10.0.0.7",
    "principal": "",
}


def joined(at: str, member_id: str) -> dict[str, Any]:
    return {
        "at": at,
        "what": "member_joined",
        "member_id": member_id,
        "client_id": "app",
        "client_host": "/10.0.0.7",
        "instance_id": None,
        "principal": "",
        "said": "",
    }


def test_list_merges_all_sidecars() -> None:
    """The list merges the groups of all sidecars."""
    ports = AdminPort([group("b"), group("c", state="Empty", protocol_type="")]), AdminPort([group("a")])
    with listening(*ports):
        result = run("list", ports=ports)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "GROUP  TYPE     STATE   PROTOCOL-TYPE",
        "a      classic  Stable  consumer",
        "b      classic  Stable  consumer",
        "c      classic  Empty   -",
    ]


def test_list_verbose_shows_sidecar_columns() -> None:
    """With --verbose, the list shows the columns that only sidecars know, and dashes for unknown values."""
    port = AdminPort([group("g", limit=5, lag=12, rebalances=4), group("h", members_known=False, lag=None)])
    with listening(port):
        lines = run("list", "--verbose", "--utc", ports=[port]).stdout.splitlines()
    assert [line.split() for line in lines] == [
        [
            "GROUP",
            "TYPE",
            "STATE",
            "PROTOCOL-TYPE",
            "#MEMBERS",
            "LIMIT",
            "LAG",
            "REBALANCES",
            "LAST-REBALANCE",
            "CAUSE",
        ],
        ["g", "classic", "Stable", "consumer", "2", "5", "12", "4", "2026-11-21", "13:59:00Z", "new_member"],
        ["h", "classic", "Stable", "consumer", "-", "-", "-", "1", "2026-11-21", "13:59:00Z", "new_member"],
    ]


def test_list_as_json_names_sidecar() -> None:
    """The JSON list contains every field of a group and the sidecar that reported it."""
    port = AdminPort([group("g")])
    with listening(port):
        output = answered(run("list", "--json", ports=[port]))
    assert output == {"groups": [group("g", sidecar=port.address)], "problems": []}


GONE = {"broker": "b:9092", "since": "2026-11-21T13:59:00.000Z", "reason": "Connection refused"}


@pytest.mark.parametrize("groups", [[], [group("g")]])
@pytest.mark.parametrize("arguments", [["list"], ["top", "--once"]])
def test_unreachable_broker_sets_status_2(groups: list[dict[str, Any]], arguments: list[str]) -> None:
    """An unreachable broker is one line with status 2, and the groups that the sidecars report are shown."""
    port, well = AdminPort(groups, unreachable=[GONE]), AdminPort([group("w")], unreachable=[])
    with listening(port, well):
        result = run(*arguments, ports=[port, well])
    message = f"{port.address}: broker b:9092 unreachable since 2026-11-21T13:59:00.000Z: Connection refused"
    assert (result.exit_code, result.stderr) == (2, f"group-sidecar: {message}\n")
    assert "w " in result.stdout
    assert ("g " in result.stdout) is bool(groups)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("command", ["describe", "members", "offsets", "timeline", "why"])
def test_unreachable_broker_is_named_for_group(command: str, known: bool) -> None:
    """A command on one group names the unreachable broker, because the group may be on that broker."""
    port = AdminPort([group("g")] if known else [], unreachable=[GONE])
    with listening(port):
        result = run(command, "g", ports=[port])
    gone = f"{port.address}: broker b:9092 unreachable since 2026-11-21T13:59:00.000Z: Connection refused"
    messages = [gone] if known else [gone, "Group g not found."]
    assert (result.exit_code, result.stderr.splitlines()) == (2, [f"group-sidecar: {line}" for line in messages])
    assert bool(result.stdout) is (known and command != "timeline")


def test_unreachable_broker_in_json() -> None:
    port = AdminPort([], unreachable=[GONE])
    with listening(port):
        result = run("list", "--json", ports=[port])
    assert result.exit_code == 2
    [problem] = json.loads(result.stdout)["problems"]
    assert "broker b:9092 unreachable since" in problem


def test_list_filters_by_state_and_type() -> None:
    """State and type filters select the matching groups."""
    port = AdminPort([group("a", state="Empty"), group("b", protocol="consumer"), group("c")])
    with listening(port):
        by_state = answered(run("list", "--json", "--state", "stable", ports=[port]))
        by_both = answered(run("list", "--json", "--state", "stable", "--type", "consumer", ports=[port]))
    assert [one["group"] for one in by_state["groups"]] == ["b", "c"]
    assert [one["group"] for one in by_both["groups"]] == ["b"]


def test_list_reads_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list reads page after page until it is complete."""
    monkeypatch.setattr(sidecar_queries, "PAGE_SIZE", 2)
    port = AdminPort([group(f"g-{number}") for number in range(5)])
    with listening(port):
        output = answered(run("list", "--json", ports=[port]))
    assert [one["group"] for one in output["groups"]] == [f"g-{number}" for number in range(5)]
    assert [query["offset"] for _, query in port.asked] == ["0", "2", "4"]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"generation": 2}, {"generation": 9, "lacking": "cold"}),
        ({"generation": 2}, {"generation": 9, "members_known": False}),
        ({"generation": 9}, {"generation": 2}),
        ({"generation": 0}, {"generation": -1}),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_better_copy_of_group_wins(better: dict[str, Any], worse: dict[str, Any], first: bool) -> None:
    """If two sidecars report a group, the more complete copy counts, then the later generation."""
    details = {"g": {"member_list": [MEMBER]}}
    good = AdminPort([group("g", **better)], details, offsets={"g": [OFFSET]})
    bad = AdminPort([group("g", **worse)])
    with listening(good, bad):
        ports = [good, bad] if first else [bad, good]
        [listed] = answered(run("list", "--json", ports=ports))["groups"]
        described = answered(run("describe", "g", "--json", ports=ports))
        offsets = answered(run("offsets", "g", "--json", ports=ports))
    assert listed["sidecar"] == described["sidecar"] == offsets["sidecar"] == good.address
    assert len(described["member_list"]) == len(offsets["offsets"]) == 1


def test_describe() -> None:
    where = {"id": 2, "host": "broker-2", "port": 9092}
    details = {"leader": "m-1", "coordinator": where, "member_list": [MEMBER]}
    port = AdminPort([group("g", limit=4, lag=7)], {"g": details})
    with listening(port):
        result = run("describe", "g", "--utc", ports=[port])
    assert result.stdout.splitlines() == [
        "GROUP                g",
        "TYPE                 classic",
        "PROTOCOL-TYPE        consumer",
        "COORDINATOR (ID)     broker-2:9092 (2)",
        "ASSIGNMENT-STRATEGY  range",
        "STATE                Stable",
        "GENERATION           3",
        "LEADER               m-1",
        f"SIDECAR              {port.address}",
        "#MEMBERS             2",
        "LIMIT                4",
        "LAG                  7",
        "REBALANCES           1",
        "LAST-REBALANCE       2026-11-21 13:59:00Z",
        "CAUSE                new_member",
        "",
        "CONSUMER-ID  GROUP-INSTANCE-ID  HOST       CLIENT-ID  #PARTITIONS  ASSIGNMENT",
        "m-1          -                  /10.0.0.7  app        2            t:0,1",
    ]


@pytest.mark.parametrize("detail", [{}, {"coordinator": None}], ids=["an older sidecar", "one that does not know"])
def test_describe_without_a_coordinator(detail: dict[str, Any]) -> None:
    """Without a known coordinator, the description omits it and its JSON value is null."""
    with listening(port := AdminPort([group("g")], {"g": {"leader": "", "member_list": [], **detail}})):
        assert "COORDINATOR" not in run("describe", "g", ports=[port]).stdout
        output = json.loads(run("describe", "g", "--json", ports=[port]).stdout)
    assert output["coordinator"] is None


def test_members() -> None:
    unreadable = {**MEMBER, "member_id": "m-2", "instance_id": "i-2", "assignment": None}
    port = AdminPort([group("g"), group("h")], {"g": {"member_list": [MEMBER, unreadable]}})
    with listening(port):
        lines = run("members", "g", ports=[port]).stdout.splitlines()
        nobody = run("members", "h", ports=[port]).stdout.splitlines()
    assert lines == [
        "GROUP  CONSUMER-ID  GROUP-INSTANCE-ID  HOST       CLIENT-ID  #PARTITIONS  ASSIGNMENT",
        "g      m-1          -                  /10.0.0.7  app        2            t:0,1",
        "g      m-2          i-2                /10.0.0.7  app        -            (30 bytes)",
    ]
    assert nobody == ["GROUP  CONSUMER-ID  GROUP-INSTANCE-ID  HOST  CLIENT-ID  #PARTITIONS  ASSIGNMENT"]


def test_offsets() -> None:
    port = AdminPort([group("g")], offsets={"g": [OFFSET]})
    with listening(port):
        lines = run("offsets", "g", ports=[port]).stdout.splitlines()
        output = answered(run("offsets", "g", "--json", ports=[port]))
    assert lines == [
        "GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST       CLIENT-ID  METADATA",
        "g      t      0          7               10              3    m-1          /10.0.0.7  app        note",
    ]
    assert output == {"group": "g", "state": "Stable", "offsets": [OFFSET], "sidecar": port.address, "problems": []}


@pytest.mark.parametrize(
    ("ages", "sentence"),
    [
        ([28.0, None], None),
        ([-3600.0], None),
        ([40.5, 2.0], "1 of 2 log ends was seen 40 s ago"),
        ([7200.5, None], "The log end was seen 2 h ago"),
        ([40.5, 130.0, 2.0], "2 of 3 log ends were seen some time ago, the oldest 2 min ago"),
    ],
)
def test_old_log_ends_are_named(ages: list[float | None], sentence: str | None) -> None:
    """Log ends that were seen more than half a minute ago have a sentence on standard error, but not with --json."""
    now = datetime.now(UTC)
    ends = [None if age is None else (now - timedelta(seconds=age)).isoformat() for age in ages]
    rows = [{**OFFSET, "partition": number, "log_end_at": end} for number, end in enumerate(ends)]
    port = AdminPort([group("g")], offsets={"g": rows})
    with listening(port):
        result = run("offsets", "g", ports=[port])
        assert len(answered(run("offsets", "g", "--json", ports=[port]))["offsets"]) == len(ages)
    expected = sentence and f"{sentence}: LOG-END-OFFSET and LAG do not count records that were written since.\n"
    assert (result.exit_code, result.stderr) == (0, expected or "")


def test_known_principals_are_a_column() -> None:
    """Members and offsets have a column of principals if any principal is known. Older sidecars report none."""
    older = {name: value for name, value in MEMBER.items() if name != "principal"}
    members = [{**MEMBER, "principal": "User:CN=app, x"}, {**older, "member_id": "m-2"}]
    port = AdminPort(
        [group("g")], {"g": {"member_list": members}}, offsets={"g": [{**OFFSET, "principal": "User:CN=app, x"}]}
    )
    with listening(port):
        described, listed, committed = (
            run(command, "g", ports=[port]).stdout.splitlines() for command in ("describe", "members", "offsets")
        )
    for lines in (described[-3:], listed):
        assert [line.split("  ")[-1].strip() for line in lines] == ["PRINCIPAL", "User:CN=app, x", "-"]
    assert [line.split("  ")[-1].strip() for line in committed] == ["PRINCIPAL", "User:CN=app, x"]


def test_timelines_are_merged_by_time() -> None:
    """Timelines of several sidecars are merged by time, and each event names its sidecar."""
    first, second, third = (joined(f"2026-11-21T13:59:0{number}.250Z", f"m-{number}") for number in (1, 2, 3))
    ports = AdminPort([group("g")], timelines={"g": [first, third]}), AdminPort([group("g")], timelines={"g": [second]})
    with listening(*ports, AdminPort()):
        output = answered(run("timeline", "g", "--json", ports=ports))
        lines = run("timeline", "g", "--utc", ports=ports).stdout.splitlines()
    assert output["timeline"] == [
        first | {"sidecar": ports[0].address},
        second | {"sidecar": ports[1].address},
        third | {"sidecar": ports[0].address},
    ]
    assert [line[:26] for line in lines] == [f"2026-11-21 13:59:0{number}.250Z  " for number in (1, 2, 3)]
    assert all("app at 10.0.0.7 joined" in line for line in lines)


def test_timeline_since_limits_events() -> None:
    """The flag --since limits a timeline to recent events."""
    events = [joined("2001-01-01T00:00:00.000Z", "old"), joined("2901-01-01T00:00:00.000Z", "new")]
    port = AdminPort([group("g")], timelines={"g": events})
    with listening(port):
        found = answered(run("timeline", "g", "--json", "--since", "1h30m", ports=[port]))
    assert [cell["member_id"] for cell in found["timeline"]] == ["new"]


@pytest.mark.parametrize(
    ("forgotten", "since"),
    [({}, ""), ({"changes": "2026-11-21T13:59:00.000Z", "commits": None}, " since 2026-11-21 13:59:00Z")],
)
def test_empty_timeline_is_explained(forgotten: dict[str, str | None], since: str) -> None:
    """If a timeline is empty, a line on standard error has the time from which on all events are known."""
    port = AdminPort([group("g")], forgotten={"forgotten": forgotten})
    with listening(port):
        result = run("timeline", "g", "--utc", ports=[port])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"No sidecar has recorded an event of group g{since}.\n"


def test_unknown_events_are_shown() -> None:
    """Events with unknown or missing fields are shown as text with control characters escaped."""
    at = "2026-11-21T13:59:00.000Z"
    odd = [{"at": at, "what": "rebalance_completed"}, {"at": at, "what": "member_\x1b[2Jabducted"}]
    port = AdminPort([group("g")], timelines={"g": odd})
    with listening(port):
        lines = run("timeline", "g", ports=[port]).stdout.splitlines()
    assert "rebalance_completed" in lines[0]
    assert r"member \x1b[2Jabducted" in lines[1]


@pytest.mark.parametrize(
    "arguments", [["list"], ["describe", "g"], ["members", "g"], ["offsets", "g"], ["timeline", "g"], ["top"]]
)
def test_unreachable_sidecar_is_reported(arguments: list[str]) -> None:
    """An unreachable sidecar is one line with status 2, and the other sidecars' data are shown."""
    port = AdminPort([group("g")])
    with listening(port):
        alone = run(*arguments, ports=[port])
        result = run(*arguments, ports=[DOWN, port])
        as_json = run(*arguments, "--json", ports=[port, DOWN])
    assert alone.exit_code == 0
    assert (result.exit_code, result.stdout, result.stderr) == (2, alone.stdout, f"group-sidecar: {UNREACHABLE}\n")
    assert as_json.exit_code == 2
    assert json.loads(as_json.stdout)["problems"] == [UNREACHABLE]


@pytest.mark.parametrize(
    "arguments", [["list"], ["describe", "g"], ["members", "g"], ["offsets", "g"], ["timeline", "g"], ["top", "--json"]]
)
def test_all_sidecars_unreachable_fails(arguments: list[str]) -> None:
    """If all sidecars are unreachable, the command fails with status 2."""
    failed(run(*arguments, ports=[DOWN]), 2, UNREACHABLE)


@pytest.mark.parametrize("command", ["describe", "members", "offsets", "timeline"])
def test_unknown_group_is_not_found(command: str) -> None:
    """A group that no sidecar knows fails with status 1, or with status 2 if a sidecar is unreachable."""
    ports = AdminPort([group("other")]), AdminPort()
    with listening(*ports):
        failed(run(command, "g", ports=ports), 1, "Group g not found.")
        result = run(command, "g", ports=[*ports, DOWN])
    assert (result.exit_code, result.stdout) == (2, "")
    assert sorted(result.stderr.splitlines()) == [
        f"group-sidecar: {UNREACHABLE}",
        "group-sidecar: Group g not found.",
    ]


def test_any_text_is_valid_group_name() -> None:
    """Any text, also the empty one, can name a group."""
    name = "a/b?c=d&e%20 ü\n"
    port = AdminPort([group(name), group("")])
    with listening(port):
        assert answered(run("describe", name, "--json", ports=[port]))["group"] == name
        assert answered(run("describe", "", "--json", ports=[port]))["group"] == ""


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((404, b'{"error": "not found", "paths": []}'), "has no /api/v1/group: it is older, or not the admin port"),
        ((500, b"oops"), "answers /api/v1/group with status 500"),
        ((400, b'{"error": "name one group"}'), "answers /api/v1/group with status 400: name one group"),
        ((401, b"{}"), "wants a token: --token-file FILE"),
        ((403, b'{"error": "no token here"}'), "answers /api/v1/group with status 403: no token here"),
        ((302, b""), "answers /api/v1/group with status 302"),
        ((200, b"<html>"), "does not answer as a sidecar's admin port"),
        ((200, b"[]"), "does not answer as a sidecar's admin port"),
        ((200, b'{"group": "g"}'), "does not answer as a sidecar's admin port"),
        ((200, b'{"group": "g", "members": "many"}'), "does not answer as a sidecar's admin port"),
    ],
)
def test_unexpected_reply_fails_with_hint(reply: tuple[int, bytes], message: str) -> None:
    """An unexpected reply of an admin port fails with one line that explains it."""
    port = AdminPort(failing=reply)
    with listening(port):
        result = run("describe", "g", ports=[port])
    assert (result.exit_code, result.stdout) == (1, "")
    [line] = result.stderr.splitlines()
    assert line.startswith(f"group-sidecar: {port.address} {message}")


def test_invalid_offsets_reply_fails() -> None:
    """Offsets of an invalid form fail with one line."""
    port = AdminPort([group("g")], offsets={"g": [{"topic": "t", "partition": "first"}]})
    with listening(port):
        failed(run("offsets", "g", ports=[port]), 1, f"{port.address} does not answer as a sidecar's admin port")


@pytest.mark.parametrize("at", ["yesterday", None, 5])
def test_event_without_time_fails(at: object) -> None:
    """A timeline event without a valid time fails with one line."""
    port = AdminPort([group("g")], timelines={"g": [{"at": at, "what": "member_joined"}]})
    with listening(port):
        failed(run("timeline", "g", ports=[port]), 1, f"{port.address} does not answer as a sidecar's admin port")


@pytest.mark.parametrize("host", ["a..b", "xn--", "é" * 70, "nosuch.invalid"])
def test_invalid_hostname_fails(host: str) -> None:
    """An invalid or unknown host name fails with status 2 and one line."""
    result = run("list", "--sidecar", f"{host}:9464")
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert line.startswith(f"group-sidecar: {host}:9464 cannot be reached: ")


def test_token_file_grants_access(tmp_path: Path) -> None:
    """A token file grants access to an admin port. A missing or wrong token fails with a hint."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("hunter2\n")
    wrong.write_text("hunter3\n")
    port = AdminPort([group("g")], token="hunter2")
    with listening(port):
        assert answered(run("list", "--json", "--token-file", str(right), ports=[port]))["groups"]
        failed(run("list", ports=[port]), 1, f"{port.address} wants a token: --token-file FILE")
        failed(run("list", "--token-file", str(wrong), ports=[port]), 1, f"{port.address} refuses this token")


def test_silent_admin_port_times_out() -> None:
    """An admin port that does not answer fails after the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        result = run("list", "--timeout", "0.2", ports=[AdminPort(address=address)])
    failed(result, 2, f"{address} did not answer within 0.2 s")


@pytest.mark.timeout(30)
def test_trickling_reply_times_out() -> None:
    """A reply that arrives byte by byte fails after the timeout."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as slow:

        def trickle() -> None:
            connection, _ = slow.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                while not ended.wait(0.01):
                    connection.sendall(b"x")

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        address = f"127.0.0.1:{slow.getsockname()[1]}"
        result = run("list", "--timeout", "0.5", ports=[AdminPort(address=address)])
        ended.set()
        thread.join(10)
    failed(result, 2, f"{address} did not answer within 0.5 s")


def test_https_uses_given_authorities(tmp_path: Path) -> None:
    """An HTTPS admin port is trusted only if --ca-file contains its authority."""
    ours, others, file = trustme.CA(), trustme.CA(), tmp_path / "ca.pem"
    port = AdminPort([group("g")], tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    assert port.tls
    ours.issue_cert("127.0.0.1").configure_cert(port.tls)
    with listening(port):
        url = f"https://{port.address}"
        ours.cert_pem.write_to_path(file)
        output = answered(run("list", "--json", "--sidecar", url, "--ca-file", str(file)))
        others.cert_pem.write_to_path(file)
        result = run("list", "--sidecar", url, "--ca-file", str(file))
    assert output["groups"][0]["sidecar"] == url
    assert result.exit_code == 2
    assert result.stderr.startswith(f"group-sidecar: {url} cannot be reached: ")
    assert "certificate" in result.stderr


def test_plain_port_fails_with_tls() -> None:
    """An HTTPS request to a plain port fails with status 2."""
    port = AdminPort()
    with listening(port):
        result = run("list", "--sidecar", f"https://{port.address}")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"group-sidecar: https://{port.address} cannot be reached: no TLS: ")


def test_ports_that_do_not_speak_http(tmp_path: Path) -> None:
    """The error names what a port speaks that is not an admin port without TLS, and what to do."""
    with kafka_port(ScriptedBroker()) as shell:
        address = shell.addresses[0]
        result = run("list", "--sidecar", str(address))
    assert result.exit_code == 2
    text = "speaks Kafka, not HTTP: --bootstrap asks a port for Kafka clients"
    assert result.stderr == f"group-sidecar: {address} {text}\n"
    with kafka_port(ScriptedBroker(), server_context(Authority(tmp_path), "127.0.0.1")) as shell:
        address = shell.addresses[0]
        result = run("list", "--sidecar", str(address))
    assert result.exit_code == 2
    text = "speaks TLS: if it is an admin port, write https:// before its address"
    assert result.stderr == f"group-sidecar: {address} {text}\n"


def test_sidecars_are_read_from_a_list() -> None:
    """A list of sidecars can have comments, empty lines and URLs."""
    ports = AdminPort([group("a")]), AdminPort([group("b")])
    with listening(*ports):
        fleet = f"# all\n{ports[0].address}\n\nhttp://{ports[1].address}/\n"
        output = answered(run("list", "--json", "--all-sidecars", "-", input=fleet))
    assert [one["group"] for one in output["groups"]] == ["a", "b"]


def test_concurrency_limit_skips_no_sidecar(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sidecars are asked although fewer are asked at the same time."""
    monkeypatch.setattr(sidecar_queries, "AT_ONCE", 1)
    ports = [AdminPort([group(f"g-{number}")]) for number in range(4)]
    with listening(*ports):
        output = answered(run("list", "--json", ports=ports))
    assert len(output["groups"]) == 4


@pytest.mark.parametrize("arguments", [["timeline", "g"], ["why", "g"], ["top"], ["list", "--verbose"]])
def test_sidecar_only_commands_refuse_broker(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that need a sidecar refuse --bootstrap with status 2."""
    monkeypatch.setenv("COLUMNS", "200")
    result = run(*arguments, "--bootstrap", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Only the admin port of a sidecar knows that: --sidecar or --all-sidecars." in result.stderr
