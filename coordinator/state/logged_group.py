"""The surviving records of one group in `__consumer_offsets`. `partition_log` changes them."""

PendingOffset = tuple[int, bytes | None]
"""A record of a transaction: its offset in the log and its value, which is None for a tombstone."""


class LoggedGroup:
    """The surviving records of one group.

    Attributes:
        offsets: each raw OffsetCommitValue by its key suffix, the part of the key after the group: topic and partition.
        pending: offsets of open transactions, by producer id and key suffix. They stay here until the transaction
            ends, even if they have been overwritten.
        pending_keys: how many open transactions have a pending offset, by key suffix.
        pending_count: how many offsets `pending` has.
        overwritten: the position in the log of the last write, by key suffix. It has only keys that were written while
            they were in `pending_keys`. Pending offsets before that position are never committed.
        metadata: the raw GroupMetadataValue; None if the log has none.
        records: raw values of all other types, by their whole keys (KIP-848, share and streams groups).
        is_deleted: whether the group's metadata was deleted and no offset was committed since.
        changes: how often any of `records` changed.
        removed: how many offsets were removed since the last merge.
        counted: the number of offsets, pending ones included, at the last `PartitionLog.recount`.
    """

    __slots__ = (
        "_taken_changes",
        "_taken_metadata",
        "changes",
        "counted",
        "group_id",
        "is_deleted",
        "metadata",
        "offsets",
        "overwritten",
        "pending",
        "pending_count",
        "pending_keys",
        "records",
        "removed",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets: dict[bytes, bytes] = {}
        self.pending: dict[int, dict[bytes, PendingOffset]] = {}
        self.pending_keys: dict[bytes, int] = {}
        self.pending_count = 0
        self.overwritten: dict[bytes, int] = {}
        self.metadata: bytes | None = None
        self.records: dict[bytes, bytes] = {}
        self.is_deleted = False
        self.changes = 0
        self.removed = self.counted = self._taken_changes = 0
        self._taken_metadata: bytes | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no record of the group survives."""
        return not (self.offsets or self.pending or self.records or self.metadata is not None)

    @property
    def has_offsets(self) -> bool:
        """Whether the log has offsets of the group, pending ones included."""
        return bool(self.offsets or self.pending)

    def take_new_state(self) -> bool:
        """Returns whether `metadata` or `records` have changed since the last call."""
        is_new = self.metadata is not self._taken_metadata or self.changes != self._taken_changes
        self._taken_metadata, self._taken_changes = self.metadata, self.changes
        return is_new
