"""Tests which broker coordinates a group."""

from group_sidecar.coordinator.state.log_partitions import partition_for
from group_sidecar.proxy.broker.group_queries import Node
from tests.proxy.dataplane.playbook import broker_state


def test_coordinator_is_partition_leader() -> None:
    """A group's coordinator is the leader of its partition, or unknown."""
    state = broker_state()
    nodes = {0: Node(1, "one", 9092), 1: Node(2, "two", 9092)}
    state.coordinators.learn(nodes)
    assert state.coordinators.coordinator("g") is None, "the number of partitions is not known yet"
    state.copy.manager.log.partitions.count = 3
    groups = {partition_for(group, 3): group for group in map(str, range(20))}
    assert [state.coordinators.coordinator(groups[partition]) for partition in range(3)] == [nodes[0], nodes[1], None]
    state.coordinators.learn({})
    assert state.coordinators.coordinator(groups[0]) is None


def test_gateway_advertises_coordinator() -> None:
    """A gateway reports a coordinator under its advertised address."""
    state = broker_state(advertise=lambda node, host, port: (f"for {host}", port + node))
    state.copy.manager.log.partitions.count = 1
    state.coordinators.learn({0: Node(1, "one", 9092)})
    assert state.coordinators.coordinator("g") == Node(1, "for one", 9093)
