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
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from pyspark.errors import AnalysisException, PySparkRuntimeError, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark import jobs
from group_sidecar.spark.command_arguments import (
    EXIT_DONE,
    EXIT_EMPTY,
    EXIT_FAILED,
    EXIT_FINDINGS,
    EXIT_INTERRUPTED,
    EXIT_REQUIREMENT_MISSING,
    EXIT_STORE_LOCKED,
    EXIT_USAGE,
    KAFKA,
    arguments,
)
from group_sidecar.spark.doctor import DoctorOptions
from group_sidecar.spark.environment import java_missing
from group_sidecar.spark.filesystem import HOUR, FolderError
from group_sidecar.spark.job_outcome import JobOutcome, ResultFile
from group_sidecar.spark.lease import LeaseLostError, LeaseTakenError
from group_sidecar.spark.line_sources import SEGMENTS, KafkaTopic
from group_sidecar.spark.requeue import CURABLE
from group_sidecar.spark.spark_session import KAFKA_CONNECTOR, is_submitted, session
from group_sidecar.spark.store import Store
from group_sidecar.spark.store_settings import StoreError
from group_sidecar.spark.write_attempts import RowCountError

SMALL_INPUT_BYTES = 64 << 20
"""For inputs below this size, Spark is configured to start quickly, because optimised compilation does not pay off."""
SMALL_STORE_BYTES = 4 << 20
"""The same limit for `requeue` and `doctor`. Compressed Parquet is much smaller than the journals."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the subcommand that the command line names. Returns the exit status."""
    options = arguments(argv)
    outcome = JobOutcome()
    file = getattr(options, "result", None)
    if file is None:
        return _perform(options, outcome)
    try:
        result = ResultFile(file, options.command)
    except OSError as error:
        return _failed(outcome, EXIT_USAGE, f"cannot remove {file}: {error.strerror}")
    try:
        status = _perform(options, outcome)
    except (Exception, KeyboardInterrupt) as error:
        outcome.failure = (str(error) or type(error).__name__).splitlines()[0]
        result.write(EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAILED, outcome)
        raise
    return status if result.write(status, outcome) else status or EXIT_FAILED


def _perform(options: argparse.Namespace, outcome: JobOutcome) -> int:
    """Runs the subcommand in a new session. Returns the exit status."""
    if not is_submitted() and (missing := java_missing()):
        return _failed(outcome, EXIT_REQUIREMENT_MISSING, missing)
    try:
        spark = _session(options)
    except PySparkRuntimeError as error:
        return _failed(outcome, EXIT_REQUIREMENT_MISSING, f"Spark did not start: {str(error).splitlines()[0]}")
    try:
        return _ACTIONS[options.command](spark, options, outcome)
    except StoreError as error:
        return _failed(outcome, EXIT_USAGE, str(error))
    except AnalysisException as error:
        if (line := _argument_error(error, options)) is None:
            raise
        return _failed(outcome, EXIT_USAGE, line)
    except LeaseTakenError as error:
        return _failed(outcome, EXIT_STORE_LOCKED, str(error))
    except (RowCountError, FolderError, LeaseLostError) as error:
        return _failed(outcome, EXIT_FAILED, f"failed: {error}")
    except StreamingQueryException as error:
        # Spark has logged the details.
        return _failed(outcome, EXIT_FAILED, str(error).splitlines()[0])
    finally:
        spark.stop()


def _failed(outcome: JobOutcome, status: int, line: str) -> int:
    """Reports why the command fails. Returns its exit status."""
    outcome.failure = line
    sys.stderr.write(line + "\n")
    return status


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
    # A sidecar may drop its oldest segments at any time, and a job may remove folders of its attempts. `os.walk` skips
    # removed folders, but `Path.rglob` raises FileNotFoundError.
    for parent, _, names in os.walk(folder):
        for name in names:
            if fnmatchcase(name, files):
                with suppress(FileNotFoundError):
                    size += Path(parent, name).stat().st_size
    return folder.is_dir() and size < limit


def _source(options: argparse.Namespace) -> jobs.Source:
    if not options.input.startswith(KAFKA):
        return str(options.input)
    return KafkaTopic.from_url(options.input, options.command_config, fail_on_data_loss=options.fail_on_data_loss)


def _run(spark: SparkSession, options: argparse.Namespace, outcome: JobOutcome) -> int:
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
    jobs.run(spark, running, outcome)
    return _status(options, outcome)


def _replay(spark: SparkSession, options: argparse.Namespace, outcome: JobOutcome) -> int:
    since = options.since.replace(minute=0, second=0, microsecond=0)
    until = (options.until + HOUR - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0)
    jobs.run_replay(spark, _source(options), options.output, since, until, outcome)
    return _status(options, outcome)


def _status(options: argparse.Namespace, outcome: JobOutcome) -> int:
    """Returns the exit status of a run or replay that has reached its end."""
    if options.fail_if_empty and outcome.stored_nothing:
        return _failed(outcome, EXIT_EMPTY, "failed: no record was stored")
    return EXIT_DONE


def _requeue(spark: SparkSession, options: argparse.Namespace, outcome: JobOutcome) -> int:
    faults = tuple(options.faults or CURABLE)
    requeued = jobs.RequeueOptions(
        output=options.output,
        faults=faults,
        since=options.since,
        until=options.until,
        retention=options.retention,
    )
    jobs.run_requeue(spark, requeued, outcome)
    return EXIT_DONE


def _report(spark: SparkSession, options: argparse.Namespace, _: JobOutcome) -> int:
    from group_sidecar.spark.report import write_report

    store = Store.opened(spark, options.tables)

    def read(table: str) -> DataFrame:
        return store.read(table, options.since, options.until)

    write_report(read, options.output, title=options.title, since=options.since, until=options.until)
    return EXIT_DONE


def _doctor(spark: SparkSession, options: argparse.Namespace, _: JobOutcome) -> int:
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
