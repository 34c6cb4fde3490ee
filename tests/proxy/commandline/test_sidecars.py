"""What is asked of which admin port, and what comes of it: `list`, `describe`, `members`, `offsets`, `timeline`."""

import json
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from group_sidecar.proxy.commandline import sidecars
from tests.proxy.commandline.admin_ports import AdminPort, answered, group, listening, run
from tests.proxy.commandline.groups_shell import failed

DOWN = AdminPort(address="127.0.0.1:1")
UNREACHABLE = "127.0.0.1:1 cannot be reached: Connection refused"
MEMBER = {
    "member_id": "m-1",
    "instance_id": None,
    "client_id": "app",
    "client_host": "/10.0.0.7",
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
}


def joined(at: str, member_id: str) -> dict[str, Any]:
    return {
        "at": at,
        "what": "member_joined",
        "member_id": member_id,
        "client_id": "app",
        "client_host": "/10.0.0.7",
        "instance_id": None,
        "said": "",
    }


def test_list_has_the_groups_of_all_sidecars() -> None:
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


def test_list_with_what_only_sidecars_know() -> None:
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


def test_list_as_json_has_what_was_told_and_by_whom() -> None:
    port = AdminPort([group("g")])
    with listening(port):
        told = answered(run("list", "--json", ports=[port]))
    assert told == {"groups": [group("g", sidecar=port.address)], "problems": []}


GONE = {"broker": "b:9092", "since": "2026-11-21T13:59:00.000Z", "reason": "Connection refused"}


@pytest.mark.parametrize("groups", [[], [group("g")]])
@pytest.mark.parametrize("arguments", [["list"], ["top", "--once"]])
def test_unreachable_broker_is_a_line_and_a_status(groups: list[dict[str, Any]], arguments: list[str]) -> None:
    """What the sidecar still tells of groups is shown nevertheless."""
    port, well = AdminPort(groups, unreachable=[GONE]), AdminPort([group("w")], unreachable=[])
    with listening(port, well):
        result = run(*arguments, ports=[port, well])
    said = f"{port.address}: broker b:9092 unreachable since 2026-11-21T13:59:00.000Z: Connection refused"
    assert (result.exit_code, result.stderr) == (2, f"group-sidecar: {said}\n")
    assert "w " in result.stdout
    assert ("g " in result.stdout) is bool(groups)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("command", ["describe", "members", "offsets", "timeline", "why"])
def test_unreachable_broker_is_named_beside_one_group(command: str, known: bool) -> None:
    """A broker that resigns before it goes takes its groups along: "not found" alone would mislead."""
    port = AdminPort([group("g")] if known else [], unreachable=[GONE])
    with listening(port):
        result = run(command, "g", ports=[port])
    gone = f"{port.address}: broker b:9092 unreachable since 2026-11-21T13:59:00.000Z: Connection refused"
    said = [gone] if known else ["Group g not found.", gone]
    assert (result.exit_code, result.stderr.splitlines()) == (2, [f"group-sidecar: {line}" for line in said])
    assert bool(result.stdout) is (known and command != "timeline")


def test_unreachable_broker_in_json() -> None:
    port = AdminPort([], unreachable=[GONE])
    with listening(port):
        result = run("list", "--json", ports=[port])
    assert result.exit_code == 2
    [problem] = json.loads(result.stdout)["problems"]
    assert "broker b:9092 unreachable since" in problem


def test_list_filters() -> None:
    port = AdminPort([group("a", state="Empty"), group("b", protocol="consumer"), group("c")])
    with listening(port):
        by_state = answered(run("list", "--json", "--state", "stable", ports=[port]))
        by_both = answered(run("list", "--json", "--state", "stable", "--type", "consumer", ports=[port]))
    assert [one["group"] for one in by_state["groups"]] == ["b", "c"]
    assert [one["group"] for one in by_both["groups"]] == ["b"]


def test_list_takes_page_after_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecars, "PAGE", 2)
    port = AdminPort([group(f"g-{number}") for number in range(5)])
    with listening(port):
        told = answered(run("list", "--json", ports=[port]))
    assert [one["group"] for one in told["groups"]] == [f"g-{number}" for number in range(5)]
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
def test_of_a_group_that_two_tell_of_the_better_copy_counts(
    better: dict[str, Any], worse: dict[str, Any], first: bool
) -> None:
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
    with listening(port := AdminPort([group("g")], {"g": {"leader": "", "member_list": [], **detail}})):
        assert "COORDINATOR" not in run("describe", "g", ports=[port]).stdout
        told = json.loads(run("describe", "g", "--json", ports=[port]).stdout)
    assert told["coordinator"] is None


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
        told = answered(run("offsets", "g", "--json", ports=[port]))
    assert lines == [
        "GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST       CLIENT-ID  METADATA",
        "g      t      0          7               10              3    m-1          /10.0.0.7  app        note",
    ]
    assert told == {"group": "g", "state": "Stable", "offsets": [OFFSET], "sidecar": port.address, "problems": []}


def test_timelines_are_merged_by_time() -> None:
    first, second, third = (joined(f"2026-11-21T13:59:0{number}.250Z", f"m-{number}") for number in (1, 2, 3))
    ports = AdminPort([group("g")], timelines={"g": [first, third]}), AdminPort([group("g")], timelines={"g": [second]})
    with listening(*ports, AdminPort()):
        told = answered(run("timeline", "g", "--json", ports=ports))
        lines = run("timeline", "g", "--utc", ports=ports).stdout.splitlines()
    assert told["timeline"] == [
        first | {"sidecar": ports[0].address},
        second | {"sidecar": ports[1].address},
        third | {"sidecar": ports[0].address},
    ]
    assert [line[:26] for line in lines] == [f"2026-11-21 13:59:0{number}.250Z  " for number in (1, 2, 3)]
    assert all("app at 10.0.0.7 joined" in line for line in lines)


def test_a_timeline_since_lately() -> None:
    told = [joined("2001-01-01T00:00:00.000Z", "old"), joined("2901-01-01T00:00:00.000Z", "new")]
    port = AdminPort([group("g")], timelines={"g": told})
    with listening(port):
        found = answered(run("timeline", "g", "--json", "--since", "1h30m", ports=[port]))
    assert [cell["member_id"] for cell in found["timeline"]] == ["new"]


def test_cells_of_another_version_are_shown_nevertheless() -> None:
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
def test_a_sidecar_that_is_down_is_a_line_and_what_others_told_is_shown(arguments: list[str]) -> None:
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
def test_all_sidecars_are_down(arguments: list[str]) -> None:
    failed(run(*arguments, ports=[DOWN]), 2, UNREACHABLE)


@pytest.mark.parametrize("command", ["describe", "members", "offsets", "timeline"])
def test_a_group_that_nobody_knows(command: str) -> None:
    ports = AdminPort([group("other")]), AdminPort()
    with listening(*ports):
        failed(run(command, "g", ports=ports), 1, "Group g not found.")
        result = run(command, "g", ports=[*ports, DOWN])
    assert (result.exit_code, result.stdout) == (2, "")
    assert sorted(result.stderr.splitlines()) == [
        f"group-sidecar: {UNREACHABLE}",
        "group-sidecar: Group g not found.",
    ]


def test_any_text_names_a_group() -> None:
    name = "a/b?c=d&e%20 ü\n"
    port = AdminPort([group(name), group("")])
    with listening(port):
        assert answered(run("describe", name, "--json", ports=[port]))["group"] == name
        assert answered(run("describe", "", "--json", ports=[port]))["group"] == ""


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ((404, b'{"error": "not found", "paths": []}'), "has no /api/v1/group: it is older, or not the admin port"),
        ((500, b"oops"), "answers /api/v1/group with status 500"),
        ((400, b'{"error": "name one group"}'), "answers /api/v1/group with status 400: name one group"),
        ((403, b"{}"), "wants a token: --token-file FILE"),
        ((302, b""), "answers /api/v1/group with status 302"),
        ((200, b"<html>"), "does not answer as a sidecar's admin port"),
        ((200, b"[]"), "does not answer as a sidecar's admin port"),
        ((200, b'{"group": "g"}'), "does not answer as a sidecar's admin port"),
        ((200, b'{"group": "g", "members": "many"}'), "does not answer as a sidecar's admin port"),
    ],
)
def test_what_answers_otherwise(reply: tuple[int, bytes], said: str) -> None:
    port = AdminPort(failing=reply)
    with listening(port):
        result = run("describe", "g", ports=[port])
    assert (result.exit_code, result.stdout) == (1, "")
    [line] = result.stderr.splitlines()
    assert line.startswith(f"group-sidecar: {port.address} {said}")


def test_offsets_that_cannot_be_read() -> None:
    port = AdminPort([group("g")], offsets={"g": [{"topic": "t", "partition": "first"}]})
    with listening(port):
        failed(run("offsets", "g", ports=[port]), 1, f"{port.address} does not answer as a sidecar's admin port")


@pytest.mark.parametrize("at", ["yesterday", None, 5])
def test_a_cell_without_a_time(at: object) -> None:
    port = AdminPort([group("g")], timelines={"g": [{"at": at, "what": "member_joined"}]})
    with listening(port):
        failed(run("timeline", "g", ports=[port]), 1, f"{port.address} does not answer as a sidecar's admin port")


@pytest.mark.parametrize("host", ["a..b", "xn--", "é" * 70, "nosuch.invalid"])
def test_a_name_that_cannot_be(host: str) -> None:
    result = run("list", "--sidecar", f"{host}:9464")
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert line.startswith(f"group-sidecar: {host}:9464 cannot be reached: ")


def test_a_token_opens_an_admin_port(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("hunter2\n")
    wrong.write_text("hunter3\n")
    port = AdminPort([group("g")], token="hunter2")
    with listening(port):
        assert answered(run("list", "--json", "--token-file", str(right), ports=[port]))["groups"]
        failed(run("list", ports=[port]), 1, f"{port.address} wants a token: --token-file FILE")
        failed(run("list", "--token-file", str(wrong), ports=[port]), 1, f"{port.address} does not take this token")


def test_one_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        result = run("list", "--timeout", "0.2", ports=[AdminPort(address=address)])
    failed(result, 2, f"{address} did not answer within 0.2 s")


@pytest.mark.timeout(30)
def test_one_that_answers_byte_by_byte() -> None:
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


def test_https_with_authorities_of_ones_own(tmp_path: Path) -> None:
    ours, others, file = trustme.CA(), trustme.CA(), tmp_path / "ca.pem"
    port = AdminPort([group("g")], tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    assert port.tls
    ours.issue_cert("127.0.0.1").configure_cert(port.tls)
    with listening(port):
        url = f"https://{port.address}"
        ours.cert_pem.write_to_path(file)
        told = answered(run("list", "--json", "--sidecar", url, "--ca-file", str(file)))
        others.cert_pem.write_to_path(file)
        result = run("list", "--sidecar", url, "--ca-file", str(file))
    assert told["groups"][0]["sidecar"] == url
    assert result.exit_code == 2
    assert result.stderr.startswith(f"group-sidecar: {url} cannot be reached: ")
    assert "certificate" in result.stderr


def test_one_that_speaks_no_tls() -> None:
    port = AdminPort()
    with listening(port):
        result = run("list", "--sidecar", f"https://{port.address}")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"group-sidecar: https://{port.address} cannot be reached: no TLS: ")


def test_sidecars_of_a_file() -> None:
    ports = AdminPort([group("a")]), AdminPort([group("b")])
    with listening(*ports):
        fleet = f"# all\n{ports[0].address}\n\nhttp://{ports[1].address}/\n"
        told = answered(run("list", "--json", "--all-sidecars", "-", input=fleet))
    assert [one["group"] for one in told["groups"]] == ["a", "b"]


def test_only_so_many_sidecars_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecars, "AT_ONCE", 1)
    ports = [AdminPort([group(f"g-{number}")]) for number in range(4)]
    with listening(*ports):
        told = answered(run("list", "--json", ports=ports))
    assert len(told["groups"]) == 4


@pytest.mark.parametrize("arguments", [["timeline", "g"], ["why", "g"], ["top"], ["list", "--verbose"]])
def test_a_broker_does_not_know_what_only_sidecars_know(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = run(*arguments, "--bootstrap", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Only the admin port of a sidecar knows that: --sidecar or --all-sidecars." in result.stderr
