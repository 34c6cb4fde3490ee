"""Array lines have the same records as single lines, and are taken or quarantined as a whole."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.array_lines import Row, array_line
from group_sidecar.metrics.records import (
    ARRAY_BODIES,
    ARRAY_RECORDS,
    ARRAY_VERSION,
    GREATEST,
    KINDS,
    VERSION,
    ArrayEnvelope,
    Commit,
    Envelope,
    Group,
    Heartbeat,
    LogEnd,
    Member,
    Record,
    array_columns,
    timestamp,
)
from group_sidecar.spark import line_parsing, line_sources
from group_sidecar.spark.duplicates import deduplicated
from group_sidecar.spark.ingest import ingest
from group_sidecar.spark.line_parsing import Fault
from group_sidecar.spark.requeue import requeue
from group_sidecar.spark.store import Store
from group_sidecar.spark.tables import TABLES
from tests.spark.record_frames import MIDNIGHT, WIDTH, at
from tests.spark.segment_files import HOUR, NOW, all_rows, seal
from tests.spark.test_line_parsing import NOON, judged, line

pytestmark = pytest.mark.timeout(900)  # Each test runs several Spark jobs, beside other tests.

NAMES = ("orders", "größe ☂", '"quoted"\\', "line\nfeed\u2028", "", "\u0000")
MADE = MIDNIGHT.timestamp()


def random_records(random: Random, sidecar: str, snapshots: int) -> Iterator[Record]:
    """The records of one boot, in the order of their numbers. Events lie between the parts of a snapshot."""
    seq = 0
    for number in range(snapshots):
        made = MADE + 60 * number
        bodies: list[Any] = [Heartbeat(sample={"groups": 1.0 * number}), *random_bodies(random)]
        for body in bodies:
            seq += 1
            envelope = Envelope(
                version=VERSION,
                kind=body.KIND,
                sidecar=sidecar,
                boot="b",
                seq=seq,
                observed_at=timestamp(made - random.choice((0, 0.25, 90, 4000, made))),
                emitted_at=timestamp(made),
            )
            yield Record(envelope=envelope, body=body)


def random_bodies(random: Random) -> Iterator[Any]:
    def number() -> int:
        return random.choice((0, 1, 7, 2**31, GREATEST))

    for kind in (Group, Commit, LogEnd, Commit):
        for _ in range(random.choice((0, 1, 2, 9))):
            group, topic = random.choice(NAMES), random.choice(NAMES)
            where = {"topic": topic, "partition": random.randrange(3), "offset": number()}
            if kind is Group:
                members, most = random.randrange(9), random.choice((None, 0, GREATEST))
                yield Group(group=group, protocol="classic", state="Stable", protocol_type=topic, assignor="",
                            generation=random.randrange(-1, 9), members=members, max_size=most)  # fmt: skip
            elif kind is Commit:
                yield Commit(group=group, leader_epoch=random.randrange(-1, 9), **where)  # type: ignore[arg-type]
            else:
                yield LogEnd(**where)  # type: ignore[arg-type]
            if random.random() < 0.2:
                yield Member(group=group, member_id="m", instance_id=None, client_id="c", client_host="/h",
                             principal=None, change="joined")  # fmt: skip


def single(records: Iterable[Record]) -> list[str]:
    return [record.to_line().decode().removesuffix("\n") for record in records]


def arrays(records: Iterable[Record], size: Callable[[], int] = lambda: ARRAY_RECORDS) -> list[str]:
    """The lines of records that follow one another: array lines of at most `size()` records where there can be some."""

    def shared(record: Record) -> tuple[str, ...]:
        envelope = record.envelope
        return envelope.sidecar, envelope.boot, envelope.kind, envelope.emitted_at

    lines = []
    for _, run in groupby(records, shared):
        rest = list(run)
        while rest:
            part = rest[: size()] if type(rest[0].body) in ARRAY_BODIES else rest[:1]
            del rest[: len(part)]
            lines += [of_records(part)] if type(part[0].body) in ARRAY_BODIES else single(part)
    return lines


def of_records(records: Sequence[Record]) -> str:
    first = records[0].envelope
    envelope = ArrayEnvelope(
        version=ARRAY_VERSION,
        kind=first.kind,
        sidecar=first.sidecar,
        boot=first.boot,
        seq=first.seq,
        count=len(records),
        emitted_at=first.emitted_at,
    )
    rows: list[Row] = [(record.envelope.observed_at, record.body) for record in records]
    return array_line(envelope, rows).encoded.decode().removesuffix("\n")


def frame_of(spark: SparkSession, lines: Sequence[str]) -> DataFrame:
    return spark.createDataFrame([(each, at(NOON)) for each in lines], "value STRING, arrived_at TIMESTAMP")


def records_of(spark: SparkSession, lines: Sequence[str]) -> DataFrame:
    found = line_parsing.judged(frame_of(spark, lines), F.lit(at(NOON)))
    assert line_parsing.quarantined(found).collect() == []
    return line_parsing.accepted(found)


def rows_of(records: DataFrame) -> list[str]:
    """All records, without the version of their line, which is the only difference."""
    return sorted(str(row) for row in records.drop("version").collect())


@given(seed=st.integers(0, 2**32))
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_same_rows_in_both_versions(spark: SparkSession, seed: int) -> None:
    """Random records give equal rows, whether they are written as single lines, as array lines, or partly as both."""
    random = Random(seed)
    records = [each for name in ("a", "b") for each in random_records(random, name, 5)]
    expected = rows_of(records_of(spark, single(records)))
    assert len(expected) == len(records)
    in_arrays = arrays(records, lambda: random.choice((1, 2, 3, ARRAY_RECORDS)))
    assert rows_of(records_of(spark, in_arrays)) == expected
    chosen = [random.random() < 0.5 for _ in records]
    mixed = [
        line
        for choice, run in groupby(zip(chosen, records, strict=True), lambda pair: pair[0])
        for line in (arrays if choice else single)([record for _, record in run])
    ]
    random.shuffle(mixed)
    assert rows_of(records_of(spark, mixed)) == expected
    assert any(json.loads(line)["version"] == ARRAY_VERSION for line in mixed)


@pytest.mark.parametrize("table", ["sidecars", "groups", "lag"])
def test_same_tables_in_both_versions(spark: SparkSession, table: str) -> None:
    """Tables are the same in both versions if lines are lost and doubled. A lost array line lacks all its records."""
    random = Random(table)
    records = list(random_records(random, "a", 12))
    lines = arrays(records)
    kept = [line for line in lines if random.random() < 0.7]
    held = {number for line in kept for number in numbers_of(line)}
    assert 0 < len(held) < len(records)
    doubled = [*kept, *random.choices(kept, k=9)]
    compute = TABLES[table].compute
    found = compute(records_of(spark, doubled), WIDTH).collect()
    expected = compute(records_of(spark, single(r for r in records if r.envelope.seq in held)), WIDTH).collect()
    assert sorted(map(str, found)) == sorted(map(str, expected))
    if table == "sidecars":
        assert sum(row["records"] for row in found) == len(held)


def numbers_of(line: str) -> range:
    cells = json.loads(line)
    return range(cells["seq"], cells["seq"] + cells.get("count", 1))


def array(kind: Any = "commit", **changes: Any) -> str:
    """The array line of two records with these changes, in `columns` or else in the envelope. `...` leaves one out."""
    arrays: dict[str, Any] = {
        "observed_at": ["2025-01-31T11:59:00.000Z", "2025-01-31T11:58:00.000Z"],
        "group": ["g", "h"],
        "topic": ["t", "t"],
        "partition": [0, 1],
        "offset": [42, 43],
        "leader_epoch": [-1, 2],
        "protocol": ["classic"] * 2,
        "state": ["Stable"] * 2,
        "protocol_type": [""] * 2,
        "assignor": [""] * 2,
        "generation": [-1, 3],
        "members": [0, 1],
        "max_size": [None, 5],
    }
    own = KINDS[kind] if KINDS.get(kind) in ARRAY_BODIES else Commit
    used = {column.name for column in array_columns(own)}
    envelope: dict[str, Any] = {
        "version": 2, "kind": kind, "sidecar": "a", "boot": "1", "seq": 1, "count": 2,
        "emitted_at": "2025-01-31T11:59:00.250Z",
    }  # fmt: skip
    cells = {name: values for name, values in arrays.items() if name in used}
    for name, value in changes.items():
        (cells if name in arrays else envelope)[name] = value
    envelope.setdefault("columns", {name: cell for name, cell in cells.items() if cell is not ...})
    return json.dumps({name: cell for name, cell in envelope.items() if cell is not ...})


def log_ends(count: int, faulty: int | None = None) -> str:
    """Returns the array line of `count` log ends. The offset at the place `faulty` is out of range."""
    offsets = [-1 if place == faulty else 1 for place in range(count)]
    observed_at = ["2025-01-31T11:59:00.000Z"] * count
    return array("log_end", count=count, observed_at=observed_at, topic=["t"] * count, partition=[1] * count,
                 offset=offsets)  # fmt: skip


GOOD = (
    array(),
    array("group"),
    array("log_end"),
    array("group", max_size=...),
    array("group", max_size=None),
    array(colour=["red"]),
    array(offset=[0, GREATEST]),
    array(seq=GREATEST - 1),
    # The columns of other kinds, and those of a single record, are ignored.
    array(columns={**json.loads(array())["columns"], "members": [-1], "protocol": [None]}),
    array(columns={**json.loads(array())["columns"], "members": [1, 2, 3]}),
    json.dumps({**json.loads(array()), "observed_at": "2999-01-01T00:00:00.000Z", "offset": -1, "topic": "other"}),
)

DAMAGED = {
    array()[:-1]: "not_json_object",
    array(version=3): "unknown_version",
    array("member"): "unknown_kind",
    array("heartbeat"): "unknown_kind",
    array(kind=...): "unknown_kind",
    array(offset=[42, "43"]): "wrong_type",
    array(offset=[42, 4.5]): "wrong_type",
    array(offset=42): "wrong_type",
    array(offset={"a": 1}): "wrong_type",
    array(offset={}): "wrong_type",
    array(offset=[{}, 43]): "wrong_type",
    array(offset=[[42], 43]): "wrong_type",
    array(offset=[42, 2**63]): "wrong_type",
    array(observed_at=["2025-01-31T11:59:00.000Z", "yesterday"]): "wrong_type",
    array(columns=[]): "wrong_type",
    array(columns=[{"group": "g"}]): "wrong_type",
    array(count="2"): "wrong_type",
    array(columns=...): "missing_column",
    array(columns={}): "missing_column",
    array(columns=None): "missing_column",
    array(group=...): "missing_column",
    array(group=None): "missing_column",
    array(group=["g", None]): "missing_column",
    array(offset=[None, 43]): "missing_column",
    array(observed_at=...): "missing_column",
    array(observed_at=[None, None]): "missing_column",
    array(offset=[42]): "missing_column",
    array(offset=[42, 43, 44]): "missing_column",
    array("group", max_size=[5]): "missing_column",
    array("group", max_size=[]): "missing_column",
    array(count=3): "missing_column",
    array(count=...): "missing_column",
    array(seq=None): "missing_column",
    array(emitted_at=...): "missing_column",
    array(sidecar=...): "missing_column",
    json.dumps({**json.loads(array()), "columns": {}, **json.loads(array())["columns"], "offset": 1,
                "group": "g", "topic": "t", "partition": 1, "leader_epoch": 1,
                "observed_at": "2025-01-31T11:59:00.000Z"}): "missing_column",
    array(offset=[42, -1]): "out_of_range",
    array(offset=[42, GREATEST + 1]): "out_of_range",
    array(partition=[-1, 0]): "out_of_range",
    array("group", max_size=[None, -1]): "out_of_range",
    array("group", generation=[-2, 0]): "out_of_range",
    array(seq=0): "out_of_range",
    array(seq=GREATEST): "out_of_range",
    array(seq=2**63 - 1): "out_of_range",
    # A line without records must not vanish.
    array("log_end", count=0, observed_at=[], topic=[], partition=[], offset=[]): "out_of_range",
    array("log_end", count=-1): "missing_column",
    log_ends(500, 499): "out_of_range",
    log_ends(10_001): "out_of_range",
    array("log_end", count=500, offset=[1] * 10_001): "missing_column",
    log_ends(501): "out_of_range",
    array(observed_at=["2025-01-31T11:59:00.000Z", "2999-01-01T00:00:00.000Z"]): "in_future",
    array(emitted_at="2025-01-31T12:05:00.001Z"): "in_future",
    array(emitted_at="2025-01-30T11:59:59.999Z"): "too_old",
    array(observed_at=["2025-01-31T11:59:00.000Z", "1969-12-30T23:59:59.999Z"]): "too_old",
}  # fmt: skip


def test_faulty_array_line_is_quarantined_once(spark: SparkSession) -> None:
    """A line with one faulty record is in quarantine once, as a whole and byte for byte. No other line is."""
    found = judged(spark, *GOOD, *DAMAGED)
    lines = [(row["line"], row["fault"], row["sidecar"]) for row in line_parsing.quarantined(found).collect()]
    assert {line: fault for line, fault, _ in lines} == DAMAGED
    assert len(lines) == len(DAMAGED)
    assert line_parsing.accepted(found).count() == 2 * len(GOOD)


def test_records_of_array_line(spark: SparkSession) -> None:
    """The records of an array line have the line's envelope, numbers that follow one another, and their own values."""
    found = line_parsing.accepted(judged(spark, array(seq=7, colour="red"), array("group", seq=9)))
    names = ("kind", "seq", "group", "topic", "offset", "leader_epoch", "generation", "max_size", "sample")
    assert [tuple(row) for row in found.orderBy("seq").select(*names).collect()] == [
        ("commit", 7, "g", "t", 42, -1, None, None, None),
        ("commit", 8, "h", "t", 43, 2, None, None, None),
        ("group", 9, "g", None, None, None, -1, None, None),
        ("group", 10, "h", None, None, None, 3, 5, None),
    ]
    times = {(row["version"], row["sidecar"], row["boot"], row["made"], row["at"]) for row in found.select(
        "version", "sidecar", "boot", F.unix_millis("emitted_at").alias("made"), F.col("arrived_at").alias("at")
    ).collect()}  # fmt: skip
    assert [each[:4] for each in times] == [(2, "a", "1", 1738324740250)]
    observed = found.orderBy("seq").select(F.date_format("observed_at", "mm")).limit(2).collect()
    assert [row[0] for row in observed] == ["59", "58"]


def test_array_line_is_parsed_once(spark: SparkSession) -> None:
    """The query plan parses the JSON of an array line only once."""
    found = line_parsing.accepted(judged(spark, array()))
    assert str(found._jdf.queryExecution().optimizedPlan()).count("from_json") == 1


def test_requeue_takes_array_lines(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older job keeps array lines in quarantine. After the upgrade, `requeue` takes each with all its records."""
    monkeypatch.setattr("group_sidecar.spark.recompute.TABLES", {"sidecars": TABLES["sidecars"]})
    records = list(random_records(Random(3), "a", 8))
    lines = arrays(records)
    faulty = array(offset=[42, -1])
    seal(tmp_path / "in", "only", [*lines, lines[-1], faulty])
    seal(tmp_path / "single", "only", single(records))
    in_arrays = sum(json.loads(line)["version"] == ARRAY_VERSION for line in [*lines, lines[-1]])
    store, expected = (Store(spark, str(tmp_path / name)) for name in ("store", "expected"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_parsing, "ARRAY_VERSION", 0)
        older = ingest(store, line_sources.files(spark, str(tmp_path / "in")), "first", NOW)
    assert older.quarantined == {"unknown_version": in_arrays + 1}
    ingest(expected, line_sources.files(spark, str(tmp_path / "single")), "first", NOW)
    done = requeue(store, now=at(3 * HOUR + 1))
    assert (done.judged, done.taken) == (in_arrays + 1, in_arrays)
    assert [(row["fault"], row["line"]) for row in store.read("quarantine").collect()] == [("out_of_range", faulty)]
    found, wanted = (all_rows(each, ["sidecars"])["sidecars"] for each in (store, expected))
    assert found == wanted
    stored, once = (deduplicated(each.records(each.hours())) for each in (store, expected))
    assert rows_of(stored) == rows_of(once)


def test_array_line_of_other_fault_stays_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A requeue of other faults keeps an array line that is valid now as one line, under its old fault."""
    monkeypatch.setattr("group_sidecar.spark.recompute.TABLES", {"sidecars": TABLES["sidecars"]})
    store = Store(spark, str(tmp_path))
    hour: dict[str, Any] = {"observed_at": ["2025-01-31T02:00:00.000Z"] * 2, "emitted_at": "2025-01-31T02:00:00.000Z"}
    later, early = array(**hour), line(emitted_at="2025-01-31T01:00:00.000Z", observed_at="2025-01-31T00:59:00.000Z")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_parsing, "VERSION", 0)
        result = ingest(store, frame_of(spark, [later, early]), "first", at(HOUR))
    assert result.quarantined == {"in_future": 1, "unknown_version": 1}
    done = requeue(store, now=NOW)
    assert (done.judged, done.taken) == (1, 1)
    assert [(row["fault"], row["line"]) for row in store.read("quarantine").collect()] == [("in_future", later)]
    done = requeue(store, [Fault.IN_FUTURE], now=at(3 * HOUR + 1))
    assert (done.judged, done.taken) == (1, 1)
    assert store.records(store.hours()).count() == 3


def test_replaced_array_line(spark: SparkSession) -> None:
    """A record that is on a single line and on an array line counts once."""
    record = next(each for each in random_records(Random(1), "a", 3) if each.body.KIND == "commit")
    again = Record(envelope=replace(record.envelope), body=record.body)
    found = deduplicated(records_of(spark, [*single([record]), of_records([again])]))
    assert found.count() == 1
