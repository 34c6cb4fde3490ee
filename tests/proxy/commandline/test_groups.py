"""`group-sidecar groups`: arguments, exit codes and terminal output; and `list` from end to end."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.proxy.commandline import output, tables
from group_sidecar.proxy.commandline.groups import groups_app
from group_sidecar.proxy.commandline.results import GroupSummary
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.commandline.admin_ports import AdminPort, listening, run
from tests.proxy.commandline.admin_ports import group as group_content
from tests.proxy.commandline.groups_shell import (
    Shell,
    StartShell,
    classic_group,
    classic_member,
    failed,
    listed,
    shells,
)


@pytest.fixture
def shell() -> Iterator[StartShell]:
    with shells() as start:
        yield start


ORDERS = ("orders", "classic", "Stable", "consumer")
AUDIT = ("audit", "consumer", "Empty", "consumer")
SIMPLE = ("simple", "classic", "Empty", "")


def test_list_merges_all_brokers(shell: StartShell) -> None:
    """The list merges the groups of all brokers without duplicates."""
    two = shell({ListGroupsRequest: listed(SIMPLE, ORDERS)}, {ListGroupsRequest: listed(ORDERS, AUDIT)})
    result = two.run("list")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "GROUP   TYPE      STATE   PROTOCOL-TYPE",
        "audit   consumer  Empty   consumer",
        "orders  classic   Stable  consumer",
        "simple  classic   Empty   -",
    ]


def test_list_as_json(shell: StartShell) -> None:
    assert shell({ListGroupsRequest: listed(SIMPLE)}).json("list") == {
        "groups": [
            asdict(GroupSummary(group="simple", protocol="classic", state="Empty")),
        ],
        "problems": [],
    }


def test_empty_list_prints_headings(shell: StartShell) -> None:
    """An empty list prints the table headings only."""
    result = shell({ListGroupsRequest: listed()}).run("list")
    assert (result.exit_code, result.stdout) == (0, "GROUP  TYPE  STATE  PROTOCOL-TYPE\n")


def test_list_of_old_broker_lacks_state(shell: StartShell) -> None:
    """The list of an old broker has no states or types, and a state filter fails there."""
    old = shell({ListGroupsRequest: listed(ORDERS)}, versions={ListGroupsRequest: (0, 2), ApiVersionsRequest: (0, 2)})
    assert old.run("list").stdout.splitlines()[1] == "orders  -     -      consumer"
    group = old.json("list")["groups"][0]
    assert (group["state"], group["protocol"]) == (None, None)
    result = old.run("list", "--state", "stable")
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 1)
    assert result.stderr == f"group-sidecar: {old.addresses[0]} speaks ListGroups v0 to v2, where v4 to v5 is needed\n"


def test_list_sends_filters_to_broker(shell: StartShell) -> None:
    """State and type filters are sent to the broker in their proper spelling."""
    one = shell({ListGroupsRequest: listed(ORDERS)})
    assert one.run("list", "--state", "stable", "--state", "Empty", "--type", "CLASSIC").exit_code == 0
    assert one.brokers[0].requests(ListGroupsRequest) == [
        ListGroupsRequest(states_filter=("Stable", "Empty"), types_filter=("classic",))
    ]


def test_unreachable_broker_is_reported(shell: StartShell) -> None:
    """An unreachable broker is reported in one line with status 2, and the other brokers' groups are listed."""
    two = shell({ListGroupsRequest: listed(ORDERS)}, {})
    down = Address("127.0.0.1", 1)
    two.addresses[1] = down
    result = two.run("list")
    problem = f"{down} cannot be reached: Connection refused"
    assert (result.exit_code, result.stderr) == (2, f"group-sidecar: {problem}\n")
    assert result.stdout.splitlines()[1:] == ["orders  classic  Stable  consumer"]
    result = two.run("list", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["problems"] == [problem]


def test_loading_broker_is_retried(shell: StartShell) -> None:
    """The list is requested again while a broker is loading."""
    loading = [listed(error=14), listed(error=14)]
    one = shell({ListGroupsRequest: lambda request, version: loading.pop() if loading else listed(ORDERS)})
    assert [group["group"] for group in one.json("list")["groups"]] == ["orders"]


def test_loading_broker_times_out(shell: StartShell) -> None:
    """A broker that is still loading at the timeout fails with its error."""
    result = (one := shell({ListGroupsRequest: listed(error=14)})).run("list", "--timeout", "0.1")
    assert result.exit_code == 1
    assert result.stderr == f"group-sidecar: {one.addresses[0]} answers ListGroups: COORDINATOR_LOAD_IN_PROGRESS (14)\n"


@pytest.mark.parametrize("arguments", [["list"], ["describe", "g"], ["offsets", "g"]])
def test_unreachable_bootstrap_fails(arguments: list[str]) -> None:
    """An unreachable bootstrap broker fails with status 2 and one line."""
    failed(
        Shell().run(*arguments, bootstrap=Address("127.0.0.1", 1)),
        2,
        "127.0.0.1:1 cannot be reached: Connection refused",
    )


def test_broker_without_group_apis_fails(shell: StartShell) -> None:
    """A broker without DescribeGroups fails with one line."""
    one = shell({})
    failed(one.run("describe", "g"), 1, f"{one.addresses[0]} does not know DescribeGroups")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list"], "Name a target: --bootstrap, --sidecar or --all-sidecars."),
        (["list", "--bootstrap", "broker"], "must be HOST:PORT"),
        (["list", "--bootstrap", "broker:1", "--timeout", "0"], "must be more than 0"),
        (["list", "--bootstrap", "broker:1", "--timeout", "nan"], "must be more than 0"),
        (["list", "--bootstrap", "broker:1", "--state", "tired"], "'tired' is not one of"),
        (["describe", "--bootstrap", "broker:1"], "Missing argument"),
        (["describe", "x" * 32768, "--bootstrap", "broker:1"], "has 32768 bytes, 32767 are allowed"),
        (["offsets", "\udcff", "--bootstrap", "broker:1"], "is not UTF-8"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid arguments fail with status 2 and a message on standard error."""
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(groups_app, arguments, catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize("columns", ["200", "40"])
def test_terminal_keeps_all_columns(shell: StartShell, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """A narrow terminal shows all columns of the member table, and a wide one shows names unchanged."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(tables, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    one = shell(classic_group(classic_member(client_id="[bold]")))
    lines = one.run("describe", "g").stdout.splitlines()
    heading = next(line for line in lines if "CONSUMER-ID" in line)
    assert heading.split() == ["CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
    if columns == "200":
        assert lines[lines.index(heading) + 2].split() == ["m-1", "/10.0.0.7", "[bold]", "2", "t:0,1"]


@pytest.mark.parametrize(("columns", "wide"), [("200", True), ("100", False)])
def test_wide_terminal_shows_sidecar_columns(monkeypatch: pytest.MonkeyPatch, columns: str, wide: bool) -> None:
    """A wide terminal or --verbose shows the columns that only sidecars know."""
    monkeypatch.setenv("COLUMNS", columns)
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(tables, "sys", terminal)
    monkeypatch.setattr(output, "sys", terminal)
    port = AdminPort([group_content("g")])
    with listening(port):
        shown = run("list", "--utc", ports=[port]).stdout
        always = run("list", "--utc", "--verbose", ports=[port]).stdout
    assert ("LAST-REBALANCE" in shown) == wide
    assert "2026-11-21 13:59:00Z" in always  # The line is not wrapped, however narrow the terminal is.
