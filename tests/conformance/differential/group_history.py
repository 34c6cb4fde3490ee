"""The same history on every broker: groups in many states at once, with equal names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.conformance.differential.answer_paths import NameNormalizer
from tests.conformance.differential.group_requests import Question, Subject, questions
from tests.conformance.differential.group_setup import Scene
from tests.conformance.differential.group_states import STATES, State
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect
from tests.kafka.topics import make_topic

TOPIC, OTHER = "topic", "other"
PARTITIONS = 64
PROPERTIES = {
    "offsets.retention.check.interval.ms": "300",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "1800000",
    "offsets.commit.timeout.ms": "100000",  # A busy machine may need more than the default of 5 s.
    "controlled.shutdown.enable": "false",  # No other broker can take over.
}
"""Properties of a broker that can play the history."""
VERSIONS: Mapping[int, range] = {
    ListGroupsRequest.KEY: range(6),
    DescribeGroupsRequest.KEY: range(7),
    OffsetFetchRequest.KEY: range(1, 10),
}
"""The versions that a sidecar may add, by API. OffsetFetch v0 reads from ZooKeeper, and v10 names topics by id."""
SETTLED_ONES, ALL = "settled together", "all together"
"""Names in place of a state, for questions about all groups or none: with stable groups only, and with all groups."""
_LAST_SINGLE_FETCH = 7
_ISSUED = re.compile(r"^(.*)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""A member id, with the client id as its group."""


def _many_offsets(scene: Scene) -> None:
    scene.commit({partition: partition * partition for partition in range(PARTITIONS)})


_BY_NAME = {state.name: state for state in (*STATES, State("many offsets", _many_offsets))}
SETTLED = tuple(
    _BY_NAME[name]
    for name in ("never seen", "simple", "empty", "stable", "dead", "session expired", "deleted", "many offsets")
)
UNSETTLED = tuple(_BY_NAME[name] for name in ("preparing", "completing", "completing again"))
HISTORY = SETTLED + UNSETTLED
"""The states in the order in which they are made."""


@dataclass(frozen=True)
class Asked:
    """A question, and the state of the group that it names, or the name that replaces a state."""

    state: str
    question: Question

    def __str__(self) -> str:
        return f"{self.state}: {self.question}"


def make_topics(broker: KafkaBroker) -> None:
    """Creates both topics."""
    make_topic(broker, TOPIC, PARTITIONS)
    make_topic(broker, OTHER)


def made(client: Client, direct: Client, states: Sequence[State], stack: ExitStack) -> dict[str, Scene]:
    """Brings a group into each state, and holds it there until the stack closes. Returns the scenes by state."""
    scenes = {}
    for state in states:
        scenes[state.name] = scene = Scene(client, direct, state.name, TOPIC, OTHER, stack)
        state.make(scene)
    return scenes


def naming(scenes: Mapping[str, Scene]) -> NameNormalizer:
    """Names members by their order in the group. A member that has not joined a generation may not know its own id."""
    members = ((number, member) for scene in scenes.values() for number, member in enumerate(scene.members, 1))
    heard = ((number, member) for number, member in members if member.member_id and member.generation >= 0)
    names = {member.member_id: f"member {number}" for number, member in heard}
    return lambda text: names.get(text) or _ISSUED.sub(r"newcomer \1", text)


def asked_of(scenes: Mapping[str, Scene], versions: Mapping[int, range]) -> Iterator[Asked]:
    """Yields all questions in these versions, by API, limited to those of `VERSIONS`."""
    yield from lists(ALL, versions)
    dialect = _dialect(versions)
    for state, scene in scenes.items():
        for question in questions(_subject(scene.group), dialect):
            if question.request.KEY != ListGroupsRequest.KEY:
                yield Asked(state, question)
    groups = tuple(state.name for state in HISTORY if state.since is None)  # The states that every broker has.
    for version in dialect.versions(DescribeGroupsRequest.KEY):
        yield Asked(ALL, Question("DescribeGroups", version, "all", DescribeGroupsRequest(groups=groups)))
    for version in dialect.versions(OffsetFetchRequest.KEY):
        if version > _LAST_SINGLE_FETCH:
            several = tuple(OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups)
            yield Asked(ALL, Question("OffsetFetch", version, "all", OffsetFetchRequest(groups=several)))


def lists(state: str, versions: Mapping[int, range]) -> Iterator[Asked]:
    """Yields the questions that ask for all groups."""
    dialect = _dialect({ListGroupsRequest.KEY: versions.get(ListGroupsRequest.KEY, range(0))})
    return (Asked(state, question) for question in questions(_subject(""), dialect))


def _subject(group: str) -> Subject:
    return Subject(group, TOPIC, OTHER, {})


def _dialect(versions: Mapping[int, range]) -> Dialect:
    return Dialect({key: _both(its, versions.get(key, range(0))) for key, its in VERSIONS.items()})


def _both(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
