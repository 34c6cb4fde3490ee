"""A client of a scripted broker, for tests of single requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from group_sidecar.codecs.schema import Struct
from group_sidecar.proxy.broker.kafka_client import KafkaClient, connect
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.scripted_broker import Answer, MemoryNetwork, ScriptedBroker

BROKER = Address("broker", 9092)


@asynccontextmanager
async def asking(
    network: MemoryNetwork, answers: dict[type[Struct], Answer], **versions: int
) -> AsyncIterator[tuple[KafkaClient, ScriptedBroker]]:
    """Yields a client of a broker with these replies.

    `versions`: the broker's one version of an API, by the API's name.
    """
    broker = ScriptedBroker(answers)
    for kind in answers:
        version = versions.get(kind.NAME.removesuffix("Request"))
        if version is not None:
            broker.versions[kind] = (version, version)
    network.brokers[BROKER] = broker
    async with connect(*BROKER) as client:
        yield client, broker
