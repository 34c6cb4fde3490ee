"""The embedded cluster: librdkafka's mock cluster, in this process.

The mock broker accepts producers, consumers and groups over real TCP. It supports neither ListGroups nor
DescribeGroups, and has no `__consumer_offsets`. Without this topic, a sidecar answers only for a cluster of one broker.
"""

import logging

from confluent_kafka import Producer

QUIET = logging.getLogger("librdkafka")
QUIET.setLevel(logging.CRITICAL)
"""A logger for librdkafka that hides its log lines, which would disturb the demo."""


class EmbeddedCluster:
    """A mock cluster, which ends when this object is garbage-collected.

    Attributes:
        broker: HOST:PORT of the only broker.
    """

    def __init__(self) -> None:
        # The mock cluster is part of a client, which is used for nothing else.
        self._owner = Producer({"test.mock.num.brokers": 1, "log_level": 0}, logger=QUIET)
        metadata = self._owner.list_topics(timeout=10)
        [self.broker] = [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()]
