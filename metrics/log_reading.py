"""What the reading of one broker's `__consumer_offsets` tells of itself.

Owns: the numbers. Must not know: Prometheus, connections, what the records mean. One thread bumps and reads them.
"""

from collections import Counter
from collections.abc import Mapping

from group_sidecar.coordinator.following import LogFollower
from group_sidecar.coordinator.partitions import PartitionState
from group_sidecar.metrics.traffic import Histogram

LOAD_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bucket bounds: from an empty partition to one that was never compacted."""
MOST_TYPES = 32
"""Key types told apart; Kafka 4.3 has 18. The log could hold thousands."""
OTHER, NO_KEY = "other", "none"
"""What key types beyond those are called, and what has no type at all."""


class LogReading:
    """Numbers of one broker's log, since the start of the process.

    Args:
        follower: knows the partitions' states, and what has expired.

    Attributes:
        records: records read, those of repeated loads included.
        skipped: records with a key of a type that is not known, by type.
        loads: seconds that a partition took from the first Fetch to the end of its log.
        lags: by partition that is tailed, the records between what was read and the end of the log.
    """

    __slots__ = ("_follower", "lags", "loads", "records", "skipped")

    def __init__(self, follower: LogFollower) -> None:
        self._follower = follower
        self.records = 0
        self.skipped: Counter[str] = Counter()
        self.loads = Histogram(LOAD_SECONDS)
        self.lags: dict[int, int] = {}

    @property
    def states(self) -> Mapping[PartitionState, int]:
        """How many partitions that the broker leads are in each state."""
        return Counter(self._follower.partitions.states.values())

    @property
    def expired(self) -> int:
        """Offsets that the broker removed of itself."""
        return self._follower.expired

    @property
    def lag(self) -> int:
        """The greatest lag of any partition."""
        return max(self.lags.values(), default=0)

    def skip(self, types: Mapping[int, int]) -> None:
        """Records were skipped, so many of each key type; -1 is what has no type."""
        for key_type, count in types.items():
            name = NO_KEY if key_type < 0 else str(key_type) if key_type < MOST_TYPES else OTHER
            self.skipped[name] += count
