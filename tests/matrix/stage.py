"""One broker, the sidecar in front of it, and the topics of the clients."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import until
from tests.kafka.processes import GIVE_UP_SECONDS, host_port
from tests.kafka.releases import ALL_RELEASES, OLD_RELEASES
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import leader_count

PARTITIONS = 4
TOPICS: Mapping[str, int] = {"": PARTITIONS, "-t": 1, "-out": PARTITIONS}
"""The topics of a run of a client, by the ending of their names, with their numbers of partitions."""
_MORE_MEMORY = ("-Xmx1g",)


@contextmanager
def running_broker(folder: Path, version: str) -> Iterator[KafkaBroker]:
    """Starts a broker of a version for the length of the block."""
    with KafkaBroker(folder / "broker", version=version, java_options=_MORE_MEMORY) as broker:
        broker.wait_for_coordinator()
        yield broker


@contextmanager
def running_sidecar(folder: Path, broker: KafkaBroker) -> Iterator[SidecarProcess]:
    """Runs a sidecar in front of the broker while the block runs. The sidecar has read the offsets topic.

    All clients connect through the sidecar, so it has the setting `answers.exclusive`. A broker whose listeners have no
    names needs a gateway. Brokers before 0.11 have no API that lists ACLs, so a setting states that the broker has no
    authorizer.
    """
    version = broker.release.version
    answers: dict[str, Any] = {"exclusive": True}
    if version in OLD_RELEASES:
        answers["authorizer"] = "none"
    settings: dict[str, Any] = {"answers": answers}
    if not ALL_RELEASES[version].listeners_have_names:
        settings["mode"] = "gateway"
    with SidecarProcess(
        folder / "sidecar", listen=broker.sidecar, upstream=broker.client, settings=settings
    ) as sidecar:
        sidecar.wait_for_log()
        yield sidecar


def make_topics(broker: KafkaBroker, prefixes: Iterable[str]) -> None:
    """Creates the topics of several runs, and waits for their leaders."""
    topics = {f"{prefix}{ending}": count for prefix in prefixes for ending, count in TOPICS.items()}
    client = AdminClient({"bootstrap.servers": host_port(broker.direct)})
    for made in client.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
        made.result(GIVE_UP_SECONDS)
    for name, count in topics.items():
        until(partial(_is_led, broker, name, count), f"all partitions of {name} have a leader")


def _is_led(broker: KafkaBroker, topic: str, partitions: int) -> bool:
    return leader_count(broker, topic) == partitions
