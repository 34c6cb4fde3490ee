"""Runs drills: starts groups of all kinds of clients, restarts sidecars or brokers, and evaluates the reports."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.drills.clients import StayingGroup
from tests.drills.measures import Noticed, errors, generations, idle_seconds
from tests.drills.producer import SteadyProducer
from tests.drills.restarts import BROKER_RESTARTS, SIDECAR_RESTARTS, Fleet
from tests.kafka.broker import KafkaBroker
from tests.kafka.cluster import kafka_cluster
from tests.kafka.dialect import until
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.kafka.sidecar_process import SidecarProcess
from tests.matrix.rows import Row

TOPIC, PARTITIONS = "drill", 6
DIRECT, THROUGH = "direct", "sidecars"
_UNDISTURBED_SECONDS = 10.0
_AFTERWARDS_SECONDS = 10.0
"""Seconds after the last restart whose events still count. A lost member's session expires within this time."""


@dataclass(frozen=True)
class Finding:
    """The result of one drill for one kind of client.

    Attributes:
        drill: the name of the drill.
        route: DIRECT or THROUGH.
        kind: the kind of client.
        noticed: what its group noticed.
    """

    drill: str
    route: str
    kind: str
    noticed: Noticed


def run_drills(
    folder: Path, rows: Sequence[Row], routes: Sequence[str], chosen: Sequence[str], report: Callable[[Finding], None]
) -> list[str]:
    """Runs drills on a cluster of three brokers, one route after the other. Returns the errors of the producers.

    Args:
        folder: an empty folder for the data and logs.
        rows: the kinds of clients.
        routes: DIRECT, THROUGH or both.
        chosen: names of DRILLS. The direct route has no drills of sidecars.
        report: is called with each finding.
    """
    failed: list[str] = []
    with kafka_cluster(folder / "kafka") as brokers:
        make_topic(Fleet(brokers))
        for route in routes:
            with fleet_of(folder, brokers, sidecars=route == THROUGH) as fleet:
                drills = [name for name in chosen if fleet.sidecars or name not in SIDECAR_RESTARTS]
                with staying_groups(folder, rows, fleet, route) as groups, _producer(fleet) as producer:
                    for drill in drills:
                        for kind, noticed in drilled(fleet, groups, DRILLS[drill]).items():
                            report(Finding(drill, route, kind, noticed))
                failed += [f"{route}: {error}" for error in producer.errors]
    return failed


def drilled(fleet: Fleet, groups: Sequence[StayingGroup], restart: Callable[[Fleet], None]) -> dict[str, Noticed]:
    """Restarts parts of the fleet. Returns what each group noticed, by the kind of client."""
    for group in groups:
        group.wait_until_settled()
    before, start = generations(fleet.direct), time.time()
    restart(fleet)
    time.sleep(_AFTERWARDS_SECONDS)
    end, after = time.time(), generations(fleet.direct)
    return {
        group.row.name: Noticed(
            after[group.name] - before[group.name],
            idle_seconds(group.events, range(group.partitions), start, end),
            errors(group.events, start, end),
        )
        for group in groups
    }


def undisturbed(_: Fleet) -> None:
    """Restarts nothing, for comparison."""
    time.sleep(_UNDISTURBED_SECONDS)


DRILLS: Mapping[str, Callable[[Fleet], None]] = {"none": undisturbed, **SIDECAR_RESTARTS, **BROKER_RESTARTS}
"""All drills by name, in the order in which they run."""


@contextmanager
def fleet_of(folder: Path, brokers: Sequence[KafkaBroker], *, sidecars: bool) -> Iterator[Fleet]:
    """Runs a sidecar in front of each broker, or none."""
    with ExitStack() as stack:
        started = []
        for number, broker in enumerate(brokers if sidecars else ()):
            place = folder / f"sidecar-{number}"
            sidecar = SidecarProcess(
                place, listen=broker.sidecar, upstream=broker.client, settings={"answers": {"exclusive": True}}
            )
            started.append(stack.enter_context(sidecar))
        for sidecar in started:
            sidecar.wait_for_log()
        yield Fleet(brokers, started)


@contextmanager
def staying_groups(folder: Path, rows: Iterable[Row], fleet: Fleet, route: str) -> Iterator[list[StayingGroup]]:
    """Runs a group of each kind of client, and waits until all members read."""
    topic = (TOPIC, PARTITIONS)
    groups = [StayingGroup.of(row, fleet.bootstrap, topic, folder, f"{route}-{row.name}") for row in rows]
    with ExitStack() as stack:
        for group in groups:
            stack.enter_context(group)
        yield groups


def make_topic(fleet: Fleet) -> None:
    """Creates the topic with a replica at each broker, and waits for its leaders."""
    client = AdminClient({"bootstrap.servers": fleet.direct, "log_level": 0})
    client.create_topics([NewTopic(TOPIC, PARTITIONS, len(fleet.brokers))])[TOPIC].result(GIVE_UP_SECONDS)

    def led() -> bool:
        found: Mapping[str, object] = client.list_topics(TOPIC, timeout=GIVE_UP_SECONDS).topics
        partitions = found[TOPIC].partitions  # type: ignore[attr-defined]
        return len(partitions) == PARTITIONS and all(each.leader >= 0 for each in partitions.values())

    until(led, "all partitions have a leader")


def _producer(fleet: Fleet) -> SteadyProducer:
    return SteadyProducer(fleet.bootstrap, TOPIC, PARTITIONS)
