"""What ``kafka-consumer-groups --all-groups --describe`` says, as data.

Owns: running it in its three forms, and reading its tables. Must not know: what the answers are compared with.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.kafka.processes import Address, spelled
from tests.kafka.tools import CONSUMER_GROUPS, kafka_tool

_NONE = "-"


@dataclass(frozen=True)
class State:
    """A group in one line. `assignor`: empty if none."""

    coordinator: int
    assignor: str
    state: str
    members: int


@dataclass(frozen=True)
class Described:
    """All groups of a cluster.

    Attributes:
        offsets: by group, topic and partition: committed offset, log end offset and lag.
        states: by group.
        members: by group, the client ids of its members.
    """

    offsets: dict[tuple[str, str, int], tuple[int, int, int]]
    states: dict[str, State]
    members: dict[str, list[str]]


def describe_all_groups(address: Address) -> Described:
    """Asks a broker of the cluster. Raises ToolFailed."""
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
    """The words of each line that is not the head of a table."""
    text = kafka_tool(CONSUMER_GROUPS, "--bootstrap-server", spelled(address), "--all-groups", "--describe", *form)
    for line in text.splitlines():
        words = line.split()
        if words and words[0] != "GROUP":
            yield words
