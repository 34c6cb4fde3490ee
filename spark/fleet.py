"""The command line of the fleet job.

Owns: subcommands, their arguments and what is wrong with them, exit statuses. Must not know: how the work is done.

    python -m group_sidecar.spark run --input DIR|kafka://HOST:PORT/TOPIC [--output DIR] [--stream] ...
    python -m group_sidecar.spark replay --input DIR --output DIR --from T --to T
    python -m group_sidecar.spark report --tables DIR --output FILE.html
    spark-submit spark/fleet.py run --input URL --output URL ...

Answers go to standard output; how many lines were read, and a line on each batch of a stream, to standard error.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException, PySparkRuntimeError, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark import jobs
from group_sidecar.spark.attempts import CountError
from group_sidecar.spark.folders import HOUR, FolderError
from group_sidecar.spark.lease import LeaseLostError, LeaseTakenError
from group_sidecar.spark.requirements import java_missing
from group_sidecar.spark.session import KAFKA_CONNECTOR, is_submitted, session
from group_sidecar.spark.sources import SEGMENTS, KafkaTopic
from group_sidecar.spark.store import PARQUET, Store, StoreError
from group_sidecar.spark.summaries import SUMMARIES

FAILED = 1
USAGE = 2
UNMET = 3
BUSY = 4
SMALL_INPUT_BYTES = 64 << 20
"""Below this Spark is told to start quickly: code that is compiled well pays only later."""
KAFKA = "kafka://"

_DURATION = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_EPILOG = (
    "Exit status: 0 done, 1 a batch failed, 2 wrong argument or no such input, 3 PySpark or Java is missing, "
    "4 another process writes to the tables."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; returns the exit status."""
    chosen = arguments(argv)
    if not is_submitted() and (missing := java_missing()):
        sys.stderr.write(missing + "\n")
        return UNMET
    try:
        spark = _session(chosen)
    except PySparkRuntimeError as error:
        sys.stderr.write(f"Spark did not start: {str(error).splitlines()[0]}\n")
        return UNMET
    try:
        chosen.act(spark, chosen)
    except StoreError as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    except AnalysisException as error:
        if (line := _plainly(error, chosen)) is None:
            raise
        sys.stderr.write(line + "\n")
        return USAGE
    except LeaseTakenError as error:
        sys.stderr.write(f"{error}\n")
        return BUSY
    except (CountError, FolderError, LeaseLostError) as error:
        sys.stderr.write(f"failed: {error}\n")
        return FAILED
    except StreamingQueryException as error:
        # Spark has logged the rest.
        sys.stderr.write(f"{str(error).splitlines()[0]}\n")
        return FAILED
    finally:
        spark.stop()
    return 0


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line. Ends the process with status 2 and the reason where it is wrong."""
    parser = argparse.ArgumentParser(
        prog=os.environ.get("GROUP_SIDECAR_PROGRAM", "python -m group_sidecar.spark"),
        description="Aggregates the records of all sidecars of a Kafka cluster.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_run(commands.add_parser("run", help="take records into tables, once or as a stream", epilog=_EPILOG))
    _add_replay(commands.add_parser("replay", help="answer hours again, from journals", epilog=_EPILOG))
    _add_report(commands.add_parser("report", help="write an HTML report of tables", epilog=_EPILOG))
    chosen = parser.parse_args(argv)
    if chosen.command == "run":
        _check_run(parser, chosen)
    elif chosen.command == "replay" and chosen.since >= chosen.until:
        parser.error("--from is not before --to")
    return chosen


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_input(parser)
    parser.add_argument(
        "--output", type=_folder, metavar="DIR", help="folder or URL of the tables; goes on where it was"
    )
    parser.add_argument("--stream", action="store_true", help="do not end: take what comes")
    parser.add_argument("--trigger", type=_duration, metavar="TIME", help="how often to look for new records (60s)")
    parser.add_argument("--window", type=_window, default="5m", metavar="TIME", help="width of windows (5m)")
    parser.add_argument("--retention", type=_days, metavar="DAYS", help="drop older days, for instance 30d (keep all)")
    parser.add_argument("--format", default=PARQUET, help="of the tables: parquet, or delta or iceberg where installed")
    parser.add_argument("--textfile", type=Path, metavar="FILE", help="write figures for Prometheus there (*.prom)")
    parser.add_argument("--show", choices=SUMMARIES, help="the summary to print (groups, if there is no --output)")
    parser.add_argument("--json", action="store_true", help="print all rows, each a JSON object on a line of its own")
    parser.add_argument("--limit", type=_positive, default=100, metavar="N", help="rows to print without --json (100)")
    parser.set_defaults(act=_run)


def _add_replay(parser: argparse.ArgumentParser) -> None:
    _add_input(parser)
    parser.add_argument("--output", type=_folder, required=True, metavar="DIR", help="folder or URL of the tables")
    parser.add_argument("--from", dest="since", type=_moment, required=True, metavar="TIME", help="ISO 8601, UTC")
    parser.add_argument("--to", dest="until", type=_moment, required=True, metavar="TIME", help="hours before this")
    parser.set_defaults(act=_replay)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tables", type=_present, required=True, metavar="DIR", help="what run wrote")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the HTML file")
    parser.add_argument("--title", default="Consumer groups of the cluster", help="title of the report")
    parser.add_argument("--from", dest="since", type=_moment, metavar="TIME", help="ISO 8601, UTC (the beginning)")
    parser.add_argument("--to", dest="until", type=_moment, metavar="TIME", help="ISO 8601, UTC (the end)")
    _add_spark(parser)
    parser.set_defaults(act=_report)


def _add_input(parser: argparse.ArgumentParser) -> None:
    text = "folder or URL with sealed segments, at any depth; or kafka://HOST:PORT/TOPIC"
    parser.add_argument("--input", required=True, type=_input, metavar="FROM", help=text)
    text = "properties of Kafka's client, as for --command-config of Kafka's tools"
    parser.add_argument("--command-config", type=_properties, default={}, metavar="FILE", help=text)
    text = "end where Kafka dropped records unread; otherwise the tables tell what is missing"
    parser.add_argument("--fail-on-data-loss", action="store_true", help=text)
    _add_spark(parser)


def _add_spark(parser: argparse.ArgumentParser) -> None:
    text = "jars for Spark, with commas: of Delta or Iceberg; its Kafka connector, where Maven cannot be reached"
    parser.add_argument("--jars", type=_jars, default=(), metavar="FILES", help=text)
    parser.add_argument("--master", metavar="URL", help="Spark master (local[*], or that of spark-submit)")


def _check_run(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    if chosen.stream and chosen.output is None:
        parser.error("--stream needs --output")
    if chosen.stream and (chosen.show or chosen.json):
        parser.error("--stream prints no summary: no --show, no --json")
    if chosen.trigger and not chosen.stream:
        parser.error("--trigger is for --stream")
    if chosen.textfile and not chosen.textfile.parent.is_dir():
        parser.error(f"there is no folder {chosen.textfile.parent}")


def _input(text: str) -> str:
    if text.startswith(KAFKA):
        try:
            KafkaTopic.from_url(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text
    return _present(text)


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


def _duration(text: str) -> str:
    found = _DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text} is not a time like 30s, 5m or 1h")
    return f"{int(found[1])} {_UNITS[found[2]]}"


def _window(text: str) -> str:
    number, unit = _duration(text).split()
    if HOUR % timedelta(**{unit: int(number)}):
        raise argparse.ArgumentTypeError(f"a window of {text} does not divide an hour")
    return f"{number} {unit}"


def _days(text: str) -> timedelta:
    number, unit = _duration(text).split()
    if unit != "days":
        raise argparse.ArgumentTypeError(f"{text} is not a number of days like 30d")
    return timedelta(days=int(number))


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a moment like 2025-01-31 or 2025-01-31T09:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _jars(text: str) -> tuple[str, ...]:
    jars = tuple(filter(None, text.split(",")))
    for jar in jars:
        _present(jar)
    return jars


def _properties(text: str) -> dict[str, str]:
    _present(text)
    lines = (line.strip() for line in Path(text).read_text().splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _session(chosen: argparse.Namespace) -> SparkSession:
    if chosen.command == "report":
        return session(chosen.master, jars=chosen.jars)
    kafka = chosen.input.startswith(KAFKA)
    small = not kafka and not getattr(chosen, "stream", False) and _is_small(Path(chosen.input))
    return session(chosen.master, small=small, jars=chosen.jars, kafka=kafka)


def _is_small(folder: Path) -> bool:
    size = 0
    for path in folder.rglob(SEGMENTS):
        # A sidecar may drop its oldest segments at any time.
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return folder.is_dir() and size < SMALL_INPUT_BYTES


def _source(chosen: argparse.Namespace) -> jobs.Source:
    if not chosen.input.startswith(KAFKA):
        return str(chosen.input)
    return KafkaTopic.from_url(chosen.input, chosen.command_config, fail_on_data_loss=chosen.fail_on_data_loss)


def _run(spark: SparkSession, chosen: argparse.Namespace) -> None:
    wanted = chosen.show or chosen.json or chosen.output is None
    running = jobs.Running(
        source=_source(chosen),
        output=chosen.output,
        trigger=(chosen.trigger or "60 seconds") if chosen.stream else None,
        window=chosen.window,
        retention=chosen.retention,
        format=chosen.format,
        textfile=chosen.textfile,
        show=(chosen.show or "groups") if wanted else None,
        json=chosen.json,
        limit=chosen.limit,
    )
    jobs.run(spark, running)


def _replay(spark: SparkSession, chosen: argparse.Namespace) -> None:
    since = chosen.since.replace(minute=0, second=0, microsecond=0)
    until = (chosen.until + HOUR - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0)
    jobs.run_replay(spark, _source(chosen), chosen.output, since, until)


def _report(spark: SparkSession, chosen: argparse.Namespace) -> None:
    from group_sidecar.spark.report import write_report

    store = Store.opened(spark, chosen.tables)

    def read(table: str) -> DataFrame:
        return store.read(table, chosen.since, chosen.until)

    write_report(read, chosen.output, title=chosen.title, since=chosen.since, until=chosen.until)


def _plainly(error: AnalysisException, chosen: argparse.Namespace) -> str | None:
    """What was wrong with the arguments, in one line; None if it was not that."""
    condition = error.getCondition()
    if condition == "PATH_NOT_FOUND":
        return f"there is no {chosen.input}"
    if condition == "KAFKA_DATA_SOURCE_NOT_ENABLED":
        return f"Spark lacks its Kafka connector: give {KAFKA_CONNECTOR} by --packages of spark-submit, or --jars"
    return None


if __name__ == "__main__":
    sys.exit(main())
