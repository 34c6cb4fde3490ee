"""The offsets log that the model of the coordinator writes, and a sidecar's reader of that log.

`ModelLog` writes the records that Kafka writes when a group has changed: completed generations, empty groups, offsets,
and tombstones for their removal. Kafka does not log a rebalance in progress. `Tail` makes one Fetch at a time.
"""

from collections.abc import Iterable

from google_crc32c import value as crc32c

from group_sidecar.codecs.offsets_topic import GroupKey, KeyType, OffsetCommitKey, encode_key, encode_value
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue, MemberMetadata, OffsetCommitValue
from group_sidecar.coordinator.manager import GroupMetadataManager
from tests.coordinator.model import Broker
from tests.coordinator.model_groups import EMPTY, STABLE, ModelGroup

Offsets = dict[tuple[str, int], tuple[int, int, str]]
Entry = tuple[bytes, bytes | None]


class ModelLog:
    """The log of a broker. `eager`: whether the broker writes a group at its first join, as Kafka 4 does."""

    def __init__(self, broker: Broker, *, eager: bool) -> None:
        self.entries: list[Entry] = []
        self._broker = broker
        self._eager = eager
        self._written: dict[bytes, bytes] = {}
        self._groups: set[str] = set()
        self._history: list[dict[str, Offsets]] = []

    def write(self) -> None:
        """Appends records for all changes since the last call."""
        there: dict[bytes, bytes | None] = {}
        for group in self._broker.groups.values():
            there |= self._records(group)
        for key in self._written.keys() - there.keys():
            self._append(key, None)
        for group_id in self._groups - self._broker.groups.keys():
            key = encode_key(KeyType.GROUP_METADATA, GroupKey(group_id=group_id))
            if self._eager:
                self.entries.append((key, None))
        self._groups = set(self._broker.groups)
        for key, value in there.items():
            if value is not None and self._written.get(key) != value:
                self._append(key, value)
        self._history.append({group.group_id: dict(group.offsets) for group in self._broker.groups.values()})

    @property
    def writings(self) -> int:
        """The number of calls of `write`."""
        return len(self._history)

    def had(self, group_id: str, since: int) -> list[Offsets]:
        """Returns the offsets of a group after each write from number `since` on. The first write is number 1."""
        return [groups.get(group_id, {}) for groups in self._history[max(since - 1, 0) :]]

    def repeat(self, keys: Iterable[bytes]) -> None:
        """Makes the next `write` append records with these keys again, as a broker does for a repeated commit."""
        for key in keys:
            self._written.pop(key, None)

    def _append(self, key: bytes, value: bytes | None) -> None:
        self.entries.append((key, value))
        if value is None:
            self._written.pop(key, None)
        else:
            self._written[key] = value

    def _records(self, group: ModelGroup) -> dict[bytes, bytes | None]:
        """Returns the records of a group by key. A group record that need not be written is None."""
        records: dict[bytes, bytes | None] = {}
        for (topic, partition), encoded in group.offsets.items():
            offset, epoch, metadata = encoded
            value = OffsetCommitValue(offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=0)
            key = OffsetCommitKey(group_id=group.group_id, topic=topic, partition=partition)
            records[encode_key(KeyType.OFFSET_COMMIT, key)] = encode_value(value, 3)
        key_of_group = encode_key(KeyType.GROUP_METADATA, GroupKey(group_id=group.group_id))
        simple = group.state == EMPTY and not group.generation and not group.protocol_type
        if group.state == STABLE or (group.state == EMPTY and not simple):
            records[key_of_group] = encode_value(_generation(group), 3)
        elif not simple and self._eager and key_of_group not in self._written:
            empty = GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=())
            records[key_of_group] = encode_value(empty, 3)
        else:
            records[key_of_group] = None
        return records


def _generation(group: ModelGroup) -> GroupMetadataValue:
    members = (
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=int(member.rebalance * 1000),
            session_timeout=int(member.session * 1000),
            subscription=dict(member.protocols)[group.protocol],
            assignment=member.assignment,
        )
        for member in (group.members.values() if group.state == STABLE else ())
    )
    return GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol or None,
        leader=group.leader or None,
        members=tuple(members),
    )


class Tail:
    """A sidecar's reader of the log, which has one partition. At most one Fetch is in flight."""

    def __init__(self, manager: GroupMetadataManager, log: ModelLog, now: float) -> None:
        self._follower = manager.log
        self._log = log
        self._follower.count_partitions(1, now)
        self._read = self._follower.begin_load(0, 0, 0, now)
        self._asked_at: float | None = None
        self._told: list[Entry] | None = None
        self._handled = 0
        self.reached = 0
        """The number of the last write whose records were all read."""

    def send(self, now: float) -> None:
        """Sends a Fetch to the broker, unless one is in flight."""
        if self._asked_at is None:
            self._asked_at = now

    def handle(self) -> None:
        """Makes the broker handle the Fetch that is in flight, if there is one."""
        if self._asked_at is not None and self._told is None:
            self._told = self._log.entries[self._read.next_offset :]
            self._handled = self._log.writings

    def deliver(self, now: float) -> None:
        """Delivers the reply of the Fetch to the sidecar, if the broker has handled the Fetch."""
        if self._asked_at is None or self._told is None:
            return
        for number, (key, value) in enumerate(self._told, self._read.next_offset):
            for _ in self._read.replay(batch(number, [(key, value)])):
                pass
        for _ in self._follower.merge(0, now):
            pass
        list(self._follower.end_reached(0, self._asked_at, now))
        self.reached = self._handled
        self._asked_at = self._told = None

    def catch_up(self, now: float) -> None:
        """Completes the Fetch that is in flight, then makes another from start to end."""
        self.handle()
        self.deliver(now)
        self.send(now)
        self.handle()
        self.deliver(now)


def batch(
    base_offset: int, records: list[Entry], *, producer_id: int = -1, transactional: bool = False, control: bool = False
) -> bytes:
    """Returns an uncompressed record batch of format 2, with its checksum."""
    body = b"".join(_record(delta, key, value) for delta, (key, value) in enumerate(records))
    attributes = 0x10 * transactional | 0x20 * control
    checked: bytes = (
        attributes.to_bytes(2) + (len(records) - 1).to_bytes(4) + bytes(16) + producer_id.to_bytes(8, signed=True)
    )
    checked += bytes(6) + len(records).to_bytes(4) + body
    checksum: int = crc32c(checked)
    rest = bytes(4) + b"\x02" + checksum.to_bytes(4) + checked
    return base_offset.to_bytes(8) + len(rest).to_bytes(4) + rest


def _record(delta: int, key: bytes, value: bytes | None) -> bytes:
    encoded = b"\0\0" + _varint(delta) + _varint(len(key)) + key
    encoded += _varint(-1) if value is None else _varint(len(value)) + value
    return _varint(len(encoded) + 1) + encoded + b"\0"


def _varint(value: int) -> bytes:
    """Encodes a signed integer as a zigzag varint."""
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
