"""In versions that only the sidecar supports, its answers are those of a newer broker with the same history.

`EXPECTED_DIFFERENCES` has the permitted differences. ``make conformance`` runs further brokers and writes
``docs/conformance.md``.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import pytest

from group_sidecar.codecs.api_registry import api_name
from group_sidecar.codecs.headers import RequestHeader, encode_request
from tests.conformance.added_versions import (
    ASKER,
    SITUATIONS,
    TOO_NEW,
    Answers,
    Outcome,
    Stage,
    answers_of,
    staged,
)
from tests.conformance.differential.added_table import added_table_of
from tests.conformance.differential.answer_paths import AnswerPath
from tests.conformance.differential.comparison import LOCAL
from tests.conformance.differential.expected_differences import EXPECTED_DIFFERENCES, SAW_HISTORY
from tests.conformance.differential.group_history import SETTLED_ONES, VERSIONS, Asked, asked_of
from tests.kafka.wire import Wire

pytestmark = pytest.mark.timeout(300)

BROKERS = (
    "0.9.0.1",
    *(pytest.param(version, marks=pytest.mark.long) for version in ("0.10.1.1", "0.10.2.2", "1.1.1", "2.8.2")),
)
REFERENCES = ("4.4.0", "2.8.2")
"""The newer brokers. If both support a version of an API, the last one in this tuple gives the expected answers."""

MUST_BE_LOCAL: tuple[tuple[str, str, str, str], ...] = (
    (SAW_HISTORY, SETTLED_ONES, "ListGroups", "*"),
    (SAW_HISTORY, "stable", "DescribeGroups", ""),
    *((SAW_HISTORY, "*", "OffsetFetch", way) for way in ("all", "none", "named", "several")),
)
"""Patterns of situation, state, API and way of the questions that the sidecar has to answer itself."""


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers of newer brokers."""
    answers: dict[Asked, Mapping[AnswerPath, Any]] = {}
    for version in REFERENCES:
        answers.update(answers_of(version, tmp_path_factory.mktemp("reference")))
    return answers


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest, expected: Answers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """A stage for one old version of Kafka."""
    with staged(request.param, tmp_path_factory.mktemp("added"), expected) as stage:
        yield stage


@pytest.mark.parametrize("stage", BROKERS, indirect=True, scope="module")
def test_answers_match_newer_broker(stage: Stage, request: pytest.FixtureRequest) -> None:
    """In versions that only the sidecar supports, its answers match a newer broker's except expected differences."""
    wrong, used = [], set()
    for situation in SITUATIONS:
        outcomes = stage.outcomes(situation)
        added_table_of(request.config).record(outcome.cell(stage.version, situation) for outcome in outcomes)
        wrong += [f"{situation}: {outcome}" for outcome in outcomes if outcome.wrong or not fitting(situation, outcome)]
        used |= {nature for outcome in outcomes for nature in outcome.expected_differences.values()}
    assert not wrong, "\n".join(wrong)
    assert [row for row in EXPECTED_DIFFERENCES if stage.version in row.brokers and row not in used] == []
    assert stage.forwarded_amiss() == []


def fitting(situation: str, outcome: Outcome) -> bool:
    """Whether the sidecar answered itself if `MUST_BE_LOCAL` requires that."""
    place = (situation, outcome.asked.state, outcome.asked.question.api, outcome.asked.question.way)
    must_be_local = any(all(map(fnmatchcase, place, patterns)) for patterns in MUST_BE_LOCAL)
    return outcome.how == LOCAL or not must_be_local


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("stage", BROKERS, indirect=True, scope="module")
def test_only_advertised_versions_are_answered(stage: Stage, situation: str) -> None:
    """The sidecar answers each version that it advertises, and closes the connection on the next higher version."""
    offered = stage.offered(situation)
    asked = {
        (question.request.KEY, question.version): question.request
        for question in (each.question for each in asked_of(stage.scenes, offered.spoken))
    }
    with Wire(stage.sidecars[situation].listen, client_id=ASKER) as wire:
        for (_, version), request in asked.items():
            wire.ask(request, version)
    assert {key for key, _ in asked} == set(VERSIONS)
    for key in VERSIONS:
        newest = offered.newest(key)
        frame = encode_request(asked[key, newest], RequestHeader(key, newest, 1, TOO_NEW))
        with Wire(stage.sidecars[situation].listen) as wire:
            wire.send(frame[:6] + (newest + 1).to_bytes(2, "big") + frame[8:])
            assert wire.closed(), f"the connection must close at {api_name(key)} v{newest + 1}"
    assert stage.forwarded_amiss() == []
