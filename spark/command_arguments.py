"""Parses the arguments of the fleet job, and defines its exit statuses."""

import argparse
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from group_sidecar.spark.filesystem import HOUR
from group_sidecar.spark.line_parsing import Fault
from group_sidecar.spark.line_sources import KafkaTopic
from group_sidecar.spark.requeue import CURABLE
from group_sidecar.spark.store import PARQUET
from group_sidecar.spark.summaries import SUMMARIES

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REQUIREMENT_MISSING = 3
EXIT_STORE_LOCKED = 4
EXIT_FINDINGS = 5
EXIT_EMPTY = 6
EXIT_INTERRUPTED = 130
"""The status of a shell for a process that SIGINT has ended."""
KAFKA = "kafka://"

_DURATION = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_EPILOG = (
    "Exit status: 0 done, 1 a batch failed, 2 wrong argument, no such input, or a store of a newer version or damaged, "
    "3 PySpark or Java is missing, 4 another process writes to the tables, 5 doctor has findings, "
    "6 no record was stored (--fail-if-empty)."
)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line. If the command line is wrong, prints the reason and ends the process with status 2."""
    parser = argparse.ArgumentParser(
        prog=os.environ.get("GROUP_SIDECAR_PROGRAM", "python -m group_sidecar.spark"),
        description="Aggregates the records of all sidecars of a Kafka cluster.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_run(commands.add_parser("run", help="take records into tables, once or as a stream", epilog=_EPILOG))
    _add_replay(commands.add_parser("replay", help="compute hours again from journals", epilog=_EPILOG))
    help_text = "take quarantined lines that are records now, after an upgrade"
    _add_requeue(commands.add_parser("requeue", help=help_text, epilog=_EPILOG))
    _add_report(commands.add_parser("report", help="write an HTML report of tables", epilog=_EPILOG))
    help_text = "check sidecars, quarantine and journals, and print what to do"
    _add_doctor(commands.add_parser("doctor", help=help_text, epilog=_EPILOG))
    options = parser.parse_args(argv)
    if options.command == "run":
        _check_run(parser, options)
    if options.command in ("run", "replay", "requeue"):
        _check_result(parser, options)
    if options.command in ("replay", "requeue", "doctor") and _is_empty(options.since, options.until):
        parser.error("--from is not before --to")
    return options


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_input(parser)
    parser.add_argument(
        "--output", type=_folder, metavar="DIR", help="folder or URL of the tables; an existing store is continued"
    )
    parser.add_argument("--stream", action="store_true", help="keep running, and take new records as they arrive")
    parser.add_argument("--trigger", type=_duration, metavar="TIME", help="how often to look for new records (60s)")
    parser.add_argument("--window", type=_window, default="5m", metavar="TIME", help="width of windows (5m)")
    parser.add_argument(
        "--retention", type=_days, metavar="DAYS", help="drop older days, for instance 30d (default: keep all)"
    )
    parser.add_argument(
        "--format", default=PARQUET, help="format of the tables: parquet, or delta or iceberg if installed"
    )
    parser.add_argument(
        "--textfile", type=Path, metavar="FILE", help="write metrics for Prometheus to this file (*.prom)"
    )
    _add_result(parser)
    _add_fail_if_empty(parser)
    parser.add_argument("--show", choices=SUMMARIES, help="the summary to print (groups, if there is no --output)")
    parser.add_argument("--json", action="store_true", help="print all rows, each a JSON object on a line of its own")
    parser.add_argument("--limit", type=_positive, default=100, metavar="N", help="rows to print without --json (100)")


def _add_replay(parser: argparse.ArgumentParser) -> None:
    _add_input(parser)
    parser.add_argument("--output", type=_folder, required=True, metavar="DIR", help="folder or URL of the tables")
    parser.add_argument("--from", dest="since", type=_moment, required=True, metavar="TIME", help="ISO 8601, UTC")
    parser.add_argument("--to", dest="until", type=_moment, required=True, metavar="TIME", help="hours before this")
    _add_result(parser)
    _add_fail_if_empty(parser)


def _add_requeue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", type=_existing_path, required=True, metavar="DIR", help="folder or URL of the tables"
    )
    faults, default = ", ".join(Fault), ", ".join(CURABLE)
    text = f"judge lines with this fault again, one of {faults}; may be repeated ({default})"
    parser.add_argument("--fault", dest="faults", type=_fault, action="append", metavar="FAULT", help=text)
    text = "lines that arrived from this hour on: ISO 8601, UTC (the beginning)"
    parser.add_argument("--from", dest="since", type=_moment, metavar="TIME", help=text)
    text = "lines that arrived in hours before this (the end)"
    parser.add_argument("--to", dest="until", type=_moment, metavar="TIME", help=text)
    text = "leave older records in quarantine, as for run (take all)"
    parser.add_argument("--retention", type=_days, metavar="DAYS", help=text)
    _add_result(parser)
    _add_spark(parser)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tables",
        type=_existing_path,
        required=True,
        metavar="DIR",
        help="folder or URL of the tables that `run` wrote",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the HTML file")
    parser.add_argument("--title", default="Consumer groups of the cluster", help="title of the report")
    parser.add_argument("--from", dest="since", type=_moment, metavar="TIME", help="ISO 8601, UTC (the beginning)")
    parser.add_argument("--to", dest="until", type=_moment, metavar="TIME", help="ISO 8601, UTC (the end)")
    _add_spark(parser)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", type=_existing_path, required=True, metavar="DIR", help="folder or URL of the tables"
    )
    text = "also check the files of this folder or URL with segments, named exactly as for run"
    parser.add_argument("--input", type=_journals, metavar="FROM", help=text)
    text = "ISO 8601, UTC (24 hours before the end)"
    parser.add_argument("--from", dest="since", type=_moment, metavar="TIME", help=text)
    text = "ISO 8601, UTC (the newest record)"
    parser.add_argument("--to", dest="until", type=_moment, metavar="TIME", help=text)
    parser.add_argument("--json", action="store_true", help="print each row as a JSON object on a line of its own")
    text = "rows to print of the sidecars, and of each check (100)"
    parser.add_argument("--limit", type=_positive, default=100, metavar="N", help=text)
    _add_spark(parser)


def _add_input(parser: argparse.ArgumentParser) -> None:
    text = "folder or URL with sealed segments, at any depth; or kafka://HOST:PORT/TOPIC"
    parser.add_argument("--input", required=True, type=_input, metavar="FROM", help=text)
    text = "properties of Kafka's client, as for --command-config of Kafka's tools"
    parser.add_argument("--command-config", type=_properties, default={}, metavar="FILE", help=text)
    text = "fail if Kafka has deleted records before they were read; otherwise the tables count them as missing"
    parser.add_argument("--fail-on-data-loss", action="store_true", help=text)
    _add_spark(parser)


def _add_result(parser: argparse.ArgumentParser) -> None:
    text = "write the outcome as a JSON document to this file at the end, for schedulers"
    parser.add_argument("--result", type=Path, metavar="FILE", help=text)


def _add_fail_if_empty(parser: argparse.ArgumentParser) -> None:
    text = f"end with status {EXIT_EMPTY} if no record was stored"
    parser.add_argument("--fail-if-empty", action="store_true", help=text)


def _add_spark(parser: argparse.ArgumentParser) -> None:
    text = "jars for Spark, separated by commas: Delta or Iceberg, or the Kafka connector if Maven cannot be reached"
    parser.add_argument("--jars", type=_jars, default=(), metavar="FILES", help=text)
    parser.add_argument(
        "--master", metavar="URL", help="Spark master (default: local[*], or the master of spark-submit)"
    )


def _check_run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.stream and options.output is None:
        parser.error("--stream needs --output")
    if options.stream and (options.show or options.json):
        parser.error("--stream prints no summary: no --show, no --json")
    if options.trigger and not options.stream:
        parser.error("--trigger is for --stream")
    if options.textfile and not options.textfile.parent.is_dir():
        parser.error(f"there is no folder {options.textfile.parent}")
    if options.stream and options.result:
        parser.error("--result is not for --stream, which has no end")
    if options.stream and options.fail_if_empty:
        parser.error("--fail-if-empty is not for --stream, which has no end")


def _check_result(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.result is None:
        return
    if not options.result.parent.is_dir():
        parser.error(f"there is no folder {options.result.parent}")
    if options.result.is_dir():
        parser.error(f"{options.result} is a folder")


def _input(text: str) -> str:
    if text.startswith(KAFKA):
        try:
            KafkaTopic.from_url(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text
    return _existing_path(text)


def _journals(text: str) -> str:
    if text.startswith(KAFKA):
        raise argparse.ArgumentTypeError(f"{text} is a topic: without --input, doctor checks the store alone")
    return _existing_path(text)


def _existing_path(text: str) -> str:
    """Checks a path before Spark starts, because the start takes seconds. Only Spark can check a URL."""
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


def _fault(text: str) -> Fault:
    try:
        return Fault(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no fault: one of {', '.join(Fault)}") from None


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


def _is_empty(since: datetime | None, until: datetime | None) -> bool:
    return since is not None and until is not None and since >= until


def _jars(text: str) -> tuple[str, ...]:
    jars = tuple(filter(None, text.split(",")))
    for jar in jars:
        _existing_path(jar)
    return jars


def _properties(text: str) -> dict[str, str]:
    _existing_path(text)
    lines = (line.strip() for line in Path(text).read_text().splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {name.strip(): value.strip() for name, _, value in pairs}
