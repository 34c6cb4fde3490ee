"""The checks of `doctor`: each turns a part of a store or of the journals into findings.

A check collects a limited number of rows, and counts the others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import timestamp
from group_sidecar.spark import line_sources
from group_sidecar.spark.journal_files import FileProblem
from group_sidecar.spark.lease import LeaseState, LeaseStatus
from group_sidecar.spark.line_parsing import Fault
from group_sidecar.spark.line_sources import list_names
from group_sidecar.spark.report.collected_rows import Row, Rows, all_rows
from group_sidecar.spark.report.formatting import count, duration, moment
from group_sidecar.spark.report.sidecars_chapter import is_silent

STALE_AFTER = timedelta(minutes=15)
"""The store is stale if its newest record is older than this. A segment that was sealed longer ago should be read."""
AHEAD_SECONDS = 3.0
"""A clock that is ahead by less than this is no finding. Dates of files and clocks of transports are not exact."""
_NAMED_SIDECARS = 3
_EXAMPLE_CHARACTERS = 60
_NAME_CHARACTERS = 80
"""A sidecar's id in quarantine may be a text of any length."""


class Check(StrEnum):
    """A kind of finding. The order is the order of the output."""

    STALE = "stale"
    SILENT = "silent"
    MISSING = "missing"
    CLOCK_AHEAD = "clock_ahead"
    SHARED_ID = "shared_id"
    QUARANTINE = "quarantine"
    NOT_SEGMENT = "not_segment"
    CHANGED = "changed_segment"
    LARGE_UNREAD = "large_segment"
    UNREAD = "unread_segments"
    UNFINISHED = "unfinished_write"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that an operator must look at.

    Attributes:
        check: the kind of the finding.
        subject: the sidecar, the fault, the file or the write attempt.
        problem: the problem with its figures, in one sentence.
        advice: what to do, in one sentence.
        figures: the figures of the problem by name, as JSON.
    """

    check: Check
    subject: str
    problem: str
    advice: str
    figures: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The findings of one check.

    Attributes:
        check: the kind of the findings.
        findings: the findings, the worst first.
        left_out: how many further findings there are.
    """

    check: Check
    findings: Sequence[Finding] = ()
    left_out: int = 0


_LATER_CONTRACT = (
    "If the sidecar is newer than the job, upgrade the job and run `group-sidecar fleet requeue`, "
    "and otherwise report the line as a bug."
)
_UPGRADE = "Upgrade the job, then run `group-sidecar fleet requeue`."
FAULT_ADVICE: Mapping[Fault, str] = MappingProxyType(
    {
        Fault.NOT_JSON_OBJECT: "Find the program or the incomplete copy that brings such lines into the input.",
        Fault.UNKNOWN_VERSION: _UPGRADE,
        Fault.UNKNOWN_KIND: _UPGRADE,
        Fault.WRONG_TYPE: _LATER_CONTRACT,
        Fault.MISSING_COLUMN: _LATER_CONTRACT,
        Fault.OUT_OF_RANGE: _LATER_CONTRACT,
        Fault.IN_FUTURE: "Correct the sidecar's clock, wait until the times of the records have passed, and then run "
        "`group-sidecar fleet requeue --fault in_future`.",
        Fault.TOO_OLD: "Set the sidecar's clock if it is wrong, and otherwise deliver segments within the retention.",
    }
)
"""What an operator can do about the lines in quarantine with each fault."""
_FILES: Mapping[FileProblem, tuple[Check, str, str]] = MappingProxyType(
    {
        FileProblem.NOT_SEGMENT: (
            Check.NOT_SEGMENT,
            "The job never reads this file of {size}, because its name does not end in .jsonl.",
            "Unpack the file if it is compressed, or move it out of the input.",
        ),
        FileProblem.CHANGED: (
            Check.CHANGED,
            "This segment of {size} was written at {modified}, after a run had read it in another state.",
            "Run `group-sidecar fleet run` to read it again, and rename copies only when they are complete.",
        ),
        FileProblem.LARGE_UNREAD: (
            Check.LARGE_UNREAD,
            "No line of this segment of {size} was read, and the job skips lines of more than {limit}.",
            "Remove the file if no sidecar has written it, and otherwise run `group-sidecar fleet run`.",
        ),
        FileProblem.UNREAD: (
            Check.UNREAD,
            "No run has read {segments} in the input, of which this one is the oldest and was sealed at {modified}.",
            "Run `group-sidecar fleet run` with this input, and give doctor exactly the same --input.",
        ),
    }
)
"""The check, the problem and the advice for each problem of a file."""


def stale_store(
    now: datetime, newest: datetime | None, last_batch: datetime | None, lease: LeaseStatus | None
) -> CheckResult:
    """Checks that the newest record of the store is not too old.

    Args:
        now: the current time.
        newest: the time of the newest record; None if the store has no records.
        last_batch: when the last batch was completed; None if that is not known.
        lease: the newest lease; None if there is none.
    """
    age = None if newest is None else (now - newest).total_seconds()
    if age is not None and age <= STALE_AFTER.total_seconds():
        return CheckResult(check=Check.STALE)
    problem = (
        "The store has no records"
        if newest is None or age is None
        else f"The newest record is from {moment(newest.timestamp())}, {duration(age)} ago"
    )
    written = "" if last_batch is None else f", and the last batch was completed at {moment(last_batch.timestamp())}"
    running = lease is not None and lease.state == LeaseState.HELD
    written_at = [at for at in (last_batch, None if lease is None else lease.renewed_at) if at is not None]
    running |= any(now - at <= STALE_AFTER for at in written_at)
    advice = (
        f"A job wrote in the last {duration(STALE_AFTER.total_seconds())}, so check that new segments, or records of "
        "the topic, reach its input."
        if running
        else "No job has written lately, so start `group-sidecar fleet run`, or read the log of its last run."
    )
    figures = {
        "age_seconds": age,
        "last_batch": None if last_batch is None else timestamp(last_batch.timestamp()),
    }
    found = Finding(check=Check.STALE, subject="store", problem=f"{problem}{written}.", advice=advice, figures=figures)
    return CheckResult(check=Check.STALE, findings=(found,))


def worst_sidecars(summary: DataFrame, limit: int) -> tuple[Rows, Sequence[CheckResult]]:
    """Checks silence, missing records and clocks. One query collects the rows of all checks.

    Args:
        summary: the summary `sidecars`.
        limit: the maximum number of rows, and of findings of each check.

    Returns:
        The first rows of the summary, the worst first, and the findings.
    """
    everywhere = Window.partitionBy()
    skew = F.col("clock_skew_seconds")
    conditions: Mapping[Check, tuple[Column, Column]] = {
        Check.SILENT: (is_silent(), F.col("silent_seconds").desc()),
        Check.MISSING: (F.col("missing") > 0, F.col("missing").desc()),
        Check.CLOCK_AHEAD: (F.coalesce(skew <= -AHEAD_SECONDS, F.lit(False)), skew.asc()),
    }
    columns = {f"is_{check}": found for check, (found, _) in conditions.items()}
    for check, (found, worse) in conditions.items():
        columns[f"rank_{check}"] = F.row_number().over(everywhere.orderBy(found.desc(), worse, "sidecar"))
        columns[f"all_{check}"] = F.count_if(found).over(everywhere)
    worst = is_silent().desc(), F.col("missing").desc(), F.col("silent_seconds").desc(), F.col("sidecar")
    columns["rank"] = F.row_number().over(everywhere.orderBy(*worst))
    columns["all"] = F.count("*").over(everywhere)
    ranks = [F.col("rank"), *(F.col(f"rank_{check}") for check in conditions)]
    rows = all_rows(summary.withColumns(columns).where(F.least(*ranks) <= limit))
    shown = sorted((row for row in rows if row["rank"] <= limit), key=lambda row: row["rank"])
    table = Rows(dict(summary.dtypes), shown, max((row["all"] for row in rows), default=0) - len(shown))
    return table, [_sidecar_findings(check, rows, limit) for check in conditions]


def _sidecar_findings(check: Check, rows: Sequence[Row], limit: int) -> CheckResult:
    found = [row for row in rows if row[f"is_{check}"] and row[f"rank_{check}"] <= limit]
    findings = [_SIDECAR_FINDINGS[check](row) for row in sorted(found, key=lambda row: row[f"rank_{check}"])]
    total = max((row[f"all_{check}"] for row in rows), default=0)
    return CheckResult(check=check, findings=findings, left_out=total - len(findings))


def _silent(row: Row) -> Finding:
    return Finding(
        check=Check.SILENT,
        subject=row["sidecar"],
        problem=f"The sidecar has sent no record for {duration(row['silent_seconds'])}, while another sidecar has.",
        advice="Check that the sidecar and its broker run, and that its records reach the input of the job.",
        figures={"silent_seconds": row["silent_seconds"]},
    )


def _missing(row: Row) -> Finding:
    missing, sent = row["missing"], row["missing"] + row["records"]
    return Finding(
        check=Check.MISSING,
        subject=row["sidecar"],
        problem=f"The sidecar sent {count(sent, 'record')} in the range, and {missing:,} of them are missing.",
        advice="Look for its lines in quarantine and for segments that were not copied, and store found segments "
        "with `group-sidecar fleet run`.",
        figures={"missing": missing, "records": row["records"]},
    )


def _clock_ahead(row: Row) -> Finding:
    seconds = -row["clock_skew_seconds"]
    return Finding(
        check=Check.CLOCK_AHEAD,
        subject=row["sidecar"],
        problem=f"Its records arrive {duration(seconds)} before their own time, so its clock is ahead.",
        advice="Synchronise the clock of the sidecar's machine, for instance with chrony.",
        figures={"ahead_seconds": seconds},
    )


_SIDECAR_FINDINGS: Mapping[Check, Callable[[Row], Finding]] = MappingProxyType(
    {Check.SILENT: _silent, Check.MISSING: _missing, Check.CLOCK_AHEAD: _clock_ahead}
)


def shared_ids(ids: Sequence[str], limit: int) -> CheckResult:
    """Turns ids that several sidecars use into findings."""
    findings = [
        Finding(
            check=Check.SHARED_ID,
            subject=sidecar,
            problem="Two processes with this id sent records in the same windows, so their records are mixed up.",
            advice="Give each sidecar a `sidecar_id` of its own.",
        )
        for sidecar in ids[:limit]
    ]
    return CheckResult(check=Check.SHARED_ID, findings=findings, left_out=max(len(ids) - limit, 0))


def quarantined_lines(summary: DataFrame) -> CheckResult:
    """Turns lines in quarantine into one finding for each fault. `summary` is the summary `quarantine`."""
    order = Window.partitionBy("fault").orderBy(F.col("sidecar").isNull(), F.col("lines").desc(), F.col("sidecar"))
    ranked = summary.withColumn("rank", F.row_number().over(order))
    name = F.when(F.col("rank") <= _NAMED_SIDECARS, F.left("sidecar", F.lit(_NAME_CHARACTERS)))
    by_fault = ranked.groupBy("fault").agg(
        F.sum("lines").alias("lines"),
        F.count("sidecar").alias("sidecars"),
        F.collect_list(name).alias("names"),
        F.min("example").alias("example"),
    )

    def finding(row: Row) -> Finding:
        names, more = sorted(row["names"]), row["sidecars"] - len(row["names"])
        lines = f"{count(row['lines'], 'line')} of {'no known sidecar' if not names else ', '.join(names)}"
        example = (row["example"] or "")[:_EXAMPLE_CHARACTERS]
        return Finding(
            check=Check.QUARANTINE,
            subject=row["fault"],
            problem=f"{lines}{f' and {more:,} more' if more else ''} "
            f"{'is' if row['lines'] == 1 else 'are'} in quarantine, for example: {example}",
            advice=FAULT_ADVICE.get(row["fault"], _UPGRADE),
            figures={"lines": row["lines"], "sidecars": row["sidecars"], "names": names, "example": row["example"]},
        )

    rows = sorted(all_rows(by_fault), key=lambda row: (-row["lines"], row["fault"]))
    return CheckResult(check=Check.QUARANTINE, findings=[*map(finding, rows)])


def journal_files(files: DataFrame, now: datetime, limit: int) -> Sequence[CheckResult]:
    """Turns files with a problem into findings. All unread segments together are one finding.

    Args:
        files: the files, as `journal_files.file_problems` returns them. Segments that were sealed less than
            `STALE_AFTER` ago may still be unread.
        now: the current time.
        limit: the maximum number of findings of each problem.
    """
    problem, sealed = F.col("problem"), int((now - STALE_AFTER).timestamp() * 1000)
    may_be_unread = problem.isin(FileProblem.UNREAD.value, FileProblem.LARGE_UNREAD.value)
    each = Window.partitionBy("problem")
    ranked = files.where(~may_be_unread | (F.col("modified") <= sealed)).withColumns(
        {"rank": F.row_number().over(each.orderBy("modified", "path")), "files": F.count("*").over(each)}
    )
    shown = F.when(problem == FileProblem.UNREAD.value, F.lit(1)).otherwise(F.lit(limit))
    rows = sorted(all_rows(ranked.where(F.col("rank") <= shown)), key=lambda row: (row["problem"], row["rank"]))
    results = []
    for kind, (check, _, _) in _FILES.items():
        findings = [_file_finding(row, kind) for row in rows if row["problem"] == kind]
        total = 0 if kind == FileProblem.UNREAD else max((r["files"] for r in rows if r["problem"] == kind), default=0)
        results.append(CheckResult(check=check, findings=findings, left_out=max(total - len(findings), 0)))
    return results


def _file_finding(row: Row, kind: FileProblem) -> Finding:
    check, problem, advice = _FILES[kind]
    modified = row["modified"] / 1000
    text = {
        "size": f"{row['size']:,} bytes",
        "modified": moment(modified),
        "segments": count(row["files"], "segment"),
        "limit": f"{line_sources.MAX_READ_BYTES:,} bytes",
    }
    figures = {"bytes": row["size"], "modified": timestamp(modified)}
    if kind == FileProblem.UNREAD:
        figures["segments"] = row["files"]
    return Finding(check=check, subject=row["path"], problem=problem.format(**text), advice=advice, figures=figures)


def unfinished_writes(before: LeaseStatus | None, attempts: Sequence[str], after: LeaseStatus | None) -> CheckResult:
    """Checks that no write attempt belongs to a process that has ended.

    Args:
        before: the newest lease before the attempts were listed; None if there was none.
        attempts: the names of the attempts.
        after: the newest lease after the attempts were listed.
    """
    held = any(lease is not None and lease.state == LeaseState.HELD for lease in (before, after))
    if not attempts or held or before is None or after is None or before.token != after.token:
        return CheckResult(check=Check.UNFINISHED)
    found = Finding(
        check=Check.UNFINISHED,
        subject=list_names(attempts),
        problem=f"{count(len(attempts), 'write attempt')} of {after.holder} cannot go on: its lease has the state "
        f"{after.state}.",
        advice="Run `group-sidecar fleet run` again, which completes or repeats what was interrupted.",
        figures={"attempts": len(attempts), "state": after.state},
    )
    return CheckResult(check=Check.UNFINISHED, findings=(found,))
