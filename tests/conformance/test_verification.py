"""Verification with a real broker: answers agree, or verification finds and repairs the difference."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.codecs.schema import Struct
from tests.conformance.held_groups import SETTLED, population
from tests.conformance.librdkafka import create_topic
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import ask

VERIFIED = "group_sidecar_mirror_verifications_total"
ANSWERED = "group_sidecar_mirror_answers_total"
DISTRUSTED = "group_sidecar_mirror_distrusted_groups"
FORWARDED = "group_sidecar_mirror_fallbacks_total"


@contextmanager
def verifying(folder: Path, **settings: Any) -> Iterator[tuple[KafkaBroker, SidecarProcess, Run]]:
    """Runs a broker, and a sidecar in front of it that verifies every answer."""
    answers = {"answers": {"exclusive": True, "verify": 1.0}}
    with (
        KafkaBroker(folder / "broker") as broker,
        SidecarProcess(
            folder, listen=broker.sidecar, upstream=broker.client, settings={**answers, **settings}
        ) as sidecar,
    ):
        broker.wait_for_coordinator()
        yield broker, sidecar, Run(Route("sidecar", broker.sidecar, broker.sidecar), f"t{secrets.token_hex(5)}")


def test_verified_answers_agree(tmp_path: Path) -> None:
    """All of the sidecar's own answers are verified and agree with the broker's."""
    with verifying(tmp_path) as (_, sidecar, run), population(run, (*SETTLED, "new")):
        classic, new = tuple(run.name(group) for group in SETTLED), run.name("new")
        questions: list[tuple[Struct, int]] = [(ListGroupsRequest(), version) for version in range(6)]
        questions += [(DescribeGroupsRequest(groups=(*classic, new)), version) for version in range(7)]
        question = ConsumerGroupDescribeRequest(group_ids=(new,), include_authorized_operations=False)
        questions += [(question, version) for version in (0, 1)]
        for group in (*classic, new):
            questions += [(OffsetFetchRequest(group_id=group, topics=None), version) for version in range(2, 8)]
            several = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
            questions += [(several, version) for version in (8, 9)]
        for request, version in questions:
            sidecar.process.wait_until(partial(answers, sidecar, request, version))
        # The clients of the groups send questions too.
        sidecar.process.wait_until(lambda: sidecar.metric(VERIFIED) == sidecar.metric(ANSWERED))
        assert sidecar.metric(VERIFIED, result="agreed") >= len(questions), sidecar.process.tail()
        assert sidecar.metric(VERIFIED, result="different") == sidecar.metric(DISTRUSTED) == 0


def answers(sidecar: SidecarProcess, request: Struct, version: int) -> bool:
    """Asks, and returns whether the sidecar answered itself."""
    before = sidecar.metric(ANSWERED)
    ask(sidecar.listen, request, version)
    return sidecar.metric(ANSWERED) > before


def commit(address: Address, group: str, topic: str, offset: int, partition_index: int = 0) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=partition_index, committed_offset=offset, committed_metadata=""
    )
    topics = (OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
    reply = ask(address, OffsetCommitRequest(group_id=group, topics=topics), 8)
    assert reply.topics[0].partitions[0].error_code == 0


def test_wrong_exclusive_setting_is_found(tmp_path: Path) -> None:
    """Verification finds a wrong answer after a client bypassed an exclusive sidecar that does not read the log, and
    the sidecar forwards from then on.
    """
    with verifying(tmp_path, offsets_log={"read": False}) as (broker, sidecar, run):
        group, topic = run.name("group"), create_topic(run, "topic")
        question = OffsetFetchRequest(group_id=group, topics=None)

        def told() -> int:
            return int(ask(sidecar.listen, question, 7).topics[0].partitions[0].committed_offset)

        commit(sidecar.listen, group, topic, 5)
        commit(broker.direct, group, topic, 6)
        assert told() == 5, "the sidecar has not seen the direct commit yet"
        sidecar.process.wait_until(lambda: sidecar.metric(DISTRUSTED) == 1)
        assert sidecar.metric(VERIFIED, api="OffsetFetch", result="different") == 1
        assert f"topics[{topic}].partitions[0].committed_offset" in sidecar.process.tail()
        assert told() == 6, "a question about a distrusted group must go to the broker"
        assert sidecar.metric(FORWARDED, api="OffsetFetch", reason="in_doubt") == 1
        sidecar.process.wait_until(lambda: sidecar.metric(DISTRUSTED) == 0)
        assert told() == 6
        assert sidecar.metric(FORWARDED, api="OffsetFetch", reason="in_doubt") == 1


def test_wrong_busy_group_answer_is_fixed(tmp_path: Path) -> None:
    """Verification finds and fixes a wrong answer about a group that commits all the time."""
    with verifying(tmp_path, offsets_log={"read": False}) as (broker, sidecar, run):
        group, topic = run.name("group"), create_topic(run, "topic", 2)
        question = OffsetFetchRequest(group_id=group, topics=None)

        def told() -> int:
            [found] = ask(sidecar.listen, question, 7).topics
            return next(int(each.committed_offset) for each in found.partitions if each.partition_index == 0)

        def corrected() -> bool:
            before = sidecar.metric(ANSWERED)
            return told() == 6 and sidecar.metric(ANSWERED) > before

        commit(sidecar.listen, group, topic, 5)
        commit(broker.direct, group, topic, 6)
        assert told() == 5, "the sidecar has not seen the direct commit yet"
        with ThreadPoolExecutor() as beside:
            done = Event()
            committing = beside.submit(_commit_until, done, sidecar.listen, group, topic)
            try:
                sidecar.process.wait_until(lambda: sidecar.metric(VERIFIED, api="OffsetFetch", result="different") == 1)
                sidecar.process.wait_until(lambda: sidecar.metric(DISTRUSTED) == 0)
                sidecar.process.wait_until(corrected)
            finally:
                done.set()
            assert committing.result() > 10


def _commit_until(done: Event, address: Address, group: str, topic: str) -> int:
    """Commits for partition 1 five times a second. Returns how often."""
    count = 0
    while not done.wait(0.2):
        count += 1
        commit(address, group, topic, count, 1)
    return count
