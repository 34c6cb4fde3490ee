"""An old broker and a newer one with the same history, and sidecars that add API versions to those of the old broker.

`Stage` asks a sidecar and compares its reply with that of the newer broker. `Outcome` is the result.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.proxy.broker.kafka_client import CLIENT_ID
from tests.conformance.differential.added_table import Added
from tests.conformance.differential.answer_paths import AnswerPath, Difference, NameNormalizer, differences, places
from tests.conformance.differential.comparison import DIFFERENT, LOCAL
from tests.conformance.differential.expected_differences import (
    ASKING,
    RELAYED,
    SAW_HISTORY,
    STARTED_LATER,
    ExpectedDifference,
    explain_difference,
)
from tests.conformance.differential.group_history import (
    ALL,
    HISTORY,
    PROPERTIES,
    SETTLED,
    SETTLED_ONES,
    UNSETTLED,
    VERSIONS,
    Asked,
    asked_of,
    lists,
    made,
    make_topics,
    naming,
)
from tests.conformance.differential.group_setup import Scene
from tests.conformance.recording_proxy import Head, RecordingProxy
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect
from tests.kafka.processes import free_addresses
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

SITUATIONS: Mapping[str, Mapping[str, Any]] = {
    SAW_HISTORY: {"answers": {"exclusive": True, "authorizer": "none", "verify": 0}},
    STARTED_LATER: {"answers": {"exclusive": True, "authorizer": "none", "verify": 0}},
    ASKING: {"answers": {"verify": 0}, "offsets_log": {"read": False}},
}
"""The sidecars' situations, each with its settings. All clients connect through the sidecar of the first situation."""
ASKER, TOO_NEW = "asker", "too new"
"""Client ids of requests in offered versions, and of requests in newer versions."""

_BY_ITSELF = {state.name for state in HISTORY if state.by_itself} | {SETTLED_ONES, ALL}
"""Groups that the broker changes without a request. The sidecar learns of such changes from the log, with a delay."""
_BY_ITSELF_SECONDS = 20.0
_SETTLING_SECONDS = 0.5
_ROUND_SECONDS = 0.05

Answers = Mapping[Asked, Mapping[AnswerPath, Any]]


@dataclass(frozen=True)
class Outcome:
    """The result of one question.

    Args:
        how: `LOCAL` or `RELAYED`.
        natural: expected differences from the reply of a newer broker.
        wrong: all other differences.
    """

    asked: Asked
    how: str
    expected_differences: Mapping[Difference, ExpectedDifference]
    wrong: Sequence[Difference]

    def cell(self, broker: str, situation: str) -> Added:
        """Returns the cell of the table."""
        question, natures = self.asked.question, frozenset(self.expected_differences.values())
        how = DIFFERENT if self.wrong else self.how
        return Added(broker, situation, self.asked.state, question.api, question.version, question.way, how, natures)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.asked}: {self.how}", *map(str, self.wrong)])


@dataclass
class Stage:
    """An old broker with groups that are held in the states of the history.

    Args:
        version: the broker's version.
        dialect: the versions that the broker supports.
        recording: the proxy between all sidecars and the broker.
        sidecars: the sidecars by situation.
        expected: the replies of newer brokers.
        scenes: the scenes by state.
        early: the outcomes of the questions that were asked while all groups were stable.
    """

    version: str
    dialect: Dialect
    recording: RecordingProxy
    sidecars: Mapping[str, SidecarProcess]
    expected: Answers
    scenes: dict[str, Scene] = field(default_factory=dict)
    early: Sequence[Outcome] = ()

    def offered(self, situation: str) -> Dialect:
        """Returns the versions that a sidecar offers to clients in a situation."""
        return Dialect.of(self.sidecars[situation].listen)

    def added(self, situation: str) -> Mapping[int, range]:
        """Returns the versions that a sidecar offers in a situation and the broker itself does not support, by API."""
        offered = self.offered(situation)
        return {key: range(self.dialect.spoken[key].stop, offered.spoken[key].stop) for key in VERSIONS}

    def outcomes(self, situation: str) -> list[Outcome]:
        """Asks all questions in the added versions of a situation."""
        questions_asked = list(asked_of(self.scenes, self.added(situation)))
        assert questions_asked, "no version is added"
        return [*(self.early if situation == SAW_HISTORY else ()), *self.settled(situation, questions_asked)]

    def settled(self, situation: str, left: Sequence[Asked]) -> list[Outcome]:
        """Returns the outcomes once the sidecar has settled.

        A wrong outcome is final if the broker does not change the groups without a request.
        """
        outcomes: dict[Asked, Outcome] = {}
        started = time.monotonic()
        while True:
            outcomes |= {outcome.asked: outcome for outcome in self._ask(situation, left)}
            passed = time.monotonic() - started
            wrong = [outcome.asked for outcome in outcomes.values() if outcome.wrong]
            if passed > _BY_ITSELF_SECONDS or any(asked.state not in _BY_ITSELF for asked in wrong):
                break
            left = [] if situation == ASKING else [each.asked for each in outcomes.values() if each.how != LOCAL]
            if not wrong and (not left or passed > _SETTLING_SECONDS):
                break
            left = [*{*left, *wrong}]
            time.sleep(_ROUND_SECONDS)
        return list(outcomes.values())

    def _ask(self, situation: str, asked: Iterable[Asked]) -> list[Outcome]:
        named = naming(self.scenes)
        with Wire(self.sidecars[situation].listen, client_id=ASKER) as wire:
            return [self._outcome(situation, each, wire, named) for each in asked]

    def _outcome(self, situation: str, asked: Asked, wire: Wire, named: NameNormalizer) -> Outcome:
        before = len(self.recording.heads)
        reply = places(wire.ask(asked.question.request, asked.question.version), named)
        how = RELAYED if any(head.client_id == ASKER for head in self.recording.heads[before:]) else LOCAL
        found = list(differences(self.expected[asked], reply))
        expected_differences = {
            each: expected_difference
            for each in found
            if (expected_difference := explain_difference(self.version, situation, how, asked, each))
        }
        return Outcome(asked, how, expected_differences, [each for each in found if each not in expected_differences])

    def forwarded_amiss(self) -> list[Head]:
        """Returns the forwarded requests that the broker received in versions that it does not support.

        Leaves out the sidecar's own ApiVersions requests and the clients that use too new versions on purpose.
        """
        spoken = self.dialect.spoken
        return [
            head
            for head in self.recording.heads
            if head.version not in spoken.get(head.api_key, range(0))
            and head.client_id != TOO_NEW
            and (head.api_key, head.client_id) != (ApiVersionsRequest.KEY, CLIENT_ID)
        ]


@contextmanager
def staged(version: str, folder: Path, expected: Answers) -> Iterator[Stage]:
    """Runs a stage for the length of a with statement."""
    with ExitStack() as stack:
        broker = stack.enter_context(up(version, folder))
        [between, *places_to_listen] = free_addresses(len(SITUATIONS))
        recording = stack.enter_context(RecordingProxy(between, broker.client))
        listen = dict(zip(SITUATIONS, (broker.sidecar, *places_to_listen), strict=True))

        def sidecar(situation: str) -> SidecarProcess:
            settings, place = dict(SITUATIONS[situation]), folder / situation
            return stack.enter_context(
                SidecarProcess(place, listen=listen[situation], upstream=between, settings=settings)
            )

        sidecars = {situation: sidecar(situation) for situation in (SAW_HISTORY, ASKING)}
        sidecars[SAW_HISTORY].wait_for_log()
        dialect = Dialect.of(broker.direct)
        direct, client = Client(broker.direct, dialect), Client(broker.sidecar, dialect)
        stage = Stage(version, dialect, recording, sidecars, expected)
        stage.scenes |= made(client, direct, [state for state in SETTLED if state.exists(version)], stack)
        stage.early = stage.settled(SAW_HISTORY, list(lists(SETTLED_ONES, stage.added(SAW_HISTORY))))
        stage.scenes |= made(client, direct, UNSETTLED, stack)
        sidecars[STARTED_LATER] = sidecar(STARTED_LATER)
        sidecars[STARTED_LATER].wait_for_log()
        yield stage


@contextmanager
def up(version: str, folder: Path) -> Iterator[KafkaBroker]:
    """Runs a broker with the topics of the history for the length of a with statement."""
    with KafkaBroker(folder / "broker", version=version, properties=PROPERTIES) as broker:
        broker.wait_for_coordinator()
        make_topics(broker)
        yield broker


def answers_of(version: str, folder: Path) -> Answers:
    """Returns the replies of a broker of this version about the history, without a sidecar."""
    with ExitStack() as stack:
        broker = stack.enter_context(up(version, folder))
        dialect = Dialect.of(broker.direct)
        client = Client(broker.direct, dialect)
        wire = stack.enter_context(client.wire())

        def answers(asked: Iterable[Asked]) -> Iterator[tuple[Asked, Mapping[AnswerPath, Any]]]:
            for each in asked:
                yield each, places(wire.ask(each.question.request, each.question.version), naming(scenes))

        scenes = made(client, client, SETTLED, stack)
        listed = dict(answers(lists(SETTLED_ONES, dialect.spoken)))
        scenes |= made(client, client, UNSETTLED, stack)
        return listed | dict(answers(asked_of(scenes, dialect.spoken)))
