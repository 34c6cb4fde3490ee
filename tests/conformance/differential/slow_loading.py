"""Makes a broker take seconds to load its groups, so that questions can be asked during the load.

A broker reads every record of its log when it loads its groups. So this module produces one batch of many commits for
one partition, stops the broker, and repeats the batch in the broker's log. The copies are valid, because a batch's
checksum does not cover its base offset. Brokers before 0.11 write single messages instead of batches. The module
repeats each message, whose checksum does not cover its offset either.
"""

import struct
from pathlib import Path

from confluent_kafka import Producer

from tests.conformance.librdkafka import NO_API_VERSIONS_SETTINGS
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import host_port
from tests.kafka.releases import OLD_RELEASES

ONE_PARTITION = {"offsets.topic.num.partitions": "1"}
_TOPIC = "__consumer_offsets"
_RECORDS = 10_000
_COPIES, _COPIES_OF_MESSAGES = 400, 150
_HEAD = struct.Struct(">qi")
"""Base offset and length of a batch, or offset and length of a message."""
_LAST_OFFSET_DELTA = 23
"""The position of the last offset delta in a batch of magic 2."""


def lengthen(broker: KafkaBroker, topic: str) -> None:
    """Makes the log of the only partition of the offsets topic long. Stops the broker and does not start it again."""
    _produce(broker, topic)
    broker.stop()
    [segment] = (broker.folder / "data" / f"{_TOPIC}-0").glob("*.log")
    if broker.release.version in OLD_RELEASES:
        _repeat_last_messages(segment)
    else:
        _repeat_last_batch(segment)
    for index in segment.parent.glob("*index"):
        index.unlink()  # The broker rebuilds the index from the log.


def _produce(broker: KafkaBroker, topic: str) -> None:
    """Produces one batch of commits. A broker accepts records for its offsets topic only from this client id."""
    settings = {
        "bootstrap.servers": host_port(broker.direct),
        "client.id": "__admin_client",
        "compression.type": "none" if broker.release.version in OLD_RELEASES else "gzip",
        "batch.num.messages": _RECORDS,
        "batch.size": 16_000_000,
        "linger.ms": 2_000,
        **NO_API_VERSIONS_SETTINGS.get(broker.release.version, {}),
    }
    producer = Producer(settings)
    failures: list[object] = []
    key = struct.pack(">h", 1) + _text("bulk") + _text(topic) + struct.pack(">i", 0)
    for number in range(_RECORDS):
        value = struct.pack(">hq", 1, number) + _text("") + struct.pack(">qq", 1, -1)
        producer.produce(_TOPIC, value, key, 0, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failures, failures[0]


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _repeat_last_batch(segment: Path) -> None:
    data = segment.read_bytes()
    place = end = 0
    while end < len(data):
        place = end
        base, length = _HEAD.unpack_from(data, place)
        end = place + _HEAD.size + length
    batch = bytearray(data[place:])
    (last,) = struct.unpack_from(">i", batch, _LAST_OFFSET_DELTA)
    with segment.open("ab") as log:
        for copy in range(1, _COPIES + 1):
            struct.pack_into(">q", batch, 0, base + copy * (last + 1))
            log.write(batch)


def _repeat_last_messages(segment: Path) -> None:
    data = segment.read_bytes()
    places = []
    end = 0
    while end < len(data):
        places.append(end)
        offset, length = _HEAD.unpack_from(data, end)
        end += _HEAD.size + length
    first, places = places[-_RECORDS], [place - places[-_RECORDS] for place in places[-_RECORDS:]]
    messages = bytearray(data[first:])
    with segment.open("ab") as log:
        for copy in range(_COPIES_OF_MESSAGES):
            for number, place in enumerate(places, offset + 1 + copy * _RECORDS):
                struct.pack_into(">q", messages, place, number)
            log.write(messages)
