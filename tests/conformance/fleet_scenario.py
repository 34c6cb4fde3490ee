"""Runs a scenario with a fleet, and records its journals and the output of Kafka's tools at two moments.

No process of the scenario runs any more when the results are read. The module must work without Spark.

1. quiet: all groups exist, and no member joins or leaves.
2. damaged: the sidecar of node 2 was killed and restarted. Node 3 is gone, and another broker coordinates its groups.
   The sidecar of node 3 was disconnected for a while and then killed. A member has left.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.fleet_cluster import GROUPS, JOURNAL, Fleet, FleetMembers, fleet
from tests.conformance.librdkafka import leaders_of, messages_in
from tests.kafka.dialect import until
from tests.kafka.group_command import Described, describe_all_groups
from tests.kafka.maven import connector_jars
from tests.kafka.processes import GIVE_UP_SECONDS, host_port
from tests.kafka.sidecar_process import COMMAND

RESTARTED, LOST = 2, 3
"""The node whose sidecar is killed and restarted, and the node that is killed together with its sidecar."""
STICKY = "sticky"


@dataclass(frozen=True)
class FleetMoment:
    """One moment of the fleet.

    Attributes:
        journals: the sealed segments at that moment, in a folder for each sidecar.
        kafka: the output of Kafka's tools.
    """

    journals: Path
    kafka: Described


@dataclass(frozen=True)
class FleetScenario:
    """The results of the scenario.

    Attributes:
        timelines: the sidecars' timelines of each group at the quiet moment.
        unsealed: the complete lines of the segment that was open when the sidecar was killed.
        from_topic: the tables that the job computed at the quiet moment from the topic.
        writers: for each leader of the topic's partitions, the sidecars whose records the partitions then had.
    """

    quiet: FleetMoment
    damaged: FleetMoment
    timelines: dict[str, list[dict[str, Any]]]
    unsealed: list[bytes]
    from_topic: Path
    writers: dict[int, set[str]]


def run_fleet_scenario(folder: Path) -> FleetScenario:
    """Runs the scenario in a folder of its own."""
    with fleet(folder) as stage, FleetMembers(stage) as crowd:
        crowd.produce(10)
        crowd.gather()
        crowd.produce(3)
        stage.settle()
        quiet = _moment(stage, folder / "quiet")
        timelines = stage.timelines()
        from_topic, writers = _take_from_topic(stage, folder / "tables"), _writers_by_leader(stage)
        unsealed = _kill_and_restart(stage)
        _lose(stage, crowd)
        return FleetScenario(quiet, _moment(stage, folder / "damaged"), timelines, unsealed, from_topic, writers)


def _moment(stage: Fleet, folder: Path) -> FleetMoment:
    kafka = describe_all_groups(stage.brokers[0].direct)
    return FleetMoment(stage.journals.copy(folder), kafka)


def _take_from_topic(stage: Fleet, tables: Path) -> Path:
    stage.flush()
    command = [str(COMMAND), "fleet", "run", "--input", f"kafka://{host_port(stage.brokers[0].direct)}/{JOURNAL}"]
    command += ["--output", str(tables), "--jars", ",".join(map(str, connector_jars()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3 * GIVE_UP_SECONDS)
    assert done.returncode == 0, done.stderr
    return tables


def _writers_by_leader(stage: Fleet) -> dict[int, set[str]]:
    """Returns which sidecars wrote the records of each partition of the topic, by their keys up to the current end."""
    bootstrap = host_port(stage.brokers[0].direct)
    leaders = leaders_of(bootstrap, JOURNAL)
    writers: dict[int, set[str]] = {node: set() for node in leaders.values()}
    for message in messages_in(bootstrap, JOURNAL):
        writers[leaders[message.partition() or 0]].add((message.key() or b"").decode())
    return writers


def _kill_and_restart(stage: Fleet) -> list[bytes]:
    """Kills and restarts a sidecar. Returns the complete lines of the segment that was open."""
    sidecar = stage.sidecars[RESTARTED - 1]
    sidecar.process.running.kill()
    sidecar.process.running.wait()
    left = [segment.read_bytes() for segment in (stage.journals.folder / str(RESTARTED)).glob(".segment-*")]
    sidecar.start()
    sidecar.wait_for_log()
    return [line for segment in left for line in segment.splitlines(keepends=True) if line.endswith(b"\n")]


def _lose(stage: Fleet, crowd: FleetMembers) -> None:
    stage.brokers[LOST - 1].stop()
    stage.gone.add(LOST)
    until(
        lambda: all(stage.coordinator(group) != LOST for group in GROUPS),
        "all groups have a coordinator at another broker",
    )
    stage.settle()
    crowd.leave(STICKY)
    crowd.produce(1)
    stage.settle()
    sidecar = stage.sidecars[LOST - 1].process.running
    sidecar.kill()
    sidecar.wait()
    stage.settle()
