"""The outcome of one job, and the JSON file with it for schedulers."""

import json
import sys
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from group_sidecar.metrics.records import timestamp
from group_sidecar.spark.filesystem import FolderError, replace_local_file
from group_sidecar.spark.ingest import IngestResult

_MAX_WARNINGS = 100


@dataclass
class JobOutcome:
    """What a job has done so far, summed over all batches.

    Attributes:
        records: number of stored records, including repeated ones.
        quarantined: number of lines that the job has put into quarantine, by fault.
        hours: the hours (UTC) whose tables were computed again.
        warnings: the newest problems for the operator, each in one line.
        recovered: whether the job has stored records of an interrupted job, which `records` does not count.
        failure: why the job has failed, in one line; None if it has not.
    """

    records: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    hours: set[datetime] = field(default_factory=set)
    warnings: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_WARNINGS))
    recovered: bool = False
    failure: str | None = None

    def add(self, result: IngestResult) -> None:
        """Adds a batch. Its warnings are left out."""
        self.records += result.records
        self.quarantined.update(result.quarantined)
        self.hours.update(result.hours)

    @property
    def stored_nothing(self) -> bool:
        """Whether the job has stored no record, neither of its own input nor of an interrupted job."""
        return not self.records and not self.recovered

    def __str__(self) -> str:
        """Returns the numbers of records and of quarantined lines, in one line."""
        faults = ", ".join(f"{fault} {count}" for fault, count in sorted(self.quarantined.items()))
        lines = f"{self.records} records, {self.quarantined.total()} lines in quarantine"
        return lines + (f" ({faults})" if faults else "")


class ResultFile:
    """The JSON file with the outcome of one job.

    An existing file is removed, so that no reader takes it for the new one.

    Args:
        file: the path of the file.
        command: the subcommand.

    Raises:
        OSError: the existing file cannot be removed.
    """

    def __init__(self, file: Path, command: str) -> None:
        self._file = file
        self._command = command
        self._started_at = datetime.now(UTC)
        file.unlink(missing_ok=True)

    def write(self, status: int, outcome: JobOutcome) -> bool:
        """Writes the file. A reader sees no file or the whole file.

        Args:
            status: the exit status of the job.
            outcome: the outcome of the job.

        Returns:
            Whether the file was written. If it was not, the reason is on standard error.
        """
        document = {
            "command": self._command,
            "started_at": timestamp(self._started_at.timestamp()),
            "ended_at": timestamp(datetime.now(UTC).timestamp()),
            "exit_status": status,
            "failure": outcome.failure,
            "records": outcome.records,
            "quarantined": dict(sorted(outcome.quarantined.items())),
            "hours": [timestamp(hour.timestamp()) for hour in sorted(outcome.hours)],
            "warnings": [*outcome.warnings],
        }
        try:
            replace_local_file(self._file, json.dumps(document, indent=2) + "\n")
        except FolderError as error:
            sys.stderr.write(f"failed: {error}\n")
            return False
        return True
