"""What is said of all brokers together."""

from types import SimpleNamespace
from typing import Any

import pytest

from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.served_brokers import ServedBrokers
from tests.proxy.playbook import broker_copy


@pytest.mark.parametrize(("refuses", "denied"), [(True, False), (False, True), (True, True)])
async def test_a_broker_that_is_gone_refuses_nobody(refuses: bool, denied: bool) -> None:
    """The right to read the log is asked for again after a minute only."""
    copy, brokers = broker_copy(), ServedBrokers()
    broker: Any = SimpleNamespace(copy=copy, tail=SimpleNamespace(denied=denied))
    brokers.put(Address("127.0.0.1", 9092), broker)
    brokers.put(Address("localhost", 9092), broker)
    if refuses:
        copy.probe_refused()
    else:
        copy.probe_succeeded()
    assert brokers.refusing() == 1
    copy.probe_failed("closed the connection")
    assert brokers.refusing() == 0
