"""Detects whether a file was replaced or changed."""

from pathlib import Path

FileStamp = tuple[int, int, int]
"""The time of the last change in nanoseconds, the inode, and the size in bytes."""


def file_stamp(file: Path) -> FileStamp:
    """Returns a file's stamp, which differs after a change. Takes some microseconds. Raises OSError."""
    status = file.stat()
    return status.st_mtime_ns, status.st_ino, status.st_size
