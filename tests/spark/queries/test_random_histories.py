"""Every query over random histories of many small fleets at once, compared with plain Python."""

from collections.abc import Iterator
from functools import reduce
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.tables import TABLES
from group_sidecar.spark.tables_page import columns
from tests.spark.record_frames import WIDTH, RecordsOfBoot, Row, at, by_key, frame
from tests.spark.table_oracle import ORACLE

FLEETS = 40
"""The number of histories in one job. Names begin with the number of the fleet, so the fleets are separate."""

START, END = 2700.0, 4500.0
"""The last fifteen minutes of an hour, and the first fifteen of the next."""


class Fleet:
    """One to three sidecars with random records, true and false, about two groups and two partitions."""

    def __init__(self, random: Random, name: str) -> None:
        self._random = random
        self._name = name
        self._now = START
        self._clocks = count()
        self._sidecars = [self._boot(number, 1) for number in range(random.randint(1, 3))]

    def records(self) -> Iterator[Row]:
        random = self._random
        while (moment := self._later()) < END:
            boot = random.choice(self._sidecars)
            if random.random() < 0.1:
                number = self._sidecars.index(boot)
                self._sidecars[number] = boot = self._boot(number, int(boot.boot) + 1)
            if random.random() < 0.2:
                boot.skip(random.randint(1, 3))
            yield from random.choice((self._snapshot, self._happened))(boot, moment)

    def _boot(self, number: int, boot: int) -> RecordsOfBoot:
        random = self._random
        return RecordsOfBoot(
            f"{self._name}-{number}",
            str(boot),
            # No two clocks ever show the same moment, so there is one right answer.
            ahead=random.choice((0, 0, 0, 7, -400)) + next(self._clocks) / 1000,
            travels=random.choice((None, 0.5, 90)),
        )

    def _later(self) -> float:
        self._now += self._random.choice((1, 10, 10, 60, 200, 400))
        return self._now

    def _snapshot(self, boot: RecordsOfBoot, now: float) -> Iterator[Row]:
        random = self._random
        figures = {"groups": random.random(), "joins_total": random.randint(0, 20), "flush_timestamp_seconds": now}
        chosen = {f"{self._name}_{name}": figures[name] for name in figures if random.random() < 0.8}
        yield boot.heartbeat(now, **chosen)
        for group in ("", "größe"):
            if random.random() < 0.7:
                generation = random.choice((-1, 1, 2, 3, 2**31, 2**40))
                yield boot.group(now, self._name + group, generation, members=random.randint(0, 3))
            for partition in (0, 1):
                if random.random() < 0.7:
                    yield boot.commit(now, self._name + group, self._name, partition, *self._position(now))
        for partition in (0, 1):
            if random.random() < 0.7:
                yield boot.log_end(now, self._name, partition, *self._position(now))

    def _position(self, now: float) -> tuple[int, float]:
        return self._random.randint(0, 30), now - self._random.choice((0, 0, 1, 30, 290, 5000))

    def _happened(self, boot: RecordsOfBoot, now: float) -> Iterator[Row]:
        random = self._random
        for group in ("", "größe"):
            name, members = self._name + group, random.randint(0, 3)
            cause, reason = random.choice((None, "unknown", "new_member")), random.choice(("join", "unknown"))
            yield boot.rebalance(now, name, reason, random.randint(0, 9) / 4, cause=cause, members=members)
            verdict: dict[str, Any] = {"kind": random.choice(("refusal", "audit")), "client_id": random.choice("cd")}
            yield boot.refusal(now, name, random.choice("pq"), random.choice((77, 81)), **verdict)
            yield boot.member(now, name, random.choice(("joined", "left")))


def answers(name: str, *parts: DataFrame) -> dict[Any, Row]:
    """Computes a table from each part of the records. Returns all rows."""
    table = TABLES[name]
    together = reduce(DataFrame.unionByName, (table.compute(records, WIDTH) for records in parts))
    return by_key(together, "window", *table.keys)


def near(row: Row) -> Row:
    """Returns a row whose floats compare approximately, because sums depend on the order of addition."""
    return {column: pytest.approx(cell) if isinstance(cell, float) else cell for column, cell in row.items()}


@settings(max_examples=2, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 2**32), at_once=st.booleans())
def test_random_histories_match_oracle(seed: int, at_once: bool, spark: SparkSession) -> None:
    """Every table of random histories matches the plain Python oracle. Exactly the nullable columns have nulls."""
    random = Random(seed)
    history = [record for number in range(FLEETS) for record in Fleet(random, f"{number}").records()]
    shuffled = random.sample(history, len(history)) + random.sample(history, len(history) // 10)
    records = frame(spark, *shuffled).cache()
    # The tables are equal if hours are computed one by one or all at once.
    later = F.col("emitted_at") >= at(3600)
    parts = [records] if at_once else [records.where(~later), records.where(later)]
    try:
        for name, oracle in ORACLE.items():
            found, expected = answers(name, *parts), oracle(history)
            assert found.keys() == expected.keys(), name
            for key, row in expected.items():
                assert found[key] == near(row), (name, key)
            nulls = {column for row in found.values() for column, cell in row.items() if cell is None}
            assert nulls == {column.name for column in columns(TABLES[name].query) if column.nullable}, name
    finally:
        records.unpersist()
