"""Moves leaders of partitions by requests that the codecs do not have.

AlterPartitionReassignments (45) v0 puts another replica first. ElectLeaders (43) v2 then makes it the leader.
"""

import struct
from collections.abc import Mapping, Sequence

from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic
from group_sidecar.codecs.primitives import encode_compact_string, uvarint
from tests.kafka.processes import Address
from tests.kafka.wire import Wire, ask

_ALTER_REASSIGNMENTS, _ELECT_LEADERS = 45, 43
_TIMEOUT_MS = 5000
_SECONDS = 8.0
_NO_TAGS = b"\0"


def replicas(broker: Address, topic: str) -> dict[int, tuple[int, list[int]]]:
    """Returns the leader and the replicas of each partition of a topic. Raises OSError."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
    reply = ask(broker, request, 8)
    return {part.partition_index: (part.leader_id, [*part.replica_nodes]) for part in reply.topics[0].partitions}


def move_leaders(broker: Address, topic: str, wanted: Mapping[int, int]) -> None:
    """Makes brokers the leaders of partitions, except where the new leader is not in sync. Raises OSError.

    Args:
        broker: any broker. It forwards the requests to the controller.
        topic: the topic whose leaders move.
        wanted: the new leader by partition. It must be a replica.
    """
    present = replicas(broker, topic)
    orders = {
        number: [leader, *(node for node in present[number][1] if node != leader)] for number, leader in wanted.items()
    }
    _send(broker, _ALTER_REASSIGNMENTS, 0, _reassignment(topic, orders))
    _send(broker, _ELECT_LEADERS, 2, _election(topic, [*wanted]))


def _reassignment(topic: str, orders: Mapping[int, Sequence[int]]) -> bytes:
    partitions = b"".join(
        struct.pack(">i", number) + uvarint(len(nodes) + 1) + struct.pack(f">{len(nodes)}i", *nodes) + _NO_TAGS
        for number, nodes in orders.items()
    )
    head = struct.pack(">i", _TIMEOUT_MS) + uvarint(2) + encode_compact_string(topic)
    return head + uvarint(len(orders) + 1) + partitions + _NO_TAGS + _NO_TAGS


def _election(topic: str, partitions: Sequence[int]) -> bytes:
    preferred = b"\0"
    numbers = struct.pack(f">{len(partitions)}i", *partitions)
    head = preferred + uvarint(2) + encode_compact_string(topic)
    return head + uvarint(len(partitions) + 1) + numbers + _NO_TAGS + struct.pack(">i", _TIMEOUT_MS) + _NO_TAGS


def _send(broker: Address, key: int, version: int, body: bytes) -> bytes:
    """Sends a flexible request. Returns the reply."""
    header = struct.pack(">hhih", key, version, 1, 5) + b"admin" + _NO_TAGS
    with Wire(broker, seconds=_SECONDS) as wire:
        wire.send_token(header + body)
        return wire.receive()
