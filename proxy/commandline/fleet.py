"""``group-sidecar fleet``: hands over to the fleet job.

Owns: nothing but that the job becomes this process, so that signals and the exit status are its own. Must not know:
what the job's arguments mean, nor Spark.
"""

import os
import sys

import typer

PROGRAM = "group-sidecar fleet"
PROGRAM_VARIABLE = "GROUP_SIDECAR_PROGRAM"
"""How the job is called in its own help."""


def fleet(context: typer.Context) -> None:
    """Aggregate what all sidecars tell, with Spark: run, replay, report."""
    os.environ[PROGRAM_VARIABLE] = PROGRAM
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "group_sidecar.spark", *context.args])
