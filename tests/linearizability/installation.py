"""Three brokers, a sidecar in front of each, and a proxy on either side of each sidecar.

    clients -> FaultProxy -> sidecar -> FaultProxy -> broker

The first proxy listens at the address that the broker advertises. Without sidecars, it leads to the broker.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.broker import KafkaBroker
from tests.kafka.cluster import kafka_cluster
from tests.kafka.processes import GIVE_UP_SECONDS, Address, free_addresses, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.linearizability import members, offsets_client, record_clients
from tests.linearizability.failovers import ForwardedReads
from tests.linearizability.fault_proxy import FaultProxy, NotingProxy, StaleProxy

_ANSWERS, _FALLBACKS = "group_sidecar_mirror_answers_total", "group_sidecar_mirror_fallbacks_total"
_VERIFICATIONS = "group_sidecar_mirror_verifications_total"
_TOPICS = {
    offsets_client.TOPIC: offsets_client.PARTITIONS,
    record_clients.PLAIN: record_clients.PARTITIONS,
    record_clients.TRANSACTIONAL: record_clients.PARTITIONS,
}
LOG_PARTITIONS = 6
"""The number of partitions of `__consumer_offsets`."""
PROPERTIES = {
    "offsets.topic.num.partitions": str(LOG_PARTITIONS),
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    # If a broker is paused for longer than this, another broker takes over its partitions.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
    "group.min.session.timeout.ms": "1000",
}
_SETTINGS: dict[str, Any] = {
    "answers": {"exclusive": True},
    "policies": {"group_max_size": {"overrides": [{"pattern": "members-.*", "limit": members.LIMIT}]}},
    "limits": {"drain_seconds": 3},
}


@dataclass
class Node:
    """One broker with the proxies and sidecar before it. Without sidecars, `sidecar` and `broker_proxy` are None."""

    broker: KafkaBroker
    client_proxy: FaultProxy
    sidecar: SidecarProcess | None
    broker_proxy: NotingProxy | None


class Installation:
    """The running nodes, node 1 first.

    Attributes:
        nodes: the nodes.
        counted: the numbers of answers, fallbacks and verifications of OffsetFetch at sidecars that have ended.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.counted: Counter[str] = Counter()

    @property
    def bootstrap(self) -> tuple[Address, ...]:
        """The addresses of all brokers for clients."""
        return tuple(node.broker.sidecar for node in self.nodes)

    def count(self, sidecar: SidecarProcess) -> None:
        """Adds a sidecar's figures to `counted`. Called before the sidecar ends, because its metrics end with it."""
        for sample in sidecar.samples(_ANSWERS):
            if sample.labels["api"] == "OffsetFetch":
                self.counted["answers"] += int(sample.value)
        for sample in sidecar.samples(_FALLBACKS):
            if sample.labels["api"] == "OffsetFetch" and sample.value:
                self.counted[f"fallback {sample.labels['reason']}"] += int(sample.value)
        for sample in sidecar.samples(_VERIFICATIONS):
            if sample.labels["api"] == "OffsetFetch" and sample.value:
                self.counted[f"verified {sample.labels['result']}"] += int(sample.value)

    def forwarded_reads(self) -> ForwardedReads | None:
        """Returns the reads that reached a broker; None without sidecars, because then all reads reach a broker."""
        proxies = [node.broker_proxy for node in self.nodes if node.broker_proxy]
        clients = [node.client_proxy for node in self.nodes if isinstance(node.client_proxy, NotingProxy)]
        passed, sent = ([note for proxy in each for note in proxy.fetches] for each in (proxies, clients))
        return ForwardedReads(passed, sent) if proxies else None

    def stale_replies(self) -> int:
        """Returns how many replies were replaced by old ones."""
        return sum(each.client_proxy.replaced for each in self.nodes if isinstance(each.client_proxy, StaleProxy))


@contextmanager
def installation(folder: Path, version: str, seed: int, *, direct: bool, stale: bool) -> Iterator[Installation]:
    """Runs the brokers, sidecars and proxies for the length of a with statement, and creates the topics.

    Args:
        folder: an empty folder.
        version: the version of Kafka.
        seed: decides where connections are cut.
        direct: whether clients reach the brokers without sidecars.
        stale: whether the clients' proxies return old replies to OffsetFetch.
    """
    proxy = StaleProxy if stale else NotingProxy
    with ExitStack() as stack:
        brokers = stack.enter_context(kafka_cluster(folder / "brokers", 3, PROPERTIES, version))
        nodes = []
        for number, broker in enumerate(brokers, 1):
            source = random.Random(f"cuts-{seed}-{number}")
            upstream, broker_proxy, sidecar = broker.client, None, None
            if not direct:
                between, listen = free_addresses(2)
                broker_proxy = stack.enter_context(NotingProxy(between, broker.client, source))
                place = folder / f"sidecar-{number}"
                sidecar = SidecarProcess(place, listen=listen, upstream=between, settings=_SETTINGS)
                stack.enter_context(sidecar)
                upstream = listen
            client_proxy = stack.enter_context(proxy(broker.sidecar, upstream, source))
            nodes.append(Node(broker, client_proxy, sidecar, broker_proxy))
        _create_topics(brokers[0])
        for node in nodes:
            if node.sidecar:
                node.sidecar.process.wait_until(lambda sidecar=node.sidecar: _has_read_log(sidecar))  # type: ignore[misc]
        yield Installation(nodes)


def _has_read_log(sidecar: SidecarProcess) -> bool:
    """Whether a sidecar has read the log's partitions that its broker leads now, which may be none."""
    [present] = json.loads(sidecar.get("/readyz")[1])["offsets_log"].values()
    return not (present["loading"]["count"] or present["failed"]["count"])


def _create_topics(broker: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": host_port(broker.direct)})
    topics = [NewTopic(name, partitions, 3) for name, partitions in _TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(GIVE_UP_SECONDS)
