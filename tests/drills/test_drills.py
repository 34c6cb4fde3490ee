"""Tests the short form of a drill: one broker, one sidecar that hands over, and a group of librdkafka."""

from pathlib import Path

import pytest

from tests.drills.clients import own_librdkafka
from tests.drills.producer import SteadyProducer
from tests.drills.restarts import Fleet, hand_over_sidecars
from tests.drills.run import PARTITIONS, TOPIC, drilled, fleet_of, make_topic, staying_groups
from tests.kafka.broker import KafkaBroker

_IDLE_SECONDS = 8.0
"""The maximum time without records. A busy machine may delay a member by seconds. A lost member's session expires only
after 10 s."""
_NOTICE = "_ALL_BROKERS_DOWN"
"""librdkafka reports this error whenever a client has lost its only open connection. It then reconnects."""


@pytest.mark.timeout(200)
def test_hand_over_causes_no_rebalance(tmp_path: Path) -> None:
    """While a sidecar hands over to its successor, a group of librdkafka clients continues without a rebalance."""
    with KafkaBroker(tmp_path / "broker") as broker:
        broker.wait_for_coordinator()
        make_topic(Fleet([broker]))
        with (
            fleet_of(tmp_path, [broker], sidecars=True) as fleet,
            staying_groups(tmp_path, [own_librdkafka()], fleet, "short") as groups,
            SteadyProducer(fleet.bootstrap, TOPIC, PARTITIONS) as producer,
        ):
            [noticed] = drilled(fleet, groups, hand_over_sidecars).values()
        assert producer.errors == []
    assert noticed.rebalances == 0
    assert noticed.idle_seconds < _IDLE_SECONDS
    assert [error for error in noticed.errors if _NOTICE not in error] == []
