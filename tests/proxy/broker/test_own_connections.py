"""Tests how the sidecar connects to the broker."""

import pytest
import trio

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from tests.proxy.dataplane.playbook import broker_state
from tests.proxy.scripted_broker import MemoryNetwork, ScriptedBroker

ALL_APIS: dict[int, tuple[int, int]] = dict.fromkeys(ApiKey, (0, 5))


@pytest.mark.parametrize(("versions", "connections"), [(KAFKA_0_9, 0), (ALL_APIS, 1)])
async def test_kafka_0_9_skips_api_versions(
    versions: dict[int, tuple[int, int]], connections: int, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An additional connection skips ApiVersions only for Kafka 0.9. The first connection always sends it."""
    network, state, broker = MemoryNetwork(nursery), broker_state(), ScriptedBroker()
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    network.brokers[state.own_connections.address] = broker
    state.versions.learn(versions)
    async with state.own_connections.connect(additional=True):
        assert len(broker.clients) == connections
    async with state.own_connections.connect() as client:
        assert len(broker.clients) == connections + 1
        assert client.versions != KAFKA_0_9, "the broker may have been upgraded"
