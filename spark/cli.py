"""The command line of the fleet job.

`command_arguments` parses the arguments, `jobs` does the work, and this module turns errors into exit statuses.

    python -m group_sidecar.spark run --input DIR|kafka://HOST:PORT/TOPIC [--output DIR] [--stream] ...
    python -m group_sidecar.spark replay --input DIR --output DIR --from T --to T
    python -m group_sidecar.spark requeue --output DIR [--fault FAULT ...] [--from T] [--to T]
    python -m group_sidecar.spark report --tables DIR --output FILE.html
    python -m group_sidecar.spark doctor --output DIR [--input DIR] [--from T] [--to T] [--json]
    spark-submit spark/cli.py run --input URL --output URL ...

Results go to standard output. The numbers of records and of quarantined lines, and a line for each batch of a stream,
go to standard error.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from pyspark.errors import AnalysisException, PySparkRuntimeError, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark import jobs
from group_sidecar.spark.command_arguments import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_FINDINGS,
    EXIT_REQUIREMENT_MISSING,
    EXIT_STORE_LOCKED,
    EXIT_USAGE,
    KAFKA,
    arguments,
)
from group_sidecar.spark.doctor import DoctorOptions
from group_sidecar.spark.environment import java_missing
from group_sidecar.spark.filesystem import HOUR, FolderError
from group_sidecar.spark.lease import LeaseLostError, LeaseTakenError
from group_sidecar.spark.line_sources import SEGMENTS, KafkaTopic
from group_sidecar.spark.requeue import CURABLE
from group_sidecar.spark.spark_session import KAFKA_CONNECTOR, is_submitted, session
from group_sidecar.spark.store import Store, StoreError
from group_sidecar.spark.write_attempts import RowCountError

SMALL_INPUT_BYTES = 64 << 20
"""For inputs below this size, Spark is configured to start quickly, because optimised compilation does not pay off."""
SMALL_STORE_BYTES = 4 << 20
"""The same limit for `requeue` and `doctor`. Compressed Parquet is much smaller than the journals."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the subcommand that the command line names. Returns the exit status."""
    options = arguments(argv)
    if not is_submitted() and (missing := java_missing()):
        sys.stderr.write(missing + "\n")
        return EXIT_REQUIREMENT_MISSING
    try:
        spark = _session(options)
    except PySparkRuntimeError as error:
        sys.stderr.write(f"Spark did not start: {str(error).splitlines()[0]}\n")
        return EXIT_REQUIREMENT_MISSING
    try:
        return _ACTIONS[options.command](spark, options)
    except StoreError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    except AnalysisException as error:
        if (line := _argument_error(error, options)) is None:
            raise
        sys.stderr.write(line + "\n")
        return EXIT_USAGE
    except LeaseTakenError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_STORE_LOCKED
    except (RowCountError, FolderError, LeaseLostError) as error:
        sys.stderr.write(f"failed: {error}\n")
        return EXIT_FAILED
    except StreamingQueryException as error:
        # Spark has logged the details.
        sys.stderr.write(f"{str(error).splitlines()[0]}\n")
        return EXIT_FAILED
    finally:
        spark.stop()


def _session(options: argparse.Namespace) -> SparkSession:
    if options.command == "report":
        return session(options.master, jars=options.jars)
    if options.command in ("requeue", "doctor"):
        small = _is_small(Path(options.output), "*.parquet", SMALL_STORE_BYTES)
        return session(options.master, small=small, jars=options.jars)
    kafka = options.input.startswith(KAFKA)
    stream = getattr(options, "stream", False)
    small = not kafka and not stream and _is_small(Path(options.input), SEGMENTS, SMALL_INPUT_BYTES)
    return session(options.master, small=small, jars=options.jars, kafka=kafka)


def _is_small(folder: Path, files: str, limit: int) -> bool:
    size = 0
    for path in folder.rglob(files):
        # A sidecar may drop its oldest segments at any time, and a job may remove folders of its attempts.
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return folder.is_dir() and size < limit


def _source(options: argparse.Namespace) -> jobs.Source:
    if not options.input.startswith(KAFKA):
        return str(options.input)
    return KafkaTopic.from_url(options.input, options.command_config, fail_on_data_loss=options.fail_on_data_loss)


def _run(spark: SparkSession, options: argparse.Namespace) -> int:
    wanted = options.show or options.json or options.output is None
    running = jobs.RunOptions(
        source=_source(options),
        output=options.output,
        trigger=(options.trigger or "60 seconds") if options.stream else None,
        window=options.window,
        retention=options.retention,
        format=options.format,
        textfile=options.textfile,
        show=(options.show or "groups") if wanted else None,
        json=options.json,
        limit=options.limit,
    )
    jobs.run(spark, running)
    return EXIT_DONE


def _replay(spark: SparkSession, options: argparse.Namespace) -> int:
    since = options.since.replace(minute=0, second=0, microsecond=0)
    until = (options.until + HOUR - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0)
    jobs.run_replay(spark, _source(options), options.output, since, until)
    return EXIT_DONE


def _requeue(spark: SparkSession, options: argparse.Namespace) -> int:
    faults = tuple(options.faults or CURABLE)
    requeued = jobs.RequeueOptions(
        output=options.output,
        faults=faults,
        since=options.since,
        until=options.until,
        retention=options.retention,
    )
    jobs.run_requeue(spark, requeued)
    return EXIT_DONE


def _report(spark: SparkSession, options: argparse.Namespace) -> int:
    from group_sidecar.spark.report import write_report

    store = Store.opened(spark, options.tables)

    def read(table: str) -> DataFrame:
        return store.read(table, options.since, options.until)

    write_report(read, options.output, title=options.title, since=options.since, until=options.until)
    return EXIT_DONE


def _doctor(spark: SparkSession, options: argparse.Namespace) -> int:
    examined = DoctorOptions(
        output=options.output,
        journals=options.input,
        since=options.since,
        until=options.until,
        json=options.json,
        limit=options.limit,
    )
    return EXIT_FINDINGS if jobs.run_doctor(spark, examined) else EXIT_DONE


_ACTIONS = {"run": _run, "replay": _replay, "requeue": _requeue, "report": _report, "doctor": _doctor}
"""What each subcommand does. Each function returns the exit status."""


def _argument_error(error: AnalysisException, options: argparse.Namespace) -> str | None:
    """Returns the fault of the arguments in one line, or None if the error has another cause."""
    condition = error.getCondition()
    if condition == "PATH_NOT_FOUND":
        if options.command in ("run", "replay"):
            return f"there is no {options.input}"
        return f"there is no {(error.getMessageParameters() or {}).get('path')}"
    if condition == "KAFKA_DATA_SOURCE_NOT_ENABLED":
        return f"Spark lacks its Kafka connector: give {KAFKA_CONNECTOR} by --packages of spark-submit, or --jars"
    return None


if __name__ == "__main__":
    sys.exit(main())
