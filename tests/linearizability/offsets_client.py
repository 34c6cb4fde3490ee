"""A client that commits, reads and deletes offsets, with and without transactions, and records these operations.

Clients of one slot use the same groups at the same time. Every few seconds, all clients of a slot move to a new group,
so that the history of a key stays short.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.linearizability.connections import GROUP, Connections, NotSent, Progress, Unanswered
from tests.linearizability.history import NO_OFFSET, LineFile, Operation, key_of, now

TOPIC, PARTITIONS = "offsets", 3
EPOCH_SECONDS = 15.0
"""How long clients use a group, in seconds. The longest pauses are shorter, so a coordinator that was paused still gets
requests about the group."""
WITHOUT_EFFECT = {int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), int(ErrorCode.GROUP_ID_NOT_FOUND)}
"""Errors of a write that certainly has no effect. A write that gets NOT_COORDINATOR may be in the log already: Kafka's
coordinator fails the writes that wait for replication when it loses its partition (`CoordinatorRuntime.unload`)."""
_MOVED = {int(ErrorCode.NOT_COORDINATOR), int(ErrorCode.COORDINATOR_NOT_AVAILABLE)}
_MAX_UNKNOWN, _MAX_UNKNOWN_COMMITS = 2, 10
"""How many writes of a client may have unknown results in one group. Afterwards the client only reads this group. The
second limit is for groups whose clients only commit, because `history.checkable` leaves most of their unknown commits
out."""
_TRANSACTIONS, _DELETES = 0.1, 0.1
_THINK_SECONDS, _BACKOFF_SECONDS = 0.008, 0.1
_COMMIT_VERSION, _ONE_GROUP_VERSION, _GROUPS_VERSION = 8, 7, 8


@dataclass(frozen=True)
class Slot:
    """Which operations the clients of a slot do.

    Attributes:
        number: the number of the slot.
        deletes, transacts: whether its clients delete offsets, and commit in transactions.
        reads: the share of reads. A sidecar forwards reads while several clients commit the same offset at the same
            time, so a smaller share of writes gives more local answers.
    """

    number: int
    deletes: bool
    transacts: bool
    reads: float

    def group(self, run: str, since: float) -> str:
        """Returns the current group. The slots change their groups at different times."""
        epoch = int((time.monotonic() - since + self.number * EPOCH_SECONDS / 5) / EPOCH_SECONDS)
        return f"{run}-{self.number}-{epoch}"


class OffsetsClient:
    """One client. It has one request at a time.

    Args:
        name: unique in the run.
        number: unique in the run; the upper bits of all values that it writes.
        connections: its connections to the brokers.
        random: decides what the client does.
        recorder: records the operations.
        progress: counts successes and errors.
    """

    def __init__(
        self,
        name: str,
        number: int,
        connections: Connections,
        random: Random,
        recorder: LineFile,
        progress: Progress,
    ) -> None:
        self._name, self._random = name, random
        self._connections, self._recorder, self._progress = connections, recorder, progress
        self._values = count((number << 32) + 1)
        self.group = ""
        self._unknown = 0

    def value(self) -> int:
        """Returns an offset that no client has written before."""
        return next(self._values)

    def enter(self, group: str) -> None:
        """Uses this group from now on."""
        if group != self.group:
            self._connections.forget(GROUP, self.group)
            self.group, self._unknown = group, 0

    def step(self, slot: Slot, transact: Callable[[], None]) -> None:
        """Does one operation of a slot. `transact` runs a transaction."""
        choice = self._random.random()
        only_commits = not (slot.deletes or slot.transacts)
        if self._unknown >= (_MAX_UNKNOWN_COMMITS if only_commits else _MAX_UNKNOWN) or choice < slot.reads:
            self.read()
        elif slot.transacts and choice < slot.reads + _TRANSACTIONS:
            transact()
        elif slot.deletes and choice > 1 - _DELETES:
            self.delete()
        else:
            self.commit()

    def partitions(self) -> list[int]:
        """Returns some partitions of the topic."""
        return self._random.sample(range(PARTITIONS), self._random.choice((1, 1, PARTITIONS)))

    def pause(self) -> None:
        """Waits for the usual time between two operations."""
        time.sleep(self._random.expovariate(1 / _THINK_SECONDS))

    def commit(self) -> None:
        """Commits offsets of some partitions."""
        values = {partition: self.value() for partition in self.partitions()}
        places = tuple(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=value, committed_metadata="")
            for partition, value in values.items()
        )
        request = OffsetCommitRequest(
            group_id=self.group, topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=places),)
        )
        self.write("commit", values, lambda: self._connections.ask(GROUP, self.group, request, _COMMIT_VERSION))

    def delete(self) -> None:
        """Deletes the offset of one partition."""
        partition = self._random.randrange(PARTITIONS)
        place = OffsetDeleteRequestPartition(partition_index=partition)
        topics = (OffsetDeleteRequestTopic(name=TOPIC, partitions=(place,)),)
        request = OffsetDeleteRequest(group_id=self.group, topics=topics)
        self.write("delete", {partition: NO_OFFSET}, lambda: self._connections.ask(GROUP, self.group, request, 0))

    def write(self, kind: str, values: dict[int, int], ask: Callable[[], Any], txn: int = 0) -> bool:
        """Sends a write of these values by partition, and records it. Returns whether all partitions succeeded."""
        began = now()
        try:
            reply = ask()
        except NotSent as error:
            self._failed(str(error))
            return False
        except Unanswered as error:
            self._failed(str(error))
            results = dict.fromkeys(values, -1)
        else:
            results = _results(reply, values)
        ended = now()
        for partition, value in values.items():
            if results[partition] in WITHOUT_EFFECT:
                continue
            known = ended if results[partition] == 0 else None
            key = key_of(self.group, partition)
            self._recorder.append(Operation(key, self._name, kind, began, known, value, txn).line())
        self._count(set(results.values()))
        return set(results.values()) == {0}

    def read(self) -> None:
        """Reads some or all offsets of the group, by one of several forms of OffsetFetch."""
        stable = self._random.random() < 0.5
        wanted = None if self._random.random() < 0.3 else self.partitions()
        topics = None if wanted is None else (OffsetFetchRequestTopic(name=TOPIC, partition_indexes=tuple(wanted)),)
        if self._random.random() < 0.5:
            version = _ONE_GROUP_VERSION
            request = OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=stable)
        else:
            version = _GROUPS_VERSION
            groups = (OffsetFetchRequestGroup(group_id=self.group, topics=topics),)
            request = OffsetFetchRequest(groups=groups, require_stable=stable)
        began = now()
        try:
            reply = self._connections.ask(GROUP, self.group, request, version)
        except (NotSent, Unanswered) as error:
            self._failed(str(error))
            return
        self._note_read(reply.groups[0] if reply.groups else reply, wanted, began, stable=stable)

    def _note_read(self, reply: Any, wanted: Sequence[int] | None, began: int, *, stable: bool) -> None:
        ended = now()
        if reply.error_code:
            self._failed(int(reply.error_code))
            return
        found = {part.partition_index: part for topic in reply.topics for part in topic.partitions}
        for partition in range(PARTITIONS) if wanted is None else wanted:
            part = found.get(partition)
            if part is not None and part.error_code:
                self._progress.failed(int(part.error_code))
                continue
            # A reply about all partitions lacks a partition whose only offset is pending, even with require_stable.
            kind = "stable_read" if stable and part is not None else "read"
            value = part.committed_offset if part is not None else NO_OFFSET
            self._recorder.append(
                Operation(key_of(self.group, partition), self._name, kind, began, ended, value).line()
            )
        self._progress.succeeded()

    def _count(self, codes: set[int]) -> None:
        if codes == {0}:
            self._progress.succeeded()
            return
        if codes - WITHOUT_EFFECT - {0}:
            self._unknown += 1
        for code in codes - {0, -1}:
            self._failed(code)

    def _failed(self, error: int | str) -> None:
        self._progress.failed(error)
        if error in _MOVED:
            self._connections.forget(GROUP, self.group)
        time.sleep(self._random.uniform(0.5, 1.5) * _BACKOFF_SECONDS)


def _results(reply: Any, values: dict[int, int]) -> dict[int, int]:
    """Returns the error code of each partition."""
    if code := getattr(reply, "error_code", 0):
        return dict.fromkeys(values, int(code))
    return {part.partition_index: int(part.error_code) for topic in reply.topics for part in topic.partitions}
