"""Finds files of a folder with journals that need attention, without reading them.

The problem of a file follows from its name, its size, and the segments that the store has read (`segment_ledger`).
"""

from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark import line_sources
from group_sidecar.spark.segment_ledger import SegmentLedger

_SEGMENT = f"%{line_sources.SEGMENTS.removeprefix('*')}"


class FileProblem(StrEnum):
    """Why a file needs attention. A file has at most one problem.

    - `NOT_SEGMENT`: the job never reads the file, because of its name.
    - `CHANGED`: the file was read, but never in its current state.
    - `LARGE_UNREAD`: no line was ever read, and the file is large enough for lines that the job skips.
    - `UNREAD`: no line was ever read.
    """

    NOT_SEGMENT = "not_segment"
    CHANGED = "changed"
    LARGE_UNREAD = "large_unread"
    UNREAD = "unread"


def file_problems(spark: SparkSession, ledger: SegmentLedger, folder: str) -> DataFrame:
    """Returns the files below a folder that have a problem, as `line_sources.FILE` with the column `problem` STRING.

    Hidden files and empty segments have no problem.

    Args:
        spark: the session.
        ledger: the segments that the store has read.
        folder: the folder with the segments, as it was named when the segments were read.

    Raises:
        AnalysisException: the folder does not exist.
    """
    size, never_read = F.col("size"), F.col("unchanged").isNull()
    problem = (
        F.when(~F.col("path").like(_SEGMENT), F.lit(FileProblem.NOT_SEGMENT.value))
        .when(never_read & (size > line_sources.MAX_READ_BYTES), F.lit(FileProblem.LARGE_UNREAD.value))
        .when(never_read & (size > 0), F.lit(FileProblem.UNREAD.value))
        .when(~F.col("unchanged") & (size > 0), F.lit(FileProblem.CHANGED.value))
    )
    files = ledger.compared(line_sources.all_files(spark, folder)).withColumn("problem", problem)
    return files.where(F.col("problem").isNotNull()).drop("unchanged")
