"""The kinds of restarts: each restarts all sidecars, or all brokers, one after the other."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from tests.kafka.broker import KafkaBroker
from tests.kafka.cluster import wait_for_coordinators
from tests.kafka.dialect import until
from tests.kafka.processes import GIVE_UP_SECONDS, host_port
from tests.kafka.sidecar_process import SidecarProcess

BETWEEN_SECONDS = 3.0
"""The pause in seconds after each restart, like that of a cautious operator."""


@dataclass(frozen=True)
class Fleet:
    """The brokers, and one sidecar in front of each of them. Without sidecars, the clients connect to the brokers."""

    brokers: Sequence[KafkaBroker]
    sidecars: Sequence[SidecarProcess] = ()

    @property
    def bootstrap(self) -> str:
        """The addresses for clients, separated by commas."""
        addresses = [each.sidecar if self.sidecars else each.direct for each in self.brokers]
        return ",".join(map(host_port, addresses))

    @property
    def direct(self) -> str:
        """The brokers' own addresses, separated by commas."""
        return ",".join(host_port(each.direct) for each in self.brokers)


def stop_and_start_sidecars(fleet: Fleet) -> None:
    """Stops each sidecar with SIGTERM, and starts it again."""
    for sidecar in fleet.sidecars:
        assert sidecar.stop() == 0
        sidecar.start()
        time.sleep(BETWEEN_SECONDS)


def hand_over_sidecars(fleet: Fleet) -> None:
    """Replaces each sidecar by its successor with SIGUSR2."""
    for sidecar in fleet.sidecars:
        sidecar.hand_over()
        time.sleep(BETWEEN_SECONDS)


def restart_brokers(fleet: Fleet) -> None:
    """Stops each broker in order and starts it again. Waits until its replicas are in sync again.

    After the last restart, moves each partition back to its preferred leader, as Kafka's `auto.leader.rebalance.enable`
    does within five minutes. Otherwise the broker that restarted last would lead no partition.
    """
    for broker in fleet.brokers:
        broker.stop()
        broker.start()
        wait_for_coordinators(tuple(fleet.brokers))
        until(partial(_all_in_sync, fleet), "all replicas are in sync")
        time.sleep(BETWEEN_SECONDS)
    admin = AdminClient({"bootstrap.servers": fleet.direct, "log_level": 0})
    admin.elect_leaders(ElectionType.PREFERRED).result(GIVE_UP_SECONDS)
    wait_for_coordinators(tuple(fleet.brokers))


def _all_in_sync(fleet: Fleet) -> bool:
    topics = AdminClient({"bootstrap.servers": fleet.direct, "log_level": 0}).list_topics(timeout=10).topics
    partitions = [part for topic in topics.values() for part in topic.partitions.values()]
    return all(len(part.isrs) == len(part.replicas) and part.leader >= 0 for part in partitions)


SIDECAR_RESTARTS: Mapping[str, Callable[[Fleet], None]] = {
    "sidecars stop and start": stop_and_start_sidecars,
    "sidecars hand over": hand_over_sidecars,
}
BROKER_RESTARTS: Mapping[str, Callable[[Fleet], None]] = {"brokers stop and start": restart_brokers}
