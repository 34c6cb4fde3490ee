"""What happens to a fleet, and what its journals and Kafka's own tools said at two moments of it.

Owns: the story, told once and to its end. Must not know: Spark. What is asked afterwards needs nothing that runs.

1. quiet: all groups are there, nobody moves.
2. damaged: the sidecar before node 2 was killed and is back. Node 3 is gone, and another broker coordinates its groups;
   its sidecar was cut off for a while, and then killed. A member has left.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.fleet_stage import GROUPS, JOURNAL, Crowd, Fleet, fleet
from tests.conformance.librdkafka import leaders_of, messages_in
from tests.kafka.dialect import until
from tests.kafka.group_command import Described, describe_all_groups
from tests.kafka.maven import connector_jars
from tests.kafka.processes import PATIENCE, spelled
from tests.kafka.sidecar import COMMAND

RESTARTED, LOST = 2, 3
"""Nodes: the one whose sidecar is killed and comes back, and the one that goes with its sidecar."""
STICKY = "sticky"


@dataclass(frozen=True)
class Moment:
    """One moment of the fleet.

    Attributes:
        journals: the sealed segments that there were, in a folder for each sidecar.
        kafka: what Kafka's tools said.
    """

    journals: Path
    kafka: Described


@dataclass(frozen=True)
class Story:
    """Everything that is to be known of the story afterwards.

    Attributes:
        timelines: what the sidecars told of each group in the quiet.
        unsealed: the whole lines of the segment that was open when the sidecar was killed.
        from_topic: the tables that the job made in the quiet of what the topic had.
        told: by leader of the topic's partitions, the sidecars whose records these had then.
    """

    quiet: Moment
    damaged: Moment
    timelines: dict[str, list[dict[str, Any]]]
    unsealed: list[bytes]
    from_topic: Path
    told: dict[int, set[str]]


def told_in(folder: Path) -> Story:
    """Lets it all happen, in a folder of its own."""
    with fleet(folder) as stage, Crowd(stage) as crowd:
        crowd.produce(10)
        crowd.gather()
        crowd.produce(3)
        stage.settle()
        quiet = _moment(stage, folder / "quiet")
        timelines = stage.timelines()
        from_topic, told = _take_from_topic(stage, folder / "tables"), _told(stage)
        unsealed = _kill_and_restart(stage)
        _lose(stage, crowd)
        return Story(quiet, _moment(stage, folder / "damaged"), timelines, unsealed, from_topic, told)


def _moment(stage: Fleet, folder: Path) -> Moment:
    kafka = describe_all_groups(stage.brokers[0].direct)
    return Moment(stage.journals.copy(folder), kafka)


def _take_from_topic(stage: Fleet, tables: Path) -> Path:
    stage.flush()
    command = [str(COMMAND), "fleet", "run", "--input", f"kafka://{spelled(stage.brokers[0].direct)}/{JOURNAL}"]
    command += ["--output", str(tables), "--jars", ",".join(map(str, connector_jars()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3 * PATIENCE)
    assert done.returncode == 0, done.stderr
    return tables


def _told(stage: Fleet) -> dict[int, set[str]]:
    """What the topic's keys say, up to where it ends now."""
    bootstrap = spelled(stage.brokers[0].direct)
    leaders = leaders_of(bootstrap, JOURNAL)
    told: dict[int, set[str]] = {node: set() for node in leaders.values()}
    for message in messages_in(bootstrap, JOURNAL):
        told[leaders[message.partition() or 0]].add((message.key() or b"").decode())
    return told


def _kill_and_restart(stage: Fleet) -> list[bytes]:
    """Returns the whole lines that stood in its open segment."""
    sidecar = stage.sidecars[RESTARTED - 1]
    sidecar.process.running.kill()
    sidecar.process.running.wait()
    left = [segment.read_bytes() for segment in (stage.journals.folder / str(RESTARTED)).glob(".segment-*")]
    sidecar.start()
    sidecar.wait_for_log()
    return [line for segment in left for line in segment.splitlines(keepends=True) if line.endswith(b"\n")]


def _lose(stage: Fleet, crowd: Crowd) -> None:
    stage.brokers[LOST - 1].stop()
    stage.gone.add(LOST)
    until(lambda: all(stage.coordinator(group) != LOST for group in GROUPS), "all coordinators are elsewhere")
    stage.settle()
    crowd.leave(STICKY)
    crowd.produce(1)
    stage.settle()
    sidecar = stage.sidecars[LOST - 1].process.running
    sidecar.kill()
    sidecar.wait()
    stage.settle()
