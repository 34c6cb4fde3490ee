"""The statements about all served brokers together."""

from types import SimpleNamespace
from typing import Any

import pytest

from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.served_brokers import ServedBrokers
from tests.proxy.dataplane.playbook import broker_state


@pytest.mark.parametrize(("refuses", "denied"), [(True, False), (False, True), (True, True)])
async def test_unreachable_broker_counts_not_refusing(refuses: bool, denied: bool) -> None:
    """An unreachable broker does not count as refusing, although it refused the sidecar or denied the log before."""
    state, brokers = broker_state(), ServedBrokers()
    broker: Any = SimpleNamespace(state=state, tail=SimpleNamespace(denied=denied))
    brokers.put(Address("127.0.0.1", 9092), broker)
    brokers.put(Address("localhost", 9092), broker)
    if refuses:
        state.reachability.probe_refused()
    else:
        state.reachability.probe_succeeded()
    assert brokers.count_refusing() == 1
    state.probe_failed("closed the connection")
    assert brokers.count_refusing() == 0
