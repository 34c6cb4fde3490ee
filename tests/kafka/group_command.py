"""Runs ``kafka-consumer-groups --all-groups --describe`` in its three forms, and parses its tables."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.kafka.processes import Address, host_port
from tests.kafka.tools import CONSUMER_GROUPS, kafka_tool

_NONE = "-"


@dataclass(frozen=True)
class State:
    """The state of a group. `assignor` is empty if the group has none."""

    coordinator: int
    assignor: str
    state: str
    members: int


@dataclass(frozen=True)
class Described:
    """All groups of a cluster.

    Attributes:
        offsets: committed offset, log end offset and lag, by group, topic and partition.
        states: the state of each group.
        members: the client ids of each group's members.
    """

    offsets: dict[tuple[str, str, int], tuple[int, int, int]]
    states: dict[str, State]
    members: dict[str, list[str]]


def describe_all_groups(address: Address) -> Described:
    """Describes all groups of a broker's cluster. Raises ToolFailed."""
    with ThreadPoolExecutor() as together:
        forms = together.map(lambda form: list(_table(address, *form)), [(), ("--state",), ("--members",)])
        offsets, states, members = forms
    clients: dict[str, list[str]] = {state[0]: [] for state in states}
    for group, _, _, client_id, _ in members:
        clients[group].append(client_id)
    return Described(
        offsets={
            (group, topic, int(partition)): (int(committed), int(end), int(lag))
            for group, topic, partition, committed, end, lag, *_ in offsets
            if committed != _NONE
        },
        states={
            group: State(int(node.strip("()")), "" if assignor == _NONE else assignor, state, int(size))
            for group, _, node, assignor, state, size in states
        },
        members=clients,
    )


def _table(address: Address, *form: str) -> Iterator[list[str]]:
    """Yields the words of each line that is not the head of a table."""
    text = kafka_tool(CONSUMER_GROUPS, "--bootstrap-server", host_port(address), "--all-groups", "--describe", *form)
    for line in text.splitlines():
        words = line.split()
        if words and words[0] != "GROUP":
            yield words
