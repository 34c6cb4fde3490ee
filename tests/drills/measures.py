"""Reads the reports of a group's members, and the generations of groups from the broker's log."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

from group_sidecar.codecs.offsets_topic import OFFSETS_TOPIC, KeyType, decode_as, decode_key
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue
from tests.kafka.processes import GIVE_UP_SECONDS

_REPORT = "{"


@dataclass(frozen=True)
class Event:
    """One line of a client program.

    Attributes:
        at: seconds since the epoch.
        member: the number of the member in its program.
        partitions: the partitions of which the member has read records.
        error: the error that the member has reported; empty if it has read records.
    """

    at: float
    member: int
    partitions: tuple[int, ...] = ()
    error: str = ""


def events_in(output: str) -> list[Event]:
    """Returns the events in the output of a client program, without other lines and without an unfinished line."""
    lines = output.splitlines(keepends=True)
    reports = [line for line in lines if line.startswith(_REPORT) and line.endswith("}\n")]
    return [
        Event(each["at"], each["member"], tuple(each.get("partitions", ())), each.get("error", ""))
        for each in map(json.loads, reports)
    ]


@dataclass(frozen=True)
class Noticed:
    """The effects on the clients of one group while all sidecars or all brokers restart once.

    Attributes:
        rebalances: how many generations the broker began.
        idle_seconds: the longest time in which the group read no record of some partition.
        errors: how often the clients reported each error.
    """

    rebalances: int
    idle_seconds: float
    errors: Mapping[str, int]


def idle_seconds(events: Iterable[Event], partitions: Sequence[int], start: float, end: float) -> float:
    """Returns the longest time, within a window, in which no record of some partition was read."""
    times: dict[int, list[float]] = {partition: [start] for partition in partitions}
    for event in sorted(events, key=lambda each: each.at):
        if start < event.at < end:
            for partition in event.partitions:
                times[partition].append(event.at)
    return max(
        later - earlier for found in times.values() for earlier, later in zip(found, [*found[1:], end], strict=True)
    )


def errors(events: Iterable[Event], start: float, end: float) -> dict[str, int]:
    """Returns how often the clients reported each error within a window."""
    found: dict[str, int] = {}
    for event in events:
        if event.error and start <= event.at <= end:
            found[event.error] = found.get(event.error, 0) + 1
    return found


def generations(bootstrap: str) -> dict[str, int]:
    """Returns the newest generation of each classic group, from the whole log of the coordinators."""
    found: dict[str, int] = {}
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True})
    try:
        partitions = sorted(reader.list_topics(OFFSETS_TOPIC, GIVE_UP_SECONDS).topics[OFFSETS_TOPIC].partitions)
        reader.assign([TopicPartition(OFFSETS_TOPIC, number, 0) for number in partitions])
        open_partitions = set(partitions)
        while open_partitions:
            message = reader.poll(GIVE_UP_SECONDS)
            assert message is not None, f"{OFFSETS_TOPIC} cannot be read to its end"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_partitions.discard(message.partition() or 0)
            elif message.value() is not None:
                _note(found, message.key() or b"", message.value() or b"")
    finally:
        reader.close()
    return found


def _note(found: dict[str, int], key: bytes, value: bytes) -> None:
    kind, fields = decode_key(key)
    if kind is KeyType.GROUP_METADATA:
        found[fields.group_id] = decode_as(GroupMetadataValue, value).generation
