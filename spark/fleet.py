"""The fleet job: reads sealed segments, asks the questions, shows or writes the answers.

Owns: arguments, the Spark session, reading and writing. Must not know: what a record says.

    python -m group_sidecar.spark --input DIR [--output DIR] [--show TABLE] [--json] [--limit N] [--master URL]
    spark-submit spark/fleet.py --input URL --output URL

Answers go to standard output; how many lines were read, to standard error. Exit status: 0 done, 2 an argument is
wrong or there is no such input, 3 PySpark or Java is missing (told by `__main__`, before this module is loaded).
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from group_sidecar.metrics.records import TIMESTAMP_FORMAT
from group_sidecar.spark import intake, pipeline

SEGMENTS = "*.jsonl"
"""Sealed segments. Spark itself passes over names that begin with a dot, as those of open ones do."""

SMALL_INPUT_BYTES = 64 << 20
"""Below this the JVM is told to compile once and quickly. 1.6 MB cost 13 s of CPU so and 25 s without; 223 MB cost
61 s and 56 s: code that is compiled well pays only then."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One table of answers, and how it is shown.

    Attributes:
        ask: makes the table, of records or of judged lines.
        largest: the column whose largest values come first; None if none does.
        then: what orders rows after that.
        glance: the columns a terminal shows; all if empty.
    """

    ask: Callable[[DataFrame], DataFrame]
    largest: str | None = None
    then: tuple[str, ...]
    glance: tuple[str, ...] = ()


GROUPS = "groups"
QUARANTINE = "quarantine"
QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {
        GROUPS: Question(
            ask=pipeline.overview,
            largest="lag",
            then=("group",),
            glance=("group", "state", "members", "rebalances", "refusals", "lag"),
        ),
        "lag": Question(ask=pipeline.partition_lag, largest="lag", then=("group", "topic", "partition")),
        "rebalances": Question(ask=pipeline.rebalances, largest="rebalances", then=("group",)),
        "refusals": Question(ask=pipeline.refusals, largest="refusals", then=("group", "policy", "error_code")),
        "audits": Question(ask=pipeline.audits, largest="audits", then=("group", "policy", "error_code")),
        "sidecars": Question(ask=pipeline.sidecars, then=("last_heartbeat", "sidecar")),
        QUARANTINE: Question(ask=intake.quarantined, then=("fault", "sidecar", "line")),
    }
)
"""All tables by name. `quarantine` is asked of judged lines, the others of records."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job; returns its exit status."""
    chosen = arguments(argv)
    spark = session(chosen.master, small=_is_small(Path(chosen.input)))
    try:
        run(spark, chosen)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        sys.stderr.write(f"there is no {chosen.input}\n")
        return 2
    finally:
        spark.stop()
    return 0


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line. Ends the process with status 2 and the reason where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m group_sidecar.spark",
        description="Aggregates the records of all sidecars.",
        epilog="Exit status: 0 done, 2 wrong argument or no such input, 3 PySpark or Java is missing.",
    )
    parser.add_argument(
        "--input", required=True, type=_present, metavar="DIR", help="folder with sealed segments, at any depth; or URL"
    )
    parser.add_argument(
        "--output", type=_folder, metavar="DIR", help="write every table there, as Parquet; replaces what it wrote"
    )
    parser.add_argument("--show", choices=QUESTIONS, default=GROUPS, help="the table to print (default: groups)")
    parser.add_argument("--json", action="store_true", help="print all rows, each a JSON object on a line of its own")
    parser.add_argument("--limit", type=_positive, default=100, metavar="N", help="rows to print without --json (100)")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: local[*], or that of spark-submit)")
    return parser.parse_args(argv)


def _present(text: str) -> str:
    """Looks before Spark starts, which takes seconds. What is behind a URL only Spark can say."""
    if not urlsplit(text).scheme and not Path(text).exists():
        raise argparse.ArgumentTypeError(f"there is no {text}")
    return text


def _folder(text: str) -> str:
    if not urlsplit(text).scheme and Path(text).exists() and not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder")
    return text


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of rows")
    return number


def _is_small(folder: Path) -> bool:
    size = 0
    for path in folder.rglob(SEGMENTS):
        # A sidecar may drop its oldest segments at any time.
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return folder.is_dir() and size < SMALL_INPUT_BYTES


def session(master: str | None = None, *, small: bool = False) -> SparkSession:
    """The Spark session. What spark-submit configures is left as it is, but for the time zone.

    Args:
        master: Spark master; None for local[*], or for that of spark-submit.
        small: start quickly rather than run fast.
    """
    builder = SparkSession.builder.appName("group-sidecar fleet").config("spark.sql.session.timeZone", "UTC")
    if master is not None:
        builder = builder.master(master)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            builder.config("spark.sql.shuffle.partitions", "2")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
        )
        if master is None or master.startswith("local"):
            # Otherwise Spark looks for an address by which other hosts reach this one, and complains if it finds none.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            if small:
                builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    return builder.getOrCreate()


def run(spark: SparkSession, chosen: argparse.Namespace) -> None:
    """Reads, asks, writes and shows.

    Raises:
        AnalysisException: there is no such input.
    """
    lines = spark.read.option("ignoreMissingFiles", "true").text(
        chosen.input, pathGlobFilter=SEGMENTS, recursiveFileLookup=True
    )
    judged = intake.judged(lines).cache()
    records = intake.deduplicated(intake.accepted(judged)).cache()
    sys.stderr.write(_summary(judged) + "\n")

    def answer(name: str) -> DataFrame:
        return QUESTIONS[name].ask(judged if name == QUARANTINE else records)

    if chosen.output:
        for name in QUESTIONS:
            answer(name).write.mode("overwrite").parquet(f"{chosen.output}/{name}")
    shown = QUESTIONS[chosen.show]
    if chosen.json:
        for line in _json_lines(answer(chosen.show), shown):
            sys.stdout.write(line + "\n")
    else:
        _print_table(answer(chosen.show), shown, chosen.limit)


def _summary(judged: DataFrame) -> str:
    counts = {row["fault"]: row["count"] for row in judged.groupBy("fault").count().collect()}
    records = counts.pop(None, 0)
    faults = ", ".join(f"{fault} {count}" for fault, count in sorted(counts.items()))
    return f"{records} records, {sum(counts.values())} lines in quarantine" + (f" ({faults})" if faults else "")


def _json_lines(answer: DataFrame, shown: Question) -> Iterator[str]:
    options = {"ignoreNullFields": "false", "timestampFormat": TIMESTAMP_FORMAT}
    # One sorted partition, read row by row: a global order would first ask everything once more, for a sample.
    ordered = answer.repartition(1).sortWithinPartitions(*_order(shown))
    for row in ordered.select(F.to_json(F.struct("*"), options)).toLocalIterator():
        yield row[0]


def _print_table(answer: DataFrame, shown: Question, limit: int) -> None:
    types = {name: kind for name, kind in answer.dtypes if name in shown.glance or not shown.glance}
    # Spark writes the moments: Python would show them in the time zone of this machine.
    cells = (
        F.date_format(name, "yyyy-MM-dd HH:mm:ss") if kind == "timestamp" else name for name, kind in types.items()
    )
    rows = answer.orderBy(*_order(shown)).select(*cells).take(limit + 1)
    table = Table(box=SIMPLE_HEAD)
    for name, kind in types.items():
        table.add_column(name, justify="right" if kind in ("bigint", "double") else "left", overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console = Console()
    console.print(table)
    if len(rows) > limit:
        console.print(f"These are the first {limit} rows; --limit or --json shows more.")


def _order(shown: Question) -> list[Column]:
    largest = [F.col(shown.largest).desc_nulls_last()] if shown.largest else []
    return [*largest, *(F.col(name) for name in shown.then)]


if __name__ == "__main__":
    sys.exit(main())
