"""The steps of the demo. Each step queries the running system, and prints and checks the result."""

import json
import subprocess
import sys
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from prometheus_client.parser import text_string_to_metric_families

from group_sidecar.demo.cluster import QUIET
from group_sidecar.demo.demo_output import DemoOutput
from group_sidecar.demo.gateway import Gateway
from group_sidecar.demo.group_clients import GroupClients, wait_for

TOPIC = "orders"
PARTITIONS = 4
GROUPS = {"billing": 3, "shipping": 2}
"""Number of members of each group that stays until the end."""
ARCHIVE = "archive"
"""A group whose only member leaves, so that its lag grows."""
REFUSED = 77
PREFIX = "group_sidecar_"
SHOWN = (
    "group_sidecar_groups",
    "group_sidecar_rebalances_total",
    "group_sidecar_policy_evaluations_total",
    "group_sidecar_policy_rejections_total",
    "group_sidecar_mirror_answers_total",
    "group_sidecar_offset_commits_total",
    "group_sidecar_client_connections",
)
Metrics = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def old_admin(bootstrap: str) -> KafkaAdminClient:
    """Returns a client that sends OffsetFetch v2, as in Kafka 0.10.2, the first version with KIP-88."""
    return KafkaAdminClient(bootstrap_servers=bootstrap, api_version=(0, 10, 2), client_id="auditor")


def start_clients(output: DemoOutput, crowd: GroupClients) -> None:
    """Starts all clients and waits until their groups are stable. The only member of `ARCHIVE` then leaves."""
    crowd.produce(TOPIC, 200)
    for group, members in {**GROUPS, ARCHIVE: 1}.items():
        crowd.join(group, TOPIC, members)
    with output.waiting("consumers join their groups"):
        settled = wait_for(
            lambda: all(
                member.assigned and sum(m.consumed for m in crowd.of(member.group)) >= 200 for member in crowd.members
            ),
            25,
        )
    output.check(
        settled, f"{len(crowd.members)} consumers of {len(GROUPS) + 1} groups share {TOPIC} and read all of it"
    )
    for member in crowd.of(ARCHIVE):
        member.leave()
    crowd.produce(TOPIC, 120)
    output.check(wait_until_committed(crowd, 320), f"the only member leaves {ARCHIVE}, and the others continue")


def wait_until_committed(crowd: GroupClients, records: int) -> bool:
    """Returns whether each of `GROUPS` has committed `records` records within 15 seconds."""
    return wait_for(lambda: all(sum(committed(crowd, group).values()) == records for group in GROUPS), 15)


def committed(crowd: GroupClients, group: str) -> dict[tuple[str, int], int]:
    """Returns the committed offsets of a group, as its members fetch them."""
    return {partition: offset for member in crowd.of(group) for partition, offset in member.committed().items()}


def list_and_describe(output: DemoOutput, crowd: GroupClients, gateway: Gateway) -> None:
    """Lists and describes the groups of a cluster that supports neither ListGroups nor DescribeGroups."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap}, logger=QUIET)
    listed = admin.list_consumer_groups(request_timeout=5).result()
    names = {group.group_id: group.state.name for group in listed.valid}
    described = {g: f.result() for g, f in admin.describe_consumer_groups(sorted(names), request_timeout=5).items()}
    output.table(
        ("GROUP", "STATE", "MEMBERS", "ASSIGNOR", "COORDINATOR", "PARTITIONS BY MEMBER"),
        [
            (
                group,
                reported.state.name,
                len(reported.members),
                reported.partition_assignor or "-",
                f"{reported.coordinator.host}:{reported.coordinator.port}",
                "  ".join(
                    f"{m.client_id}:{','.join(str(p.partition) for p in m.assignment.topic_partitions)}"
                    for m in sorted(reported.members, key=lambda member: member.client_id)
                )
                or "-",
            )
            for group, reported in described.items()
        ],
    )
    output.check(set(names) == {*GROUPS, ARCHIVE} and not listed.errors, "ListGroups returns exactly these groups")
    output.check(
        all(_assignment_matches(crowd, group, reported) for group, reported in described.items() if group in GROUPS),
        "DescribeGroups returns each member's partitions as the member knows them",
    )


def _assignment_matches(crowd: GroupClients, group: str, description: object) -> bool:
    members = getattr(description, "members", [])
    known = {m.name: sorted(p.partition for p in m.assigned) for m in crowd.of(group)}
    return known == {m.client_id: sorted(p.partition for p in m.assignment.topic_partitions) for m in members}


def fetch_offsets(output: DemoOutput, crowd: GroupClients, gateway: Gateway) -> None:
    """Fetches all offsets of each group by OffsetFetch v2 with null topics (KIP-88)."""
    expected = {group: committed(crowd, group) for group in GROUPS}
    admin = old_admin(gateway.bootstrap)
    try:
        reported = {group: admin.list_group_offsets(group)[group] for group in (*GROUPS, ARCHIVE)}
    finally:
        admin.close()
    offsets = {group: {(tp.topic, tp.partition): o.offset for tp, o in reported[group].items()} for group in reported}
    output.table(
        ("GROUP", *(f"{TOPIC}-{p}" for p in range(PARTITIONS))),
        [(group, *(offsets[group].get((TOPIC, p), "-") for p in range(PARTITIONS))) for group in offsets],
    )
    output.check(
        all(offsets[group] == expected[group] and len(expected[group]) == PARTITIONS for group in GROUPS),
        "OffsetFetch v2 with null topics returns all offsets, equal to those that the members fetch",
    )
    output.check(sum(offsets[ARCHIVE].values()) >= 200, "OffsetFetch returns the offsets of an empty group")


def refuse(output: DemoOutput, crowd: GroupClients, gateway: Gateway, limit: int) -> None:
    """Starts one consumer more than the limit allows, and checks that the sidecar refuses this consumer."""
    before = {member.name: member.assigned for member in crowd.of("billing")}
    (late,) = [*crowd.join("billing", TOPIC, 1)]
    with output.waiting("a fourth consumer tries to join billing"):
        wait_for(lambda: late.error is not None, 15)
    code = late.error.code() if late.error else None
    output.say(f"  its error: {code}, {late.error.str() if late.error else '-'}")
    output.check(
        code == REFUSED and not late.assigned,
        f"refused with error {REFUSED} at group.max.size {limit}",
    )
    late.leave()
    crowd.produce(TOPIC, 40)
    stays = [member for member in crowd.of("billing") if member.name in before]
    output.check(
        wait_until_committed(crowd, 360) and all(before[m.name] == m.assigned and m.error is None for m in stays),
        "the other three keep their partitions and continue to read",
    )


def explain(output: DemoOutput, crowd: GroupClients, gateway: Gateway) -> None:
    """Makes a member leave, and checks that the sidecar explains why the group rebalanced."""
    leaver, *others = crowd.of("shipping")
    leaver.leave()
    with output.waiting(f"{leaver.name} leaves shipping"):
        taken_over = wait_for(lambda: sum(len(member.assigned) for member in others) == PARTITIONS, 15)
    command = [sys.executable, "-m", "group_sidecar.proxy.cli", "groups", "why", "shipping", "--sidecar", gateway.admin]
    as_json = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    output.say(subprocess.run(command, capture_output=True, text=True, check=False).stdout.rstrip())
    reported = json.loads(as_json.stdout) if as_json.stdout else {"causes": []}
    causes = {cause["cause"]: (cause["by"] or {}).get("client_id") for cause in reported["causes"]}
    output.check(
        taken_over and causes.get("member_left") == leaver.name,
        f"groups why: shipping rebalanced because {leaver.name} left",
    )
    page = gateway.get("/group?group=shipping")
    output.check(
        "<svg" in page and leaver.name in page, f"the page shows it: http://{gateway.admin}/group?group=shipping"
    )


def scrape(output: DemoOutput, gateway: Gateway) -> None:
    """Prints and checks the metrics that Prometheus would scrape."""
    text = gateway.get("/metrics")
    metrics = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    shown = [(name, labels, value) for (name, labels), value in metrics.items() if name in SHOWN and value]
    output.table(
        (f"{PREFIX}…", "LABELS", "VALUE"),
        [(name.removeprefix(PREFIX), " ".join(f"{k}={v}" for k, v in labels), int(v)) for name, labels, v in shown],
    )
    answered = ("ListGroups", "DescribeGroups", "OffsetFetch")
    output.check(
        all(_value(metrics, "group_sidecar_mirror_answers_total", api=api) > 0 for api in answered),
        "each of the three APIs was answered from the sidecar's own state",
    )
    refusals = _value(metrics, "group_sidecar_policy_rejections_total", policy="group_max_size")
    output.check(refusals > 0, f"{int(refusals)} refused joins are counted")
    output.check(_value(metrics, "group_sidecar_rebalances_total") >= len(GROUPS) + 1, "rebalances are counted")


def _value(metrics: Metrics, name: str, **labels: str) -> float:
    return sum(v for (n, pairs), v in metrics.items() if n == name and labels.items() <= dict(pairs).items())


def aggregate(output: DemoOutput, crowd: GroupClients, gateway: Gateway) -> None:
    """Aggregates the journal's records with Spark, and compares the lag with the lag that clients compute."""
    admin = old_admin(gateway.bootstrap)
    try:
        reported = {group: admin.list_group_offsets(group)[group] for group in (*GROUPS, ARCHIVE)}
    finally:
        admin.close()
    ends = crowd.ends(TOPIC, PARTITIONS)
    expected = {g: sum(ends.values()) - sum(o.offset for o in reported[g].values()) for g in reported}
    sealed = len(gateway.sealed())
    with output.waiting("the sidecar exports its current state"):
        wait_for(lambda: len(gateway.sealed()) >= sealed + 2, 15)
    with output.waiting("Spark reads the sidecar's records"):
        job = [sys.executable, "-m", "group_sidecar.spark", "run", "--input", str(gateway.journal), "--json"]
        done = subprocess.run(job, capture_output=True, text=True, check=False)
    if done.returncode == NO_JAVA:
        output.skip_check(done.stderr.strip().splitlines()[-1])
        return
    rows = {row["group"]: row for row in map(json.loads, done.stdout.splitlines())} if not done.returncode else {}
    if not rows:
        output.say(done.stderr)
    columns = ("group", "state", "members", "rebalances", "refusals", "lag")
    output.table(tuple(c.upper() for c in columns), [tuple(row[c] for c in columns) for _, row in sorted(rows.items())])
    output.check(set(expected) <= rows.keys(), "Spark has every group")
    output.check(bool(rows) and all(rows[g]["rebalances"] > 0 for g in GROUPS), "rebalances per group")
    output.check(bool(rows) and rows["billing"]["refusals"] > 0, "refusals per group")
    output.check(
        bool(rows) and all(rows[g]["lag"] == lag for g, lag in expected.items()) and expected[ARCHIVE] >= 160,
        f"lag per group, equal to the lag that clients compute ({ARCHIVE}: {expected[ARCHIVE]})",
    )


NO_JAVA = 3
"""Exit status of the Spark job if Java is missing."""
