"""An old broker and a newer one with the same history, and sidecars that add versions to what the old one speaks.

Owns: `Stage`, `Outcome`: what both were asked and said. Must not know: which differences are right.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.proxy.client import CLIENT_ID
from tests.conformance.differential.added_table import Added
from tests.conformance.differential.comparison import DIFFERENT, LOCAL
from tests.conformance.differential.history import (
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
from tests.conformance.differential.nature import ASKING, LATE, RELAYED, WITNESS, Nature, nature_of
from tests.conformance.differential.places import Difference, Naming, Place, differences, places
from tests.conformance.differential.scene import Scene
from tests.conformance.recording import Head, RecordingProxy
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect
from tests.kafka.processes import free_addresses
from tests.kafka.sidecar import SidecarProcess
from tests.kafka.wire import Wire

SITUATIONS: Mapping[str, Mapping[str, Any]] = {
    WITNESS: {"answers": {"exclusive": True, "authorizer": "none", "verify": 0}},
    LATE: {"answers": {"exclusive": True, "authorizer": "none", "verify": 0}},
    ASKING: {"answers": {"verify": 0}, "offsets_log": {"read": False}},
}
"""What a sidecar may know, with its settings. All clients come through the first."""
ASKER, TOO_NEW = "asker", "too new"
"""Client ids of who asks in versions that are offered, and in others."""

_BY_ITSELF = {state.name for state in HISTORY if state.by_itself} | {SETTLED_ONES, ALL}
"""What the broker does by itself reaches a sidecar by the log; what is asked of such groups may take a while."""
_BY_ITSELF_SECONDS = 20.0
_SETTLING_SECONDS = 0.5
_ROUND_SECONDS = 0.05

Answers = Mapping[Asked, Mapping[Place, Any]]


@dataclass(frozen=True)
class Outcome:
    """How one question was answered.

    Args:
        how: `LOCAL` or `RELAYED`.
        natural: where it differs from a newer broker's, and that is right.
        wrong: where it differs otherwise.
    """

    asked: Asked
    how: str
    natural: Mapping[Difference, Nature]
    wrong: Sequence[Difference]

    def cell(self, broker: str, situation: str) -> Added:
        """What the table says."""
        question, natures = self.asked.question, frozenset(self.natural.values())
        how = DIFFERENT if self.wrong else self.how
        return Added(broker, situation, self.asked.state, question.api, question.version, question.way, how, natures)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.asked}: {self.how}", *map(str, self.wrong)])


@dataclass
class Stage:
    """An old broker that goes through the history, for as long as its groups are held in their states.

    Args:
        version: the broker's.
        dialect: what it speaks.
        recording: what all sidecars come through.
        sidecars: by situation.
        expected: what newer brokers say.
        scenes: by state.
        early: what was asked while all groups were settled.
    """

    version: str
    dialect: Dialect
    recording: RecordingProxy
    sidecars: Mapping[str, SidecarProcess]
    expected: Answers
    scenes: dict[str, Scene] = field(default_factory=dict)
    early: Sequence[Outcome] = ()

    def offered(self, situation: str) -> Dialect:
        """What its clients may speak there."""
        return Dialect.of(self.sidecars[situation].listen)

    def added(self, situation: str) -> Mapping[int, range]:
        """The versions that clients may speak there, and the broker itself does not, by API."""
        offered = self.offered(situation)
        return {key: range(self.dialect.spoken[key].stop, offered.spoken[key].stop) for key in VERSIONS}

    def outcomes(self, situation: str) -> list[Outcome]:
        """Asks everything there in versions that are added."""
        asked = list(asked_of(self.scenes, self.added(situation)))
        assert asked, "no version is added"
        return [*(self.early if situation == WITNESS else ()), *self.settled(situation, asked)]

    def settled(self, situation: str, left: Sequence[Asked]) -> list[Outcome]:
        """The outcomes, once the sidecar has settled; a wrong one stays where the broker does nothing by itself."""
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

    def _outcome(self, situation: str, asked: Asked, wire: Wire, named: Naming) -> Outcome:
        before = len(self.recording.heads)
        told = places(wire.ask(asked.question.request, asked.question.version), named)
        how = RELAYED if any(head.client_id == ASKER for head in self.recording.heads[before:]) else LOCAL
        found = list(differences(self.expected[asked], told))
        natural = {each: nature for each in found if (nature := nature_of(self.version, situation, how, asked, each))}
        return Outcome(asked, how, natural, [each for each in found if each not in natural])

    def forwarded_amiss(self) -> list[Head]:
        """What came to the broker of APIs and versions that it does not speak. A sidecar itself has to ask for them."""
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
    """A stage of its own."""
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

        sidecars = {situation: sidecar(situation) for situation in (WITNESS, ASKING)}
        sidecars[WITNESS].wait_for_log()
        dialect = Dialect.of(broker.direct)
        direct, client = Client(broker.direct, dialect), Client(broker.sidecar, dialect)
        told = Stage(version, dialect, recording, sidecars, expected)
        told.scenes |= made(client, direct, [state for state in SETTLED if state.exists(version)], stack)
        told.early = told.settled(WITNESS, list(lists(SETTLED_ONES, told.added(WITNESS))))
        told.scenes |= made(client, direct, UNSETTLED, stack)
        sidecars[LATE] = sidecar(LATE)
        sidecars[LATE].wait_for_log()
        yield told


@contextmanager
def up(version: str, folder: Path) -> Iterator[KafkaBroker]:
    """A broker that can go through the history, with its topics."""
    with KafkaBroker(folder / "broker", version=version, properties=PROPERTIES) as broker:
        broker.wait_for_coordinator()
        make_topics(broker)
        yield broker


def answers_of(version: str, folder: Path) -> Answers:
    """What a broker of this version says of the history, asked directly."""
    with ExitStack() as stack:
        broker = stack.enter_context(up(version, folder))
        dialect = Dialect.of(broker.direct)
        client = Client(broker.direct, dialect)
        wire = stack.enter_context(client.wire())

        def answers(asked: Iterable[Asked]) -> Iterator[tuple[Asked, Mapping[Place, Any]]]:
            for each in asked:
                yield each, places(wire.ask(each.question.request, each.question.version), naming(scenes))

        scenes = made(client, client, SETTLED, stack)
        told = dict(answers(lists(SETTLED_ONES, dialect.spoken)))
        scenes |= made(client, client, UNSETTLED, stack)
        return told | dict(answers(asked_of(scenes, dialect.spoken)))
