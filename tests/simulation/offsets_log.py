"""The partitions of `__consumer_offsets` that the model broker writes, and the groups that a broker loads from them."""

from collections.abc import Mapping

from group_sidecar.codecs.offsets_topic import (
    GroupKey,
    KeyType,
    OffsetCommitKey,
    decode_as,
    decode_key,
    encode_key,
    encode_value,
)
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue, OffsetCommitValue
from group_sidecar.coordinator.state.log_partitions import partition_for
from tests.coordinator.model import Broker
from tests.coordinator.model_groups import EMPTY, STABLE, ModelGroup, ModelMember
from tests.coordinator.model_log import Entry, ModelLog, batch
from tests.proxy.offsets_log.log_broker import Partition
from tests.simulation.history import Offsets


class _MovableLog(ModelLog):
    """A log whose groups may move to another broker, without tombstones."""

    def forget(self, keys: set[bytes], groups: set[str]) -> None:
        """Forgets the records of groups that another broker coordinates now, and writes no tombstones for them."""
        for key in keys:
            self._written.pop(key, None)
        self._groups -= groups

    def restore(self, values: dict[bytes, bytes]) -> None:
        """Takes back the records of groups that this broker coordinates again."""
        self._written |= values
        self._groups |= {_group_of(key) for key in values}


class OffsetsLog:
    """The log of a broker.

    Attributes:
        partitions: by number. The broker leads a partition unless its `led` is False.
        may_move: whether the cluster has another broker, which may lead partitions.
    """

    def __init__(self, model: Broker, partitions: int, *, eager: bool, may_move: bool) -> None:
        self._model = model
        self.may_move = may_move
        self._log = _MovableLog(model, eager=eager)
        self._written = 0
        self._values: dict[bytes, bytes] = {}
        self._keys: dict[int, list[list[bytes]]] = {number: [] for number in range(partitions)}
        """The keys of each batch, by partition."""
        self.partitions = {number: Partition() for number in range(partitions)}

    def partition_of(self, group_id: str) -> int:
        """Returns the number of the partition that stores a group."""
        return partition_for(group_id, len(self.partitions))

    def write(self) -> bool:
        """Appends a batch for each partition whose groups have changed. Returns whether there was any."""
        self._log.write()
        entries = self._log.entries[self._written :]
        self._written = len(self._log.entries)
        found: dict[int, list[Entry]] = {}
        for key, value in entries:
            found.setdefault(self.partition_of(_group_of(key)), []).append((key, value))
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        for number, records in found.items():
            partition = self.partitions[number]
            partition.append(batch(partition.high_watermark, records), len(records))
            self._keys[number].append([key for key, _ in records])
        return bool(found)

    def repeat(self, group_id: str, offsets: Offsets) -> None:
        """Makes the next `write` append these offsets, even if the last commit has stored equal ones."""
        self._log.repeat(_offset_records(group_id, offsets))

    def write_pending(self, group_id: str, producer_id: int, offsets: Offsets) -> None:
        """Appends offsets that count only if their transaction is committed."""
        records: list[Entry] = [*_offset_records(group_id, offsets).items()]
        self._append(self.partition_of(group_id), records, producer_id)

    def write_marker(self, number: int, producer_id: int, offsets: Mapping[str, Offsets], *, committed: bool) -> None:
        """Appends the end of a transaction to a partition. `offsets`: the transaction's offsets by group."""
        marker: Entry = (b"\0\0" + int(committed).to_bytes(2), bytes(6))
        self._append(number, [marker], producer_id, control=True)
        if committed:
            for group_id, group_offsets in offsets.items():
                values = _offset_records(group_id, group_offsets)
                self._values |= values
                self._log.restore(values)

    def _append(self, number: int, records: list[Entry], producer_id: int, *, control: bool = False) -> None:
        """Appends a batch of a transaction. Compaction never removes it."""
        partition = self.partitions[number]
        at = partition.high_watermark
        data = batch(at, records, producer_id=producer_id, transactional=True, control=control)
        partition.append(data, len(records))
        self._keys[number].append([f"transaction {at}".encode()])

    def compact(self, number: int) -> None:
        """Removes the batches of a partition that have only outdated records. All other records keep their offsets."""
        last = {key: at for at, keys in enumerate(self._keys[number]) for key in keys}
        kept = sorted(set(last.values()))
        partition = self.partitions[number]
        partition.batches = [partition.batches[at] for at in kept]
        self._keys[number] = [self._keys[number][at] for at in kept]

    def _values_of(self, number: int) -> dict[bytes, bytes]:
        return {key: value for key, value in self._values.items() if self.partition_of(_group_of(key)) == number}

    def forget_groups(self, number: int) -> None:
        """Forgets the groups of a partition that this broker no longer leads. The model has removed them before."""
        values = self._values_of(number)
        self._log.forget({*values}, {_group_of(key) for key in values})

    def load(self, number: int, now: float) -> None:
        """Puts the groups of a partition into the model, as a broker does when it becomes the leader."""
        values = self._values_of(number)
        self._log.restore(values)
        for key, value in values.items():
            kind, decoded = decode_key(key)
            group_id = _group_of(key)
            group = self._model.groups.setdefault(group_id, ModelGroup(group_id))
            if kind is KeyType.GROUP_METADATA:
                _restore(group, decode_as(GroupMetadataValue, value), now)
            else:
                assert isinstance(decoded, OffsetCommitKey)
                offset = decode_as(OffsetCommitValue, value)
                stored = (offset.offset, offset.leader_epoch, offset.metadata)
                group.offsets[decoded.topic, decoded.partition] = stored


def _offset_records(group_id: str, offsets: Offsets) -> dict[bytes, bytes]:
    """Returns the records of committed offsets, as values by key."""
    return {
        encode_key(
            KeyType.OFFSET_COMMIT, OffsetCommitKey(group_id=group_id, topic=topic, partition=partition)
        ): encode_value(OffsetCommitValue(offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=0), 3)
        for (topic, partition), (offset, epoch, metadata) in offsets.items()
    }


def _restore(group: ModelGroup, logged: GroupMetadataValue, now: float) -> None:
    group.protocol_type, group.generation = logged.protocol_type, logged.generation
    group.protocol, group.leader = logged.protocol or "", logged.leader or ""
    group.state = STABLE if logged.members else EMPTY
    for each in logged.members:
        session = each.session_timeout / 1000
        group.members[each.member_id] = ModelMember(
            member_id=each.member_id,
            instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            session=session,
            rebalance=each.rebalance_timeout / 1000,
            protocols=((group.protocol, each.subscription),),
            assignment=each.assignment,
            is_new=False,
            expires=now + session,
        )


def _group_of(key: bytes) -> str:
    decoded = decode_key(key)[1]
    assert isinstance(decoded, GroupKey | OffsetCommitKey)
    return decoded.group_id
