"""What came of a storm.

Owns: `Outcome`, and how it is counted. Must not know: what the clients did.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Told(NamedTuple):
    """One reply to a JoinGroup. `roster`: as the leader, member and instance ids of all members."""

    version: int
    error_code: int
    generation: int
    member_id: str
    roster: tuple[tuple[str, str | None], ...]


class Seen(NamedTuple):
    """What the broker itself said of the group. `dynamic`: how many of its members are not static."""

    state: str
    members: int
    dynamic: int

    def is_stable(self, members: int) -> bool:
        """Whether it has so many members, and no rebalance."""
        return self.state == "Stable" and self.members == members


@dataclass
class Outcome:
    """What came of a storm.

    Attributes:
        described: what the broker said from time to time.
        calm: what came of each thing that was tried in the calm, in its words.
    """

    limit: int
    told: list[Told] = field(default_factory=list)
    described: list[Seen] = field(default_factory=list)
    calm: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def errors(self) -> Counter[int]:
        """JoinGroup replies by error code."""
        return Counter(told.error_code for told in self.told)

    @property
    def sizes(self) -> dict[int, int]:
        """Members by generation, as its leader was told."""
        return {told.generation: len(told.roster) for told in self.told if told.roster}

    @property
    def joined(self) -> dict[int, int]:
        """Members by generation, without the static ones of which no join was answered in it: Kafka keeps those."""
        answered = {(told.generation, told.member_id) for told in self.told if not told.error_code}
        return {
            told.generation: sum(
                not instance or (told.generation, member) in answered for member, instance in told.roster
            )
            for told in self.told
            if told.roster
        }

    @property
    def most_settled(self) -> int:
        """The most dynamic members that the broker has told of outside a rebalance."""
        settled = ("Stable", "CompletingRebalance", "AwaitingSync")
        return max((seen.dynamic for seen in self.described if seen.state in settled), default=0)

    def row(self) -> str:
        """In one line, for people."""
        sizes, errors = self.sizes, dict(sorted(self.errors.items()))
        listed = max((seen.members for seen in self.described), default=0)
        return (
            f"{len(self.told)} joins answered, by error {errors}; {len(sizes)} generations led, of at most "
            f"{max(sizes.values(), default=0)} ({max(self.joined.values(), default=0)} joined); "
            f"described at most {listed}, settled {self.most_settled}; {self.seconds:.0f} s; then {self.calm}"
        )
