"""Runs Kafka's own command-line tools as child processes."""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.java import java
from tests.kafka.maven import tool_jars
from tests.kafka.processes import GIVE_UP_SECONDS
from tests.kafka.releases import ALL_RELEASES, NEWEST_TOOLS

ACLS = "org.apache.kafka.tools.AclCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER_GROUPS_BEFORE_3_7 = "kafka.admin.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
DELEGATION_TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
TOPICS_BY_ZOOKEEPER = "kafka.admin.TopicCommand"
"""The topic tool of brokers before 2.2, which uses ZooKeeper."""
CONFIGS = "kafka.admin.ConfigCommand"


class ToolFailed(Exception):
    """Raised when a tool ended with a status other than zero or took too long. The text contains its output."""


def kafka_tool(
    main_class: str, *args: str, stdin: str = "", seconds: float = GIVE_UP_SECONDS, version: str = NEWEST_TOOLS
) -> str:
    """Runs a tool of a version of Kafka. Returns its standard output.

    Raises:
        ToolFailed: its status was not zero, or it took longer than `seconds`.
    """
    with tempfile.TemporaryDirectory() as folder:
        logging = ALL_RELEASES[version].logging
        quiet = Path(folder) / logging.file
        quiet.write_text(logging.quiet)
        options = ("-Xmx256m", f"{logging.flag}{quiet}")
        command = [*java(version, *options, more_jars=tool_jars(version)), main_class, *args]
        return _run(command, stdin, seconds)


def _run(command: Sequence[str], stdin: str, seconds: float) -> str:
    shown = " ".join(command[command.index("-cp") + 2 :])
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(f"{shown}: not done within {seconds} s\n{error.stdout!r}\n{error.stderr!r}") from None
    if done.returncode:
        raise ToolFailed(f"{shown}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
