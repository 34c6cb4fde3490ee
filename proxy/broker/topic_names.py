"""Holds topic names by topic id, and the topic ids whose names the sidecar will request from the broker.

`existing_topic_ids` holds which ids the broker still has. This module keeps a name when its topic is deleted.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Set
from uuid import UUID

from group_sidecar.coordinator.state.bounded_table import ENTRY_BYTES, TableSize
from group_sidecar.proxy.broker.deferred_replies import DeferredReplies

MAX_TOPIC_NAMES = 100_000
"""The maximum number of topic ids whose names are held. If the name of a committed topic id is not known, the offset is
not stored, and the offsets of the group count as incomplete."""
MAX_WANTED_TOPIC_IDS = 10_000
"""The maximum number of topic ids that wait to be asked about. Beyond this limit, the oldest ids are evicted."""


class TopicNames:
    """The names of one broker's topics.

    Args:
        deferred: the replies that are applied before a name is learnt, because these replies are older than the name.

    Attributes:
        by_id: the names by topic id. The dictionary is never replaced, so other objects may keep it.
    """

    def __init__(self, deferred: DeferredReplies) -> None:
        self.by_id: OrderedDict[UUID, str] = OrderedDict()
        self._deferred = deferred
        self._wanted: OrderedDict[UUID, None] = OrderedDict()

    def learn(self, names: Mapping[UUID, str]) -> None:
        """Stores topic names by id."""
        self._deferred.apply_waiting()
        for topic_id, name in names.items():
            self.by_id.pop(topic_id, None)
            self.by_id[topic_id] = name
            self._wanted.pop(topic_id, None)
        while len(self.by_id) > MAX_TOPIC_NAMES:
            self.by_id.popitem(last=False)  # The oldest entry.

    def request(self, topic_ids: Iterable[UUID]) -> None:
        """Queues the topic ids without a known name. The reconciler requests their names from the broker."""
        for topic_id in topic_ids:
            if topic_id not in self.by_id:
                self._wanted[topic_id] = None
        while len(self._wanted) > MAX_WANTED_TOPIC_IDS:
            self._wanted.popitem(last=False)

    @property
    def wanted(self) -> Set[UUID]:
        """The topic ids whose names the sidecar will request from the broker."""
        return self._wanted.keys()

    @property
    def tables(self) -> Iterator[TableSize]:
        """Yields the sizes of the names and of the wanted ids."""
        names = sum(map(len, self.by_id.values())) + len(self.by_id) * ENTRY_BYTES
        yield TableSize("topic_names", len(self.by_id), names)
        yield TableSize("topic_names_wanted", len(self._wanted), len(self._wanted) * ENTRY_BYTES)
