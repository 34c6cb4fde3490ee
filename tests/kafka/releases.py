"""The Kafka releases that tests run, and what differs between their brokers.

Owns: `RELEASES`, one row per version. Must not know: how a process is started, nor which ports are free.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

NEWEST = "4.3.1"
"""The one that is meant where none is named."""

_ONE_NODE = {
    "inter.broker.listener.name": "DIRECT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "connection.failed.authentication.delay.ms": "0",
}
_KRAFT = {
    **_ONE_NODE,
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
}
_ZOOKEEPER = {**_ONE_NODE, "broker.id": "1"}
_NEW_COORDINATOR = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # The defaults of the new protocol are made for large fleets: a test would wait 5 s per step.
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
}


@dataclass(frozen=True)
class Logging:
    """How a broker is told where to log: to its standard output, which is kept.

    Args:
        file: the name of the configuration file.
        flag: the system property that names it, up to the file's path.
        text: what it says.
    """

    file: str
    flag: str
    text: str


_LINE = "%d{HH:mm:ss.SSS} %-5p %c{1} %m%n"
_LOG4J_2 = Logging(
    "log4j2.properties",
    "-Dlog4j2.configurationFile=",
    f"""\
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern={_LINE}
""",
)
_LOG4J_1 = Logging(
    "log4j.properties",
    "-Dlog4j.configuration=file:",
    f"""\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern={_LINE}
""",
)


@dataclass(frozen=True)
class Release:
    """One version of Kafka.

    Args:
        properties: what a single node of it needs, but for its addresses.
        logging: how it is told to log.
        zookeeper: whether it keeps its metadata in ZooKeeper; otherwise it is its own controller (KRaft).
    """

    version: str
    properties: Mapping[str, str]
    logging: Logging
    zookeeper: bool = False


RELEASES: Mapping[str, Release] = MappingProxyType(
    {
        release.version: release
        for release in (
            Release("4.3.1", {**_KRAFT, **_NEW_COORDINATOR}, _LOG4J_2),
            Release("3.9.1", _KRAFT, _LOG4J_1),
            Release("2.8.2", _ZOOKEEPER, _LOG4J_1, zookeeper=True),
            Release("1.1.1", _ZOOKEEPER, _LOG4J_1, zookeeper=True),
        )
    }
)
"""By version, newest first."""
