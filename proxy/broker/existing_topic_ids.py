"""Tracks which topic ids the broker still has.

`TopicIds` holds the ids that questions are about and when the broker last confirmed the ids. `TopicIds` also decides
which ids to ask about next. Times are arguments, in seconds since the epoch as `CoordinatorCopy.epoch` returns them.

A broker answers UNKNOWN_TOPIC_ID for a deleted topic, even if a topic of the same name was created since (KIP-516). A
deletion need not appear in any traffic that the sidecar sees. So a confirmation is valid for `FRESH_SECONDS` only.
"""

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from group_sidecar.coordinator.model.events import NEVER

FRESH_SECONDS = 1.5
"""Seconds for which the broker's confirmation is valid."""
ROUND_SECONDS = 0.5
"""Seconds from the beginning of one round of requests to the next."""
IDLE_SECONDS = 30.0
"""All ids are dropped if no question by id has come for this many seconds. An id that no question has used for this
long is dropped too."""
MAX_TOPIC_IDS = 1000
"""The maximum number of ids that are tracked. A question about further ids is left to the broker."""
IDS_AT_ONCE = 100
"""The maximum number of ids in one Metadata request. The reply lists all partitions of each topic."""


class TopicIds:
    """The topic ids that recent questions were about, as the broker last confirmed them.

    Attributes:
        names: topic names by id, for the confirmed ids. Each name occurs once.
        revision: grows when an id is confirmed for the first time or dropped.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.names: dict[UUID, str] = {}
        self._wanted: dict[UUID, None] = {}
        self._used: set[UUID] = set()
        self._left_in_round: list[UUID] = []
        self._round_at = self._checked_at = self._asked_at = self._dropped_at = NEVER

    # Questions of clients.

    def are_fresh(self, now: float, deleted_at: float = NEVER) -> bool:
        """Whether the confirmations that `are_confirmed` relies on are recent enough for an answer.

        `deleted_at`: when the last sign of a deletion was seen. A confirmation before that time does not count.
        """
        self._asked_at = now
        return now - self._checked_at <= FRESH_SECONDS and self._checked_at > deleted_at

    def are_confirmed(self, ids: Collection[UUID]) -> bool:
        """Whether all of these ids are confirmed. The broker will be asked about the others, up to MAX_TOPIC_IDS."""
        missing = [topic_id for topic_id in ids if topic_id not in self.names]
        self._used.update(topic_id for topic_id in ids if topic_id in self.names)
        for topic_id in missing:
            if len(self.names) + len(self._wanted) < MAX_TOPIC_IDS:
                self._wanted[topic_id] = None
        return not missing

    # Questions to the broker.

    def due(self, now: float) -> list[UUID]:
        """Returns the ids to ask about now. The list is empty if no request is due."""
        if now - self._asked_at > IDLE_SECONDS:
            self._drop(self.names)
            self._wanted.clear()
            self._left_in_round.clear()
        elif not self._left_in_round and now - self._round_at >= ROUND_SECONDS:
            self._drop_unused(now)
            self._left_in_round, self._round_at = [*self.names, *self._wanted], now
            self._wanted.clear()
            if not self._left_in_round:
                self._checked_at = now
        return self._left_in_round[:IDS_AT_ONCE]

    def learn(self, asked: Iterable[UUID], existing: Mapping[UUID, str]) -> None:
        """Stores the broker's reply about the ids in `asked`, which `due` returned. `existing` has the ids that the
        broker still has, with the topics' names.
        """
        asked = set(asked)
        self._left_in_round = [topic_id for topic_id in self._left_in_round if topic_id not in asked]
        unknown = asked - self.names.keys()
        new = {topic_id: name for topic_id, name in existing.items() if topic_id in unknown}
        ids_by_name = {name: topic_id for topic_id, name in self.names.items()}
        self._drop(asked.difference(existing))
        self._drop(ids_by_name[name] for name in new.values() if name in ids_by_name)
        self.names |= new
        self._used |= new.keys()
        self.revision += bool(new)
        if not self._left_in_round:
            self._checked_at = self._round_at

    def _drop(self, ids: Iterable[UUID]) -> None:
        for topic_id in list(ids):
            if self.names.pop(topic_id, None) is not None:
                self._used.discard(topic_id)
                self.revision += 1

    def _drop_unused(self, now: float) -> None:
        """Drops the ids that no recent reply has used.

        A new revision invalidates the cached replies. The next questions build their replies again, and these builds
        show which ids are still used.
        """
        if now - self._dropped_at < IDLE_SECONDS:
            return
        self._drop(self.names.keys() - self._used)
        self._used.clear()
        self._dropped_at = now
        self.revision += 1
