"""Reads deploy/compose, and translates its files for processes on this machine that use other ports."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, free_addresses, host_port

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
_PREFIX = "KAFKA_"
_HOST_PORT = re.compile(r"(?P<host>127\.0\.0\.1|0\.0\.0\.0|kafka):(?P<port>\d+)")


def server_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the server.properties that the start script of the image apache/kafka makes of its environment.

    The rule is in Kafka's `KafkaDockerWrapper`: lower case, one underscore is a dot, two are an underscore, three are a
    hyphen. The image's own file is not used if the environment has one such variable.
    """
    names = {name: name.removeprefix(_PREFIX).lower() for name in environment if name.startswith(_PREFIX)}
    dotted = {name: text.replace("_", ".").replace("...", "-").replace("..", "_") for name, text in names.items()}
    return {dotted[name]: environment[name] for name in names}


class OtherPorts:
    """Maps each address of the files to the loopback and a free port, equal ports to equal ports."""

    def __init__(self) -> None:
        self._ports: dict[str, Address] = {}

    def of(self, text: str) -> Address:
        """Returns the address for the first address in a text."""
        found = _HOST_PORT.search(text)
        assert found, text
        port = found["port"]
        if port not in self._ports:
            [self._ports[port]] = free_addresses(1)
        return self._ports[port]

    def in_text(self, text: str) -> str:
        """Returns the text with all its addresses mapped."""
        return _HOST_PORT.sub(lambda found: host_port(self.of(found[0])), text)


def listeners(text: str) -> dict[str, str]:
    """Returns the addresses of a list of listeners by the listener's name."""
    return dict(each.split("://") for each in text.split(","))


class ComposeBroker(KafkaBroker):
    """The service `kafka`, with its own properties and none of the properties of other tests.

    Args:
        folder: an empty folder for its data and its log.
        ports: the mapping of its addresses.
    """

    def __init__(self, folder: Path, ports: OtherPorts) -> None:
        service = SERVICES["kafka"]
        properties = {name: ports.in_text(text) for name, text in server_properties(service["environment"]).items()}
        direct = ports.of(listeners(properties_text(service, "KAFKA_ADVERTISED_LISTENERS"))["INTERNAL"])
        super().__init__(folder, version=service["image"].rpartition(":")[2], direct=direct)
        self._properties = properties


def properties_text(service: Mapping[str, Any], variable: str) -> str:
    """Returns a variable of a service's environment."""
    text: str = service["environment"][variable]
    return text
