"""The clients and frameworks of the matrix: their versions, their steps, and how each program is started."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.kafka.java import JVM_FLAGS
from tests.matrix import toolchains
from tests.matrix.toolchains import SOURCES

CLIENT_STEPS = ("produce", "consume", "rebalance", "transactions", "admin")
STREAMS_STEPS = ("produce", "count", "exactly-once", "rebalance", "groups")
CONNECT_STEPS = ("start", "copy", "rebalance", "groups")


@dataclass(frozen=True)
class Program:
    """How a program is started.

    Args:
        command: the command, up to the arguments that all programs have.
        environment: additional environment variables.
    """

    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Row:
    """One client or framework.

    Args:
        name: its name in the table and on the command line.
        version: its exact version.
        prepare: builds the program. Raises Missing.
        steps: the names of its steps.
        more: further arguments, after those that all programs have.
        names_broker: whether the client needs the broker's version in its settings. A further argument gives it.
    """

    name: str
    version: str
    prepare: Callable[[], Program]
    steps: tuple[str, ...] = CLIENT_STEPS
    more: tuple[str, ...] = ()
    names_broker: bool = False

    def arguments(self, broker: str) -> Sequence[str]:
        """Returns the arguments that follow those that all programs have."""
        return (*self.more, broker) if self.names_broker else self.more


_JVM = ("java", *JVM_FLAGS, "-Xmx256m", "-cp")


def _java(version: str) -> Program:
    return Program((*_JVM, toolchains.java_classes(version), "Client"))


def _streams() -> Program:
    return Program((*_JVM, toolchains.streams_classes(), "Streams"))


def _go(name: str) -> Program:
    return Program((toolchains.go_program(name),))


def _node(file: str) -> Program:
    modules = toolchains.node_modules() if file == "kafkajs.js" else toolchains.confluent_modules()
    return Program(("node", str(SOURCES / "node" / file)), {"NODE_PATH": str(modules)})


def _python(file: str) -> Program:
    return Program((toolchains.python_program(), str(SOURCES / "python" / file)))


def _connect() -> Program:
    jars = toolchains.connect_jars()
    return Program((toolchains.python_program(), str(SOURCES / "python" / "connect.py")), {"CONNECT_JARS": jars})


def _pip(name: str) -> str:
    text = (SOURCES / "python" / "requirements.in").read_text("utf-8")
    return _first(rf"^{name}==(\S+)$", text)


def _module(name: str) -> str:
    return _first(rf"^\t{name} v(\S+)", (SOURCES / "go" / "go.mod").read_text("utf-8"))


def _package(name: str) -> str:
    return str(json.loads((SOURCES / "node" / "package.json").read_text("utf-8"))["dependencies"][name])


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    assert found, pattern
    return found[1]


CLIENTS: tuple[Row, ...] = (
    Row("java-4.4", "4.4.0", partial(_java, "4.4.0")),
    Row("java-4.4-consumer", "4.4.0", partial(_java, "4.4.0"), more=("consumer",)),
    Row("java-3.9", "3.9.1", partial(_java, "3.9.1")),
    Row("java-2.8", "2.8.2", partial(_java, "2.8.2")),
    Row("librdkafka", _pip("confluent-kafka"), partial(_python, "librdkafka.py")),
    Row("librdkafka-consumer", _pip("confluent-kafka"), partial(_python, "librdkafka.py"), more=("consumer",)),
    Row("kafka-python", _pip("kafka-python"), partial(_python, "kafka_python.py")),
    Row("aiokafka", _pip("aiokafka"), partial(_python, "aio_kafka.py")),
    Row("franz-go", _module("github.com/twmb/franz-go"), partial(_go, "franz")),
    Row("sarama", _module("github.com/IBM/sarama"), partial(_go, "sarama"), names_broker=True),
    Row("kafka-go", _module("github.com/segmentio/kafka-go"), partial(_go, "kafkago")),
    Row("kafkajs", _package("kafkajs"), partial(_node, "kafkajs.js")),
    Row("confluent-javascript", _package(toolchains.CONFLUENT), partial(_node, "confluent.js")),
)
"""The clients. The names with `-consumer` use the group protocol of KIP-848."""

FRAMEWORKS: tuple[Row, ...] = (
    Row("streams", toolchains.STREAMS_VERSION, _streams, STREAMS_STEPS),
    Row("streams-kip-1071", toolchains.STREAMS_VERSION, _streams, STREAMS_STEPS, more=("streams",)),
    Row("connect", toolchains.CONNECT_VERSION, _connect, CONNECT_STEPS),
)
"""The frameworks."""

ROWS = {row.name: row for row in (*CLIENTS, *FRAMEWORKS)}
