"""The acts of the demo: each asks something of the real system, shows it, and ticks it off or not.

Owns: what is asked and what must be seen. Must not know: how the cluster and the sidecar are run.
"""

import json
import subprocess
import sys
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from prometheus_client.parser import text_string_to_metric_families

from group_sidecar.demo.cluster import QUIET
from group_sidecar.demo.crowd import Crowd, wait_for
from group_sidecar.demo.gateway import Gateway
from group_sidecar.demo.stage import Stage

TOPIC = "orders"
PARTITIONS = 4
GROUPS = {"billing": 3, "shipping": 2}
"""Members by group that stay."""
ARCHIVE = "archive"
"""A group whose only member has gone, and which falls behind."""
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
    """A client as of Kafka 0.10.2, the first with KIP-88: it asks OffsetFetch v2."""
    return KafkaAdminClient(bootstrap_servers=bootstrap, api_version=(0, 10, 2), client_id="auditor")


def gather(stage: Stage, crowd: Crowd) -> None:
    """The crowd comes together: all groups settle, and one is left behind."""
    crowd.produce(TOPIC, 200)
    for group, members in {**GROUPS, ARCHIVE: 1}.items():
        crowd.join(group, TOPIC, members)
    with stage.waiting("consumers join their groups"):
        settled = wait_for(
            lambda: all(
                member.assigned and sum(m.consumed for m in crowd.of(member.group)) >= 200 for member in crowd.members
            ),
            25,
        )
    stage.check(
        settled, f"{len(crowd.members)} consumers of {len(GROUPS) + 1} groups share out {TOPIC}, and read it all"
    )
    for member in crowd.of(ARCHIVE):
        member.leave()
    crowd.produce(TOPIC, 120)
    stage.check(settled_at(crowd, 320), f"{ARCHIVE} is left by its only member; the others read on, and commit")


def settled_at(crowd: Crowd, records: int) -> bool:
    """Waits until every group that stays has committed so many records."""
    return wait_for(lambda: all(sum(committed(crowd, group).values()) == records for group in GROUPS), 15)


def committed(crowd: Crowd, group: str) -> dict[tuple[str, int], int]:
    """What a group's members say is committed of their partitions."""
    return {partition: offset for member in crowd.of(group) for partition, offset in member.committed().items()}


def list_and_describe(stage: Stage, crowd: Crowd, gateway: Gateway) -> None:
    """ListGroups and DescribeGroups, of a cluster that has neither."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap}, logger=QUIET)
    listed = admin.list_consumer_groups(request_timeout=5).result()
    names = {group.group_id: group.state.name for group in listed.valid}
    described = {g: f.result() for g, f in admin.describe_consumer_groups(sorted(names), request_timeout=5).items()}
    stage.table(
        ("GROUP", "STATE", "MEMBERS", "ASSIGNOR", "COORDINATOR", "PARTITIONS BY MEMBER"),
        [
            (
                group,
                told.state.name,
                len(told.members),
                told.partition_assignor or "-",
                f"{told.coordinator.host}:{told.coordinator.port}",
                "  ".join(
                    f"{m.client_id}:{','.join(str(p.partition) for p in m.assignment.topic_partitions)}"
                    for m in sorted(told.members, key=lambda member: member.client_id)
                )
                or "-",
            )
            for group, told in described.items()
        ],
    )
    stage.check(set(names) == {*GROUPS, ARCHIVE} and not listed.errors, "ListGroups tells all groups, and no other")
    stage.check(
        all(_assigned_as_told(crowd, group, told) for group, told in described.items() if group in GROUPS),
        "DescribeGroups tells each member's partitions as the member knows them",
    )


def _assigned_as_told(crowd: Crowd, group: str, told: object) -> bool:
    members = getattr(told, "members", [])
    known = {m.name: sorted(p.partition for p in m.assigned) for m in crowd.of(group)}
    return known == {m.client_id: sorted(p.partition for p in m.assignment.topic_partitions) for m in members}


def fetch_offsets(stage: Stage, crowd: Crowd, gateway: Gateway) -> None:
    """OffsetFetch v2 with null topics (KIP-88)."""
    said = {group: committed(crowd, group) for group in GROUPS}
    admin = old_admin(gateway.bootstrap)
    try:
        told = {group: admin.list_group_offsets(group)[group] for group in (*GROUPS, ARCHIVE)}
    finally:
        admin.close()
    offsets = {group: {(tp.topic, tp.partition): o.offset for tp, o in told[group].items()} for group in told}
    stage.table(
        ("GROUP", *(f"{TOPIC}-{p}" for p in range(PARTITIONS))),
        [(group, *(offsets[group].get((TOPIC, p), "-") for p in range(PARTITIONS))) for group in offsets],
    )
    stage.check(
        all(offsets[group] == said[group] and len(said[group]) == PARTITIONS for group in GROUPS),
        "OffsetFetch v2 with null topics tells all offsets, as the members say",
    )
    stage.check(sum(offsets[ARCHIVE].values()) >= 200, "and those of a group that nobody is in any more")


def refuse(stage: Stage, crowd: Crowd, gateway: Gateway, limit: int) -> None:
    """A consumer too many."""
    before = {member.name: member.assigned for member in crowd.of("billing")}
    (late,) = [*crowd.join("billing", TOPIC, 1)]
    with stage.waiting("a fourth consumer wants to join billing"):
        wait_for(lambda: late.error is not None, 15)
    code = late.error.code() if late.error else None
    stage.say(f"  it is told: error {code}, {late.error.str() if late.error else '-'}")
    stage.check(
        code == REFUSED and not late.assigned,
        f"refused with error {REFUSED} at group.max.size {limit}",
    )
    late.leave()
    crowd.produce(TOPIC, 40)
    stays = [member for member in crowd.of("billing") if member.name in before]
    stage.check(
        settled_at(crowd, 360) and all(before[m.name] == m.assigned and m.error is None for m in stays),
        "the other three keep their partitions and read on",
    )


def explain(stage: Stage, crowd: Crowd, gateway: Gateway) -> None:
    """A member leaves, and the sidecar says why its group rebalanced."""
    gone, *left = crowd.of("shipping")
    gone.leave()
    with stage.waiting(f"{gone.name} leaves shipping"):
        taken_over = wait_for(lambda: sum(len(member.assigned) for member in left) == PARTITIONS, 15)
    ask = [sys.executable, "-m", "group_sidecar.proxy.cli", "groups", "why", "shipping", "--sidecar", gateway.admin]
    said = subprocess.run([*ask, "--json"], capture_output=True, text=True, check=False)
    stage.say(subprocess.run(ask, capture_output=True, text=True, check=False).stdout.rstrip())
    told = json.loads(said.stdout) if said.stdout else {"causes": []}
    causes = {cause["cause"]: (cause["by"] or {}).get("client_id") for cause in told["causes"]}
    stage.check(
        taken_over and causes.get("member_left") == gone.name, f"groups why: shipping rebalanced since {gone.name} left"
    )
    page = gateway.get("/group?group=shipping")
    stage.check("<svg" in page and gone.name in page, f"the page draws it: http://{gateway.admin}/group?group=shipping")


def scrape(stage: Stage, gateway: Gateway) -> None:
    """What Prometheus would see."""
    text = gateway.get("/metrics")
    metrics = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    shown = [(name, labels, value) for (name, labels), value in metrics.items() if name in SHOWN and value]
    stage.table(
        (f"{PREFIX}…", "LABELS", "VALUE"),
        [(name.removeprefix(PREFIX), " ".join(f"{k}={v}" for k, v in labels), int(v)) for name, labels, v in shown],
    )
    answered = ("ListGroups", "DescribeGroups", "OffsetFetch")
    stage.check(
        all(_value(metrics, "group_sidecar_mirror_answers_total", api=api) > 0 for api in answered),
        "each of the three APIs was answered from the sidecar's own state",
    )
    refusals = _value(metrics, "group_sidecar_policy_rejections_total", policy="group_max_size")
    stage.check(refusals > 0, f"{int(refusals)} refused joins are counted")
    stage.check(_value(metrics, "group_sidecar_rebalances_total") >= len(GROUPS) + 1, "rebalances are counted")


def _value(metrics: Metrics, name: str, **labels: str) -> float:
    return sum(v for (n, told), v in metrics.items() if n == name and labels.items() <= dict(told).items())


def aggregate(stage: Stage, crowd: Crowd, gateway: Gateway) -> None:
    """What Spark makes of the records."""
    admin = old_admin(gateway.bootstrap)
    try:
        told = {group: admin.list_group_offsets(group)[group] for group in (*GROUPS, ARCHIVE)}
    finally:
        admin.close()
    ends = crowd.ends(TOPIC, PARTITIONS)
    expected = {g: sum(ends.values()) - sum(o.offset for o in told[g].values()) for g in told}
    sealed = len(gateway.sealed())
    with stage.waiting("the sidecar exports what stands now"):
        wait_for(lambda: len(gateway.sealed()) >= sealed + 2, 15)
    with stage.waiting("Spark reads the sidecar's records"):
        job = [sys.executable, "-m", "group_sidecar.spark", "run", "--input", str(gateway.journal), "--json"]
        done = subprocess.run(job, capture_output=True, text=True, check=False)
    if done.returncode == NO_JAVA:
        stage.cannot(done.stderr.strip().splitlines()[-1])
        return
    rows = {row["group"]: row for row in map(json.loads, done.stdout.splitlines())} if not done.returncode else {}
    if not rows:
        stage.say(done.stderr)
    columns = ("group", "state", "members", "rebalances", "refusals", "lag")
    stage.table(tuple(c.upper() for c in columns), [tuple(row[c] for c in columns) for _, row in sorted(rows.items())])
    stage.check(set(expected) <= rows.keys(), "Spark has every group")
    stage.check(bool(rows) and all(rows[g]["rebalances"] > 0 for g in GROUPS), "rebalances per group")
    stage.check(bool(rows) and rows["billing"]["refusals"] > 0, "refusals per group")
    stage.check(
        bool(rows) and all(rows[g]["lag"] == lag for g, lag in expected.items()) and expected[ARCHIVE] >= 160,
        f"lag per group, as clients find it ({ARCHIVE}: {expected[ARCHIVE]})",
    )


NO_JAVA = 3
"""Exit status of the Spark job where Java is missing."""
