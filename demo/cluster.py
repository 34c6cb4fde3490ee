"""The embedded cluster: librdkafka's mock cluster, in this process.

Owns: its life. Must not know: the sidecar. It produces, consumes and coordinates groups over real
TCP, and has neither ListGroups nor DescribeGroups.
"""

import logging

from confluent_kafka import Producer

QUIET = logging.getLogger("librdkafka")
QUIET.setLevel(logging.CRITICAL)
"""librdkafka tells much that is of no interest on a stage."""


class EmbeddedCluster:
    """A mock cluster. Ends with this object.

    Attributes:
        brokers: HOST:PORT of each broker.
    """

    def __init__(self, brokers: int) -> None:
        # The cluster lives inside a client of its own, which is used for nothing else.
        self._owner = Producer({"test.mock.num.brokers": brokers, "log_level": 0}, logger=QUIET)
        metadata = self._owner.list_topics(timeout=10)
        self.brokers = [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()]
