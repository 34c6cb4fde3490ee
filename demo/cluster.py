"""The embedded cluster: librdkafka's mock cluster, in this process.

The mock brokers accept producers, consumers and groups over real TCP. The mock brokers support neither ListGroups nor
DescribeGroups.
"""

import logging

from confluent_kafka import Producer

QUIET = logging.getLogger("librdkafka")
QUIET.setLevel(logging.CRITICAL)
"""A logger for librdkafka that hides its log lines, which would disturb the demo."""


class EmbeddedCluster:
    """A mock cluster, which ends when this object is garbage-collected.

    Attributes:
        brokers: HOST:PORT of each broker.
    """

    def __init__(self, brokers: int) -> None:
        # The mock cluster is part of a client, which is used for nothing else.
        self._owner = Producer({"test.mock.num.brokers": brokers, "log_level": 0}, logger=QUIET)
        metadata = self._owner.list_topics(timeout=10)
        self.brokers = [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()]
