"""There are more groups than `limits.groups`. The sidecar leaves OffsetFetch for the other groups to the broker."""

import secrets
from pathlib import Path

import pytest

from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect
from tests.kafka.group_members import commit
from tests.kafka.processes import free_addresses
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.topics import make_topic
from tests.kafka.wire import ask

GROUPS = 4


@pytest.mark.parametrize("exclusive", [False, True], ids=["default", "exclusive"])
def test_offsets_beyond_limit_match_broker(broker: KafkaBroker, tmp_path: Path, exclusive: bool) -> None:
    """With `limits.groups: 1`, each group's offsets equal those that were committed before the sidecar started."""
    broker.wait_for_coordinator()
    topic = f"t{secrets.token_hex(4)}"
    make_topic(broker, topic)
    client = Client(broker.direct, Dialect.of(broker.direct))
    committed = {f"{topic}-{number}": number for number in range(GROUPS)}
    for group, offset in committed.items():
        commit(client, group, topic, {0: offset})
    settings = {"limits": {"groups": 1}, "answers": {"exclusive": exclusive}}
    [listen] = free_addresses(1)
    with SidecarProcess(tmp_path, listen=listen, upstream=broker.client, settings=settings) as sidecar:
        sidecar.wait_for_log()
        for group, offset in committed.items():
            reply = ask(sidecar.listen, OffsetFetchRequest(group_id=group, topics=None), 7)
            offsets = [each.committed_offset for found in reply.topics for each in found.partitions]
            assert offsets == [offset], group
        assert sidecar.metric("group_sidecar_table_entries", table="groups") == 1
