"""``group-sidecar groups`` prints the same about a group for a broker, for a sidecar, and for its admin port.

Members and offsets are also compared with the output of ``kafka-consumer-groups``.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from group_sidecar.proxy.commandline.groups import groups_app
from tests.conformance.held_groups import GROUPS, population
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import CONSUMER_GROUPS, kafka_tool

PREFIX = "seen"
KNOWN_TO_ALL = ("group", "protocol", "state", "protocol_type")


@dataclass(frozen=True)
class Stage:
    """A broker with groups, and a sidecar in front of it. `ways` are the flags that name them."""

    broker: KafkaBroker
    sidecar: SidecarProcess

    @property
    def ways(self) -> tuple[tuple[str, str], ...]:
        return (
            ("--bootstrap", host_port(self.broker.direct)),
            ("--bootstrap", host_port(self.broker.sidecar)),
            ("--sidecar", host_port(self.sidecar.admin)),
        )

    @property
    def admin(self) -> tuple[str, str]:
        return self.ways[-1]

    def printed(self, *arguments: str, status: int = 0) -> str:
        """Runs a command in this process, because a new process takes most of a second. Returns the output."""
        done = CliRunner().invoke(groups_app, arguments, catch_exceptions=False)
        assert done.exit_code == status, done.output
        return done.stdout

    def run_json(self, *arguments: str) -> Any:
        return json.loads(self.printed(*arguments, "--json"))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("groups-commands")
    settings = {"policies": {"group_max_size": {"limit": 5}}}
    with KafkaBroker(folder / "broker") as broker:
        broker.wait_for_coordinator()
        with SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=settings) as sidecar:
            sidecar.wait_for_log()
            with population(Run(Route("sidecar", broker.sidecar, broker.sasl_sidecar), PREFIX)):
                yield Stage(broker, sidecar)


def name(group: str) -> str:
    return f"{PREFIX}-{group}"


def test_all_list_the_same_groups(stage: Stage) -> None:
    """The list command gives the same groups from the broker, through the sidecar and from the admin port."""
    direct, through, admin = (
        [{key: group[key] or None for key in KNOWN_TO_ALL} for group in stage.run_json("list", *way)["groups"]]
        for way in stage.ways
    )
    assert {name(group) for group in GROUPS} <= {group["group"] for group in direct}
    assert direct == through == admin


@pytest.mark.parametrize("group", ["stable", "static", "new", "empty"])
def test_all_describe_the_same_members(stage: Stage, group: str) -> None:
    """The describe command gives the same members from the broker, through the sidecar and from the admin port."""

    def members(output: Any) -> Any:
        keys = ("member_id", "instance_id", "client_id", "client_host", "assignment")
        found = [{key: member[key] for key in keys} for member in output["member_list"]]
        for member in found:
            member["assignment"] = {topic: sorted(read) for topic, read in member["assignment"].items()}
        return output["state"], sorted(found, key=lambda member: member["member_id"])

    direct, through, admin = (members(stage.run_json("describe", name(group), *way)) for way in stage.ways)
    assert direct == through == admin
    assert group == "empty" or direct[1]


@pytest.mark.parametrize("group", ["stable", "static", "simple", "empty"])
def test_all_report_the_same_offsets(stage: Stage, group: str) -> None:
    """The offsets command gives the same offsets from the broker, through the sidecar and from the admin port."""
    keys = ("topic", "partition", "current_offset", "metadata", "member_id", "client_host")
    direct, through, admin = (
        [{key: row[key] for key in keys} for row in stage.run_json("offsets", name(group), *way)["offsets"]]
        for way in stage.ways
    )
    assert [{**row, "metadata": row["metadata"] or None} for row in direct] == [
        {**row, "metadata": row["metadata"] or None} for row in admin
    ]
    assert direct == through
    assert direct


def test_members_match_kafkas_tool(stage: Stage) -> None:
    """The members command prints the same members as kafka-consumer-groups."""
    columns = ("CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
    arguments = ("--describe", "--members", "--verbose", "--group", name("stable"))
    bootstrap = host_port(stage.broker.direct)
    theirs = columns_of(kafka_tool(CONSUMER_GROUPS, "--bootstrap-server", bootstrap, *arguments), columns)
    assert len(theirs) == 2
    for way in stage.ways:
        assert columns_of(stage.printed("members", name("stable"), *way), columns) == theirs


def test_offsets_match_kafkas_tool(stage: Stage) -> None:
    """The offsets command prints the same offsets and lag as kafka-consumer-groups."""
    columns = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST")
    arguments = ("--describe", "--group", name("stable"))
    bootstrap = host_port(stage.broker.direct)
    theirs = columns_of(kafka_tool(CONSUMER_GROUPS, "--bootstrap-server", bootstrap, *arguments), columns)
    assert len(theirs) == 4
    for way in stage.ways[:2]:
        assert columns_of(stage.printed("offsets", name("stable"), *way), columns) == theirs


def columns_of(text: str, wanted: tuple[str, ...]) -> list[list[str]]:
    """Returns these columns of a table, with sorted rows."""
    headings, *rows = [line.split() for line in text.splitlines() if line.strip()]
    places = [headings.index(heading) for heading in wanted]
    return sorted([row[place] for place in places] for row in rows)


def test_timeline_and_why(stage: Stage) -> None:
    """The timeline and why commands report the group's joins, rebalances and causes."""
    output = stage.run_json("timeline", name("stable"), *stage.admin)
    assert [cell["what"] for cell in output["timeline"]].count("member_joined") == 2
    lines = stage.printed("timeline", name("stable"), *stage.admin).splitlines()
    assert len(lines) == len(output["timeline"])
    assert any(f"{name('stable-1')} at 127.0.0.1 joined" in line for line in lines)
    why = stage.run_json("why", name("stable"), *stage.admin)
    assert why["rebalances"] == sum(cell["what"] == "rebalance_completed" for cell in output["timeline"]) > 0
    assert {cause["cause"] for cause in why["causes"]} == {"new_member"}
    assert stage.printed("why", name("stable"), *stage.admin).startswith(why["summary"])


def test_top_shows_limits_and_lag(stage: Stage) -> None:
    """The top command reports the members and limits of all groups."""
    groups = {group["group"]: group for group in stage.run_json("top", *stage.admin)["groups"]}
    assert groups[name("stable")]["members"] == 2
    assert groups[name("stable")]["limit"] == 5
    headings, *rows = stage.printed("top", *stage.admin).splitlines()
    assert headings.split()[0] == "GROUP"
    assert {row.split()[0] for row in rows} == set(groups)


def test_unknown_group_exits_with_error(stage: Stage) -> None:
    """The describe, members and offsets commands print nothing for an unknown group and exit with status 1."""
    for way in stage.ways:
        for command in ("describe", "members", "offsets"):
            assert stage.printed(command, "nobody", *way, status=1) == ""
