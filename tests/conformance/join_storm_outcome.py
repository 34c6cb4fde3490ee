"""The outcome of a join storm."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class JoinReply(NamedTuple):
    """A JoinGroup reply. `roster` has the member and instance ids of all members if the reply went to the leader."""

    version: int
    error_code: int
    generation: int
    member_id: str
    roster: tuple[tuple[str, str | None], ...]


class DescribedGroupState(NamedTuple):
    """The broker's description of the group. `dynamic` is the number of members that are not static."""

    state: str
    members: int
    dynamic: int

    def is_stable(self, members: int) -> bool:
        """Whether the group has this number of members and no rebalance."""
        return self.state == "Stable" and self.members == members


@dataclass
class Outcome:
    """The outcome of a storm.

    Attributes:
        described: the broker's descriptions of the group over time.
        calm: the result of each attempt in the calm, as a text.
    """

    limit: int
    replies: list[JoinReply] = field(default_factory=list)
    described: list[DescribedGroupState] = field(default_factory=list)
    calm: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def errors(self) -> Counter[int]:
        """The number of JoinGroup replies by error code."""
        return Counter(reply.error_code for reply in self.replies)

    @property
    def sizes(self) -> dict[int, int]:
        """The number of members by generation, from the leader's reply."""
        return {reply.generation: len(reply.roster) for reply in self.replies if reply.roster}

    @property
    def joined(self) -> dict[int, int]:
        """The number of members by generation, without static members that did not rejoin, which Kafka keeps."""
        answered = {(reply.generation, reply.member_id) for reply in self.replies if not reply.error_code}
        return {
            reply.generation: sum(
                not instance or (reply.generation, member) in answered for member, instance in reply.roster
            )
            for reply in self.replies
            if reply.roster
        }

    @property
    def most_settled(self) -> int:
        """The largest number of dynamic members that the broker described outside a rebalance."""
        settled = ("Stable", "CompletingRebalance", "AwaitingSync")
        return max((seen.dynamic for seen in self.described if seen.state in settled), default=0)

    def row(self) -> str:
        """Returns the outcome in one line."""
        sizes, errors = self.sizes, dict(sorted(self.errors.items()))
        listed = max((seen.members for seen in self.described), default=0)
        return (
            f"{len(self.replies)} joins answered, by error {errors}; {len(sizes)} generations led, of at most "
            f"{max(sizes.values(), default=0)} ({max(self.joined.values(), default=0)} joined); "
            f"described at most {listed}, settled {self.most_settled}; {self.seconds:.0f} s; then {self.calm}"
        )
