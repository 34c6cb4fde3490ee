"""The command ``group-sidecar fleet``.

The command replaces this process by the fleet job, so that the job gets the signals and sets the exit status. All
arguments go to the job unchanged.
"""

import os
import sys

import typer

PROGRAM = "group-sidecar fleet"
PROGRAM_VARIABLE = "GROUP_SIDECAR_PROGRAM"
"""The environment variable that contains the command's name for the job's help."""


def fleet(context: typer.Context) -> None:
    """Aggregate the records of all sidecars with Spark: run, replay, requeue, report, doctor."""
    os.environ[PROGRAM_VARIABLE] = PROGRAM
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "group_sidecar.spark", *context.args])
