"""Finds acknowledged records that were lost, repeated or reordered."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Produced:
    """The notes of the producers and of the consumer group.

    Attributes:
        acknowledged: partition and value of each acknowledged record of the idempotent producer.
        outcomes: `committed`, `aborted` or `unknown` by the number of the transaction.
        consumed: topic, and partition and value, of the records that the group has read.
    """

    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    outcomes: dict[int, str] = field(default_factory=dict)
    consumed: set[tuple[str, str]] = field(default_factory=set)

    def required(self, plain: str, transactional: str, size: int, partitions: int) -> set[tuple[str, str]]:
        """Returns the records that the consumer group must read, in the form of `consumed`.

        Args:
            plain: the topic of the idempotent producer.
            transactional: the topic of the transactional producer.
            size: the number of records of a transaction.
            partitions: the number of partitions, over which the records of a transaction are spread.
        """
        found = {(plain, f"{partition}/{value}") for partition, value in self.acknowledged}
        for number, outcome in self.outcomes.items():
            if outcome == "committed":
                found |= {(transactional, f"{each % partitions}/{number}:{each}") for each in range(size)}
        return found


def check_plain(acknowledged: Sequence[tuple[int, int]], found: Mapping[int, Sequence[str]]) -> list[str]:
    """Returns a line for each error in the idempotent producer's records: lost, repeated, or in another order."""
    problems = []
    for partition, values in found.items():
        numbers = [int(value) for value in values]
        lost = {value for where, value in acknowledged if where == partition} - {*numbers}
        problems += [f"partition {partition}: {value} was acknowledged and lost" for value in sorted(lost)]
        problems += [f"partition {partition}: {one} {many} times" for one, many in Counter(numbers).items() if many > 1]
        problems += [
            f"partition {partition}: {second} after {first}" for first, second in pairwise(numbers) if second < first
        ]
    return problems


def check_transactions(outcomes: Mapping[int, str], found: Mapping[int, Sequence[str]], size: int) -> list[str]:
    """Returns a line for each error in the transactions, which have `size` records each.

    A committed transaction must be complete. An aborted one must have left no record. An unknown one must be complete
    or have left no record.
    """
    seen = Counter(value for values in found.values() for value in values)
    problems = [f"{value} {many} times" for value, many in seen.items() if many > 1]
    allowed = {"committed": {size}, "aborted": {0}, "unknown": {0, size}}
    for number, outcome in outcomes.items():
        count = sum(f"{number}:{each}" in seen for each in range(size))
        if count not in allowed[outcome]:
            problems.append(f"transaction {number} is {outcome} and has {count} of {size} records")
    for partition, values in found.items():
        numbers = [int(value.partition(":")[0]) for value in values]
        if numbers != sorted(numbers):
            problems.append(f"partition {partition}: transactions are not in order")
    return problems


def check_consumed(required: set[tuple[str, str]], consumed: set[tuple[str, str]]) -> list[str]:
    """Returns the required records that the consumer group has not read."""
    return [f"the group has not read {place} of {topic}" for topic, place in sorted(required - consumed)]
