"""Clients may commit any number. The sidecar reports offsets below 0 as the broker does, from the commit on."""

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from group_sidecar.codecs.primitives import ZERO_UUID
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import until
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic
from tests.kafka.wire import ask

OFFSETS = [
    (number, metadata) for number in (-1, -2, -7, -(1 << 63), 0, (1 << 63) - 1) for metadata in (None, "", "a note")
]
NOTHING_THERE = len(OFFSETS)
"""A partition without an offset."""
ANSWERED = "group_sidecar_mirror_answers_total"


def in_order(reply: OffsetFetchResponse) -> Any:
    """Returns the offsets of a reply, sorted, because brokers guarantee no order."""
    groups = [(group.error_code, group.topics) for group in reply.groups] or [(reply.error_code, reply.topics)]
    return [
        (error, [replace(t, partitions=tuple(sorted(t.partitions, key=lambda p: p.partition_index))) for t in topics])
        for error, topics in groups
    ]


def test_negative_offsets_match_broker(tmp_path: Path) -> None:
    """The sidecar's own answers about negative offsets equal the broker's in each version."""
    settings = {"answers": {"exclusive": True}, "offsets_log": {"read": False}}
    group, topic = f"g{secrets.token_hex(4)}", "topic"
    with (
        KafkaBroker(tmp_path / "broker") as broker,
        SidecarProcess(tmp_path, listen=broker.sidecar, upstream=broker.client, settings=settings) as sidecar,
    ):
        broker.wait_for_coordinator()
        make_topic(broker, topic, NOTHING_THERE + 1)
        by_name = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        topic_id = ask(broker.direct, by_name, 12).topics[0].topic_id
        partitions = tuple(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=number, committed_metadata=metadata)
            for index, (number, metadata) in enumerate(OFFSETS)
        )
        topics = (OffsetCommitRequestTopic(name=topic, partitions=partitions),)
        reply = ask(sidecar.listen, OffsetCommitRequest(group_id=group, topics=topics), 8)
        assert {each.error_code for each in reply.topics[0].partitions} == {0}
        asked = tuple(range(NOTHING_THERE + 1))
        for version in range(1, 11):
            named = OffsetFetchRequestTopic(
                name=topic if version < 10 else "",
                topic_id=topic_id if version >= 10 else ZERO_UUID,
                partition_indexes=asked,
            )
            for those in ((named,), None) if version > 1 else ((named,),):
                request = OffsetFetchRequest(
                    group_id=group, topics=those, groups=(OffsetFetchRequestGroup(group_id=group, topics=those),)
                )
                replies: list[OffsetFetchResponse] = []

                def own(request: OffsetFetchRequest = request, version: int = version) -> bool:
                    before = sidecar.metric(ANSWERED)
                    replies[:] = [ask(sidecar.listen, request, version)]  # noqa: B023
                    return sidecar.metric(ANSWERED) > before

                until(own, f"v{version} is answered by the sidecar")
                assert in_order(replies[0]) == in_order(ask(broker.direct, request, version)), version
