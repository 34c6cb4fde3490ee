"""Writes an examination of a store to standard output, as text for people or as JSON lines for scripts."""

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime

from group_sidecar.metrics.records import timestamp
from group_sidecar.spark.doctor import Examination
from group_sidecar.spark.doctor_checks import Finding
from group_sidecar.spark.output import print_table, print_text
from group_sidecar.spark.report.collected_rows import Row
from group_sidecar.spark.report.formatting import count, duration, moment

_COLUMNS = (
    ("sidecar", False),
    ("starts", True),
    ("newest record", False),
    ("age", True),
    ("records", True),
    ("missing", True),
    ("clock skew", True),
)
_INDENT = "  "


def show_examination(found: Examination) -> None:
    """Writes the table of the sidecars, the state of the writer and the findings as text."""
    if found.sidecars.rows:
        print_table(_COLUMNS, (_cells(row, found.now) for row in found.sidecars.rows))
    else:
        print_text("No sidecar has records in the range.")
    if found.sidecars.left_out:
        print_text(f"{count(found.sidecars.left_out, 'more sidecar')}: --limit shows more.")
    for line in (_range(found), _lease(found), f"Unfinished write attempts: {len(found.attempts)}"):
        print_text(line)
    findings = len(found.findings) + sum(result.left_out for result in found.results)
    print_text(f"{count(findings, 'finding')}." if findings else "No findings.")
    for result in found.results:
        for finding in result.findings:
            _show_finding(finding)
        if result.left_out:
            print_text("")
            print_text(f"{result.check}: {count(result.left_out, 'more finding')}; --limit shows more.")


def show_examination_json(found: Examination) -> None:
    """Writes one JSON object on each line: the store, the sidecars, the findings, and how many rows are left out."""
    for line in _json_objects(found):
        sys.stdout.write(json.dumps(line) + "\n")


def _show_finding(finding: Finding) -> None:
    print_text("")
    print_text(f"{finding.check}: {finding.subject}")
    print_text(f"{_INDENT}{finding.problem}")
    print_text(f"{_INDENT}Advice: {finding.advice}")


def _cells(row: Row, now: datetime) -> tuple[object, ...]:
    skew = row["clock_skew_seconds"]
    return (
        row["sidecar"],
        row["boots"],
        moment(row["last_record"]),
        duration(int(now.timestamp() - row["last_record"])),
        f"{row['records']:,}",
        f"{row['missing']:,}",
        None if skew is None else duration(skew),
    )


def _range(found: Examination) -> str:
    if found.since is None:
        return "Range: none, because the store has no records"
    end = "the newest record" if found.until is None else moment(found.until.timestamp())
    return f"Range: {moment(found.since.timestamp())} to {end} (UTC)"


def _lease(found: Examination) -> str:
    if found.lease is None:
        return "Lease: no process has ever had one"
    renewed_at = found.lease.renewed_at
    at = "just now" if renewed_at is None else f"at {moment(renewed_at.timestamp())}"
    return f"Lease: {found.lease.state}, last written by {found.lease.holder} {at}"


def _json_objects(found: Examination) -> Iterator[Mapping[str, object]]:
    lease = found.lease
    yield {
        "kind": "store",
        "from": _timestamp(found.since),
        "to": _timestamp(found.until),
        "newest_record": _timestamp(found.newest),
        "last_batch": _timestamp(found.last_batch),
        "lease": None if lease is None else lease.state,
        "lease_holder": None if lease is None else lease.holder,
        "lease_renewed_at": None if lease is None else _timestamp(lease.renewed_at),
        "unfinished_attempts": len(found.attempts),
    }
    for row in found.sidecars.rows:
        yield {
            "kind": "sidecar",
            "sidecar": row["sidecar"],
            "starts": row["boots"],
            "newest_record": timestamp(row["last_record"]),
            "age_seconds": round(found.now.timestamp() - row["last_record"], 3),
            "silent_seconds": row["silent_seconds"],
            "records": row["records"],
            "missing": row["missing"],
            "clock_skew_seconds": row["clock_skew_seconds"],
        }
    if found.sidecars.left_out:
        yield {"kind": "left_out", "check": "sidecars", "count": found.sidecars.left_out}
    for result in found.results:
        for finding in result.findings:
            yield {
                "kind": "finding",
                "check": finding.check,
                "subject": finding.subject,
                "problem": finding.problem,
                "advice": finding.advice,
                "figures": finding.figures,
            }
        if result.left_out:
            yield {"kind": "left_out", "check": result.check, "count": result.left_out}


def _timestamp(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment.timestamp())
