"""The sidecar's answers equal the broker's answers for each broker, state of a group, API, version and way to ask.

The sidecar may leave a question to the broker, except for the questions in `MUST_BE_LOCAL`.
``make conformance`` writes the outcome of each question to ``docs/conformance.md``.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest
from tests.conformance.differential import slow_loading
from tests.conformance.differential.answers_table import ALL_TOGETHER, FOUND, LOADING, SEEN, Table, table_of
from tests.conformance.differential.comparison import LOCAL, Asker, Outcome
from tests.conformance.differential.group_requests import Question, Subject, questions
from tests.conformance.differential.group_setup import Scene
from tests.conformance.differential.group_states import STATES, State
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.processes import free_addresses
from tests.kafka.releases import ALL_RELEASES, OLD_RELEASES, RELEASES
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic

pytestmark = pytest.mark.timeout(300)

MUST_BE_LOCAL: tuple[tuple[str, str, str, str, str], ...] = (
    ("*", SEEN, "stable", "DescribeGroups", ""),
    ("*", "*", "simple", "DescribeGroups", ""),
    ("*", SEEN, "consumer unassigned", "ConsumerGroupDescribe", ""),
)
"""Patterns of broker, axis, state, API and way of the questions that the sidecar has to answer itself."""

EXCLUSIVE = {"answers": {"exclusive": True}}
WITHOUT_ACLS = {"answers": {"exclusive": True, "authorizer": "none"}}
"""A sidecar cannot find out whether a broker before 0.11 has an authorizer."""
PROPERTIES = {
    "offsets.retention.check.interval.ms": "300",
    "group.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "300000",
    "group.consumer.max.session.timeout.ms": "300000",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.assignment.interval.ms": "600000",
    "group.streams.initial.rebalance.delay.ms": "0",
}
SIMILAR = ("4.3.1", "2.8.2")
"""Versions that differ little from the next newer one, so only ``make conformance`` tests them."""
RECENT = tuple(pytest.param(version, marks=pytest.mark.long) if version in SIMILAR else version for version in RELEASES)
BROKERS = (
    *RECENT,
    "0.9.0.1",
    *(pytest.param(version, marks=pytest.mark.long) for version in ("0.10.2.2", "0.10.1.1")),
)
"""The versions of a usual run. Kafka 0.9 differs most from all other versions. Only ``make conformance`` tests the
remaining versions."""
_LOADED_ALWAYS = ("4.4.0", "1.1.1")
LOADED = tuple(
    version if version in _LOADED_ALWAYS else pytest.param(version, marks=pytest.mark.long) for version in ALL_RELEASES
)
"""Kafka 4.4 has the new group coordinator and 1.1 the old one. Only ``make conformance`` loads the other versions."""
_LOADS = 5
"""The maximum number of loads in which all questions are asked. One is enough, unless the machine is very busy."""
_PLAIN = ("", "all")
"""The ways to ask that represent all others."""
_WILL_NOT_SETTLE = (LOCAL, "forwarded", "forwarded (version)")
"""Outcomes that do not change with time."""
_SETTLING_SECONDS = State.settling_seconds
_ROUND_SECONDS = 0.05
_BY_ITSELF_SECONDS = 20.0
"""The maximum seconds until the log shows the sidecar a change that the broker makes by itself."""


@dataclass(frozen=True)
class Stage:
    """A broker with topics of 4 and 1 partitions, and the sidecar through which all clients connect."""

    version: str
    broker: KafkaBroker
    sidecar: SidecarProcess
    direct: Client
    client: Client
    topics: tuple[str, str]
    topic_ids: dict[str, UUID]
    table: Table

    @contextmanager
    def scene(self, state: State) -> Iterator[Scene]:
        """Brings a new group into this state and holds it there. Deletes the group afterwards if the broker can."""
        group = f"{state.name} {secrets.token_hex(4)}"
        with ExitStack() as stack:
            scene = Scene(self.client, self.direct, group, *self.topics, stack)
            state.make(scene)
            yield scene
        if DeleteGroupsRequest.KEY in self.direct.dialect.spoken:
            self.client.ask(DeleteGroupsRequest(groups_names=(group,)))
        else:
            # The broker itself soon removes a group without offsets. This must not happen during later questions.
            until(lambda: bool(scene.committed()) or not scene.listed_as(), "the broker has dropped the group")

    def subject(self, scene: Scene) -> Subject:
        return Subject(scene.group, *self.topics, self.topic_ids, scene.member)


@contextmanager
def staged(
    version: str, folder: Path, table: Table, properties: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Stage]:
    """Runs a stage for the length of a with statement."""
    with (
        KafkaBroker(folder / "broker", version=version, properties={**PROPERTIES, **properties}) as broker,
        SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=settings(version)) as sidecar,
    ):
        broker.wait_for_coordinator()
        sidecar.wait_for_log()
        dialect = Dialect.of(broker.direct)
        direct, client = Client(broker.direct, dialect), Client(broker.sidecar, dialect, "client of the sidecar")
        topics = {"topic": 4, "other": 1}
        for name, partitions in topics.items():
            make_topic(broker, name, partitions)
        yield Stage(version, broker, sidecar, direct, client, ("topic", "other"), topic_ids(direct), table)


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage for one version of Kafka."""
    with staged(request.param, tmp_path_factory.mktemp("differential"), table_of(request.config)) as stage:
        yield stage


def settings(version: str) -> dict[str, Any]:
    """Returns the settings of a sidecar in front of a broker of this version."""
    return WITHOUT_ACLS if version in OLD_RELEASES else EXCLUSIVE


def topic_ids(client: Client) -> dict[str, UUID]:
    """Returns topic ids by name. They are equal for all topics if the broker does not support topic ids."""
    reply = client.ask(MetadataRequest(topics=None if client.dialect.newest(MetadataRequest.KEY) else ()))
    return {topic.name: topic.topic_id for topic in reply.topics}


@pytest.mark.parametrize("state", STATES, ids=attrgetter("name"))
@pytest.mark.parametrize("stage", BROKERS, indirect=True, scope="module")
def test_group_seen_from_start(stage: Stage, state: State) -> None:
    """For a group seen from the start, its answers equal the broker's in each state, API and version."""
    with stage.scene(state) as scene, Asker(stage.broker.direct, stage.sidecar) as asker:
        asked_questions = list(questions(stage.subject(scene), stage.direct.dialect))
        outcomes = examine(asker, asked_questions, _BY_ITSELF_SECONDS if state.by_itself else 0, state.settling_seconds)
    with Asker(stage.broker.direct, stage.sidecar) as asker:
        afterwards = settle(asker, [question for question in asked_questions if question.api == "ListGroups"])
    judge(stage, SEEN, {state.name: [*outcomes, *afterwards]})


@pytest.mark.parametrize("stage", BROKERS, indirect=True, scope="module")
def test_groups_older_than_sidecar(stage: Stage, tmp_path: Path) -> None:
    """For groups older than the sidecar, its answers equal the broker's in each state, API and version."""
    with ExitStack() as stack:
        scenes = {state: stack.enter_context(stage.scene(state)) for state in STATES if state.exists(stage.version)}
        late = stack.enter_context(started_late(stage.broker, tmp_path))
        asker = stack.enter_context(Asker(stage.broker.direct, late))
        asked = {
            state.name: list(questions(stage.subject(scene), stage.direct.dialect)) for state, scene in scenes.items()
        }
        lists = [question for question in asked[STATES[0].name] if question.api == "ListGroups"]
        reads = {state: [each for each in its if each.api != "ListGroups"] for state, its in asked.items()}
        early = settle(asker, [each for its in reads.values() for each in its if each.way in _PLAIN])
        outcomes = {state: asker.ask_all(its) for state, its in reads.items()}
        outcomes[ALL_TOGETHER] = [*early, *examine(asker, lists)]
    judge(stage, FOUND, outcomes)


@contextmanager
def started_late(broker: KafkaBroker, folder: Path) -> Iterator[SidecarProcess]:
    """Runs a second sidecar in front of the same broker. It knows as little as a sidecar after a restart."""
    [listen] = free_addresses(1)
    own_settings = settings(broker.release.version)
    with SidecarProcess(folder, listen=listen, upstream=broker.client, settings=own_settings) as sidecar:
        yield sidecar


@pytest.mark.parametrize("version", LOADED)
def test_answers_while_broker_loads(version: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """While the broker loads, the sidecar's answers equal the broker's."""
    state = State(LOADING, lambda scene: scene.commit({0: 3}))
    with (
        staged(version, tmp_path, table_of(request.config), slow_loading.ONE_PARTITION) as stage,
        stage.scene(state) as scene,
    ):
        slow_loading.lengthen(stage.broker, scene.topic)
        outcomes = asked_meanwhile(stage, scene)
    judge(stage, SEEN, {LOADING: outcomes})


def asked_meanwhile(stage: Stage, scene: Scene) -> list[Outcome]:
    """Asks each question while the broker is loading and refuses to answer for the group. Returns the outcomes.

    If a load ends before all questions were asked, the broker is restarted.
    """
    outcomes: list[Outcome] = []
    left = sorted(questions(stage.subject(scene), stage.direct.dialect), key=lambda question: -question.version)
    for _ in range(_LOADS):
        stage.broker.start()
        with Asker(stage.broker.direct, stage.sidecar) as asker:
            while left and (refusal := scene.refusal()):
                outcome = asker.ask(left[0])
                if scene.refusal() == refusal:
                    outcomes.append(outcome)
                    left.pop(0)
        if not left:
            break
        stage.broker.stop()
    assert not left, f"{len(left)} questions were not asked while the broker was loading"
    return outcomes


def examine(
    asker: Asker,
    asked_questions: Sequence[Question],
    seconds_to_agree: float = 0,
    settling_seconds: float = _SETTLING_SECONDS,
) -> list[Outcome]:
    """Asks all questions after the sidecar has settled. The outcomes include the differences before that."""
    return [*settle(asker, asked_questions, seconds_to_agree, settling_seconds), *asker.ask_all(asked_questions)]


def settle(
    asker: Asker,
    asked_questions: Sequence[Question],
    seconds_to_agree: float = 0,
    settling_seconds: float = _SETTLING_SECONDS,
) -> list[Outcome]:
    """Asks until the sidecar answers all questions itself, or for `settling_seconds`.

    Otherwise, the table would depend on timing. Returns the outcomes that differ from the broker's answers after
    `seconds_to_agree`; an empty list if all agree.
    """
    left = list({(each.api, each.way, each.group): each for each in asked_questions}.values())
    started = time.monotonic()
    while True:
        passed = time.monotonic() - started
        outcomes = asker.ask_all(left)
        wrong = [outcome for outcome in outcomes if not outcome.agrees]
        if wrong and passed >= seconds_to_agree:
            return wrong
        left = [outcome.question for outcome in outcomes if outcome.text not in _WILL_NOT_SETTLE]
        if not wrong and (not left or passed > settling_seconds):
            return []
        time.sleep(_ROUND_SECONDS)


def judge(stage: Stage, axis: str, outcomes: Mapping[str, Sequence[Outcome]]) -> None:
    """Records the outcomes by state. Asserts that all answers agree, and that `MUST_BE_LOCAL` is respected."""
    wrong = []
    for state, its in outcomes.items():
        stage.table.record(stage.version, axis, state, its)
        wrong += [f"{state}: {outcome}" for outcome in its if not outcome.agrees]
        left = (outcome for outcome in its if outcome.how != LOCAL)
        wrong += [f"{state}: {outcome}" for outcome in left if must_be_local(stage.version, axis, state, outcome)]
    assert not wrong, "\n".join(wrong)


def must_be_local(version: str, axis: str, state: str, outcome: Outcome) -> bool:
    """Whether `MUST_BE_LOCAL` names the question of an outcome."""
    place = (version, axis, state, outcome.question.api, outcome.question.way)
    return any(all(map(fnmatchcase, place, patterns)) for patterns in MUST_BE_LOCAL)
