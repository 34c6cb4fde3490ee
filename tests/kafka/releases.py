"""The Kafka releases that tests run, and the differences between their brokers.

`RELEASES` and `OLD_RELEASES` have one row per version.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

NEWEST = "4.4.0"
"""The default version."""
NEWEST_TOOLS = "4.3.1"
"""The newest release whose command-line tools are available from Maven. The tools of Kafka 4.4.0 are not available."""

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
_ONE_LISTENER = {key: value for key, value in _ZOOKEEPER.items() if key != "inter.broker.listener.name"}
_LONG_SESSIONS = {"group.max.session.timeout.ms": "300000"}  # The default since 0.10.
_NEW_COORDINATOR = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # The defaults of the new protocol are for large fleets. With them, a test would wait 5 s per step.
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
}


@dataclass(frozen=True)
class Logging:
    """How a broker is configured to log to its standard output.

    Args:
        file: the name of the configuration file.
        flag: the system property with the file's path, up to the path.
        text: the contents of the file.
        quiet: the contents for processes that must not log at all.
    """

    file: str
    flag: str
    text: str
    quiet: str


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
    "rootLogger.level=OFF\n",
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
    "log4j.rootLogger=OFF\n",
)


@dataclass(frozen=True)
class Release:
    """One version of Kafka.

    Args:
        properties: the properties that a single node needs, without its addresses.
        logging: the configuration of its logging.
        zookeeper: whether its metadata is in ZooKeeper. Otherwise the node is its own controller (KRaft).
        listeners_have_names: whether several listeners may have the same security protocol (KIP-103).
    """

    version: str
    properties: Mapping[str, str]
    logging: Logging
    zookeeper: bool = False
    listeners_have_names: bool = True


def _by_version(*releases: Release) -> Mapping[str, Release]:
    return MappingProxyType({release.version: release for release in releases})


RELEASES = _by_version(
    Release("4.4.0", {**_KRAFT, **_NEW_COORDINATOR}, _LOG4J_1),
    Release("4.3.1", {**_KRAFT, **_NEW_COORDINATOR}, _LOG4J_2),
    Release("3.9.1", _KRAFT, _LOG4J_1),
    Release("2.8.2", _ZOOKEEPER, _LOG4J_1, zookeeper=True),
    Release("1.1.1", _ZOOKEEPER, _LOG4J_1, zookeeper=True),
)
"""The releases by version, newest first."""

OLD_RELEASES = _by_version(
    Release("0.10.2.2", _ZOOKEEPER, _LOG4J_1, zookeeper=True),
    Release("0.10.1.1", _ONE_LISTENER, _LOG4J_1, zookeeper=True, listeners_have_names=False),
    Release("0.9.0.1", {**_ONE_LISTENER, **_LONG_SESSIONS}, _LOG4J_1, zookeeper=True, listeners_have_names=False),
)
"""The releases before 0.11 by version, newest first. They have no API that lists ACLs."""

ALL_RELEASES: Mapping[str, Release] = MappingProxyType({**RELEASES, **OLD_RELEASES})
"""All releases."""
