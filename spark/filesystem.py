"""Folders on any file system that Spark supports: the local one, HDFS or an object store.

The module lists, removes and moves folders, reads and writes small files, and names the folder of an hour. The
module uses Hadoop's FileSystem in the JVM that Spark runs in.

Hadoop reports some failures by an exception and others by returning false. Methods that read, write, move or remove
files, and the list of a folder's names, turn both into a `FolderError`.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

HOUR = timedelta(hours=1)
T = TypeVar("T")
_HOUR = re.compile(r"hour=(\d+)")
_DAY = re.compile(r"day=(\d{4}-\d{2}-\d{2})")


def day_folder(moment: datetime) -> str:
    """Returns the name of a day's folder, as Spark's partitionBy names it, in UTC."""
    return f"day={moment.astimezone(UTC):%Y-%m-%d}"


def hour_folder(hour: datetime) -> str:
    """Returns the path of an hour's folder, as Spark's partitionBy names it, in UTC."""
    return f"{day_folder(hour)}/hour={hour.astimezone(UTC).hour}"


def hour_of_folder(folder: str) -> datetime:
    """Returns the hour of the folder at the end of a path."""
    day, hour = folder.rsplit("/", 2)[-2:]
    return datetime.strptime(f"{day} {hour}", "day=%Y-%m-%d hour=%H").replace(tzinfo=UTC)


class FolderError(Exception):
    """A file system operation failed. The text names the operation and the path, in one line."""


class Folders:
    """The folders below a root folder, by their paths relative to the root.

    Args:
        spark: the session.
        root: a path or a URL. A path belongs to Spark's default file system.

    Raises:
        FolderError: Spark does not support the URL's file system, or cannot reach it.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._new_path: Any = jvm.org.apache.hadoop.fs.Path
        configuration: Any = spark._jsc.hadoopConfiguration()
        path = self._new_path(root)
        with _as_folder_error(f"cannot open {root}"):
            self._system: Any = path.getFileSystem(configuration)
        self.root = str(self._system.makeQualified(path).toString())
        self._local = self.root.startswith("file:")
        # Other processes read small files while they are overwritten, so small files have no separate checksum files.
        self._plain: Any = self._system.getRawFileSystem() if self._local else self._system

    def url(self, folder: str) -> str:
        """Returns the full URL of a folder."""
        return f"{self.root}/{folder}"

    def children(self, folder: str) -> list[str]:
        """Returns the sorted names in a folder, without hidden names. Returns no names if the folder does not exist.

        Raises:
            FolderError: the folder could not be listed.
        """
        path = self._path(folder)
        with _as_folder_error(f"cannot list {path}"):
            if not self._system.exists(path):
                return []
            names = (str(status.getPath().getName()) for status in self._system.listStatus(path))
            return sorted(name for name in names if name[0] not in "._")

    def matching(self, pattern: str) -> list[str]:
        """Returns the paths that match a glob, relative to the root."""
        found = self._system.globStatus(self._path(pattern)) or ()
        return [str(status.getPath().toString()).removeprefix(f"{self.root}/") for status in found]

    def hours(self, folder: str, since: datetime | None = None, until: datetime | None = None) -> list[datetime]:
        """Returns the hours that have a folder, oldest first, if they overlap the time from `since` to `until`."""
        return [
            hour
            for day in self.days(folder)
            if (since is None or day_folder(since) <= day) and (until is None or day <= day_folder(until))
            for hour in self._hours_of(folder, day)
            if (since is None or since < hour + HOUR) and (until is None or hour < until)
        ]

    def days(self, folder: str) -> list[str]:
        """Returns the names of the day folders in a folder, oldest first."""
        return [name for name in self.children(folder) if _DAY.fullmatch(name)]

    def newest_hour(self, folder: str) -> datetime | None:
        """Returns the newest hour that has a folder; None if no hour has a folder."""
        for day in reversed(self.days(folder)):
            if hours := list(self._hours_of(folder, day)):
                return hours[-1]
        return None

    def exists(self, path: str) -> bool:
        """Whether a folder or file exists."""
        return bool(self._system.exists(self._path(path)))

    def remove(self, folder: str) -> None:
        """Removes a folder with its contents, or a file. Does nothing if neither exists.

        Raises:
            FolderError: the folder could not be removed.
        """
        path = self._path(folder)
        with _as_folder_error(f"cannot delete {path}"):
            if not self._system.delete(path, True) and self._system.exists(path):
                raise FolderError(f"cannot delete {path}")

    def move(self, folder: str, to: str) -> None:
        """Moves a folder with its files to a path where nothing exists.

        Raises:
            FolderError: the target exists, or not every file arrived.
        """
        source, target = self._path(folder), self._path(to)
        with _as_folder_error(f"cannot move {source} to {target}"):
            if self._system.exists(target):
                # HDFS would move the source into the existing folder and report success.
                raise FolderError(f"cannot move {source} to {target}: the target exists")
            size = self.size(folder)
            self._make_folder(target.getParent())
            if not self._system.rename(source, target):
                raise FolderError(f"cannot move {source} to {target}")
            if self.size(to) != size:
                raise FolderError(f"not all files of {source} arrived in {target}")

    def replace(self, folder: str, by: str, aside: str) -> None:
        """Replaces one folder by another. If `by` does not exist, the folder is only moved aside.

        Args:
            folder: the folder to be replaced.
            by: the folder that replaces it.
            aside: the path to which the old folder is moved, and from which it is moved back if `by` cannot be moved.

        Raises:
            FolderError: a folder could not be moved.
        """
        was_there = self.exists(folder)
        if was_there:
            self.move(folder, to=aside)
        if self.exists(by):
            try:
                self.move(by, to=folder)
            except FolderError:
                if was_there and not self.exists(folder):
                    self.move(aside, to=folder)
                raise

    def size(self, folder: str) -> tuple[int, int]:
        """Returns the number of files below a folder and their bytes; both are 0 if the folder does not exist."""
        path = self._path(folder)
        with _as_folder_error(f"cannot list {path}"):
            if not self._system.exists(path):
                return 0, 0
            summary = self._system.getContentSummary(path)
            return int(summary.getFileCount()), int(summary.getLength())

    def read(self, file: str) -> str | None:
        """Returns the text of a small file; None if the file does not exist."""
        path = self._path(file)

        def text() -> str:
            stream = self._plain.open(path)
            try:
                return bytes(stream.readAllBytes()).decode(errors="replace")
            finally:
                stream.close()

        with _as_folder_error(f"cannot read {path}"):
            return self._none_if_missing(path, text)

    def write(self, file: str, text: str) -> None:
        """Writes a small file, and replaces an existing file.

        On the local file system a reader sees the old file or the new one, even if the writer is killed meanwhile. On
        other file systems a reader may see an incomplete file.

        Raises:
            FolderError: the file cannot be written.
        """
        path = self._path(file)
        with _as_folder_error(f"cannot write {path}"):
            if self._local:
                self._make_folder(path.getParent())
                replace_local_file(_local_path(path), text)
            else:
                self._write(path, text, overwrite=True)

    def write_new_file(self, file: str, text: str) -> None:
        """Writes a small file that does not exist yet. A reader sees either no file or the whole file.

        Raises:
            FolderError: the file cannot be written.
        """
        head, _, name = file.rpartition("/")
        hidden = f"{head}/.{name}-{uuid4().hex}".removeprefix("/")
        self.write(hidden, text)
        self.move(hidden, to=file)

    def create_exclusively(self, file: str, text: str) -> bool:
        """Creates a file that must not exist. If several processes try at the same time, exactly one succeeds.

        Returns:
            Whether this process created the file.

        Raises:
            FolderError: the file cannot be written.
        """
        path = self._path(file)
        with _as_folder_error(f"cannot write {path}"):
            self._make_folder(path.getParent())
            if self._local:
                # Hadoop checks and creates in two steps. The kernel does both in one step.
                local = _local_path(path)
                try:
                    local.touch(exist_ok=False)
                except FileExistsError:
                    return False
                except OSError as error:
                    raise FolderError(f"cannot write {path}: {error.strerror}") from error
                replace_local_file(local, text)
                return True
            try:
                self._write(path, text, overwrite=False)
            except Py4JJavaError as error:
                if self._system.exists(path):
                    return False
                raise error
        return True

    def modified_at(self, file: str) -> float | None:
        """Returns when a file was last written, in seconds by the file system's clock; None if it does not exist."""
        path = self._path(file)
        with _as_folder_error(f"cannot look at {path}"):
            return self._none_if_missing(
                path, lambda: int(self._plain.getFileStatus(path).getModificationTime()) / 1000
            )

    def _none_if_missing(self, path: Any, ask: Callable[[], T]) -> T | None:
        """Returns the result of `ask`, or None if the file does not exist or was removed meanwhile."""
        try:
            return ask()
        except Py4JJavaError:
            if not self._plain.exists(path):
                return None
        # Another process may have created the file after the first attempt.
        return ask()

    def _write(self, path: Any, text: str, *, overwrite: bool) -> None:
        stream = self._plain.create(path, overwrite)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _make_folder(self, path: Any) -> None:
        if not self._system.mkdirs(path):
            raise FolderError(f"cannot make {path}")

    def _path(self, folder: str) -> Any:
        return self._new_path(self.url(folder) if folder else self.root)

    def _hours_of(self, folder: str, day: str) -> Iterator[datetime]:
        numbers = sorted(int(found[1]) for name in self.children(f"{folder}/{day}") if (found := _HOUR.fullmatch(name)))
        for number in numbers:
            yield datetime.strptime(day, "day=%Y-%m-%d").replace(hour=number, tzinfo=UTC)


def _local_path(path: Any) -> Path:
    return Path(unquote(urlsplit(str(path.toUri())).path))


def replace_local_file(file: Path, text: str) -> None:
    """Writes a file of the local file system. A reader sees the old file or the new one.

    Raises:
        FolderError: the file cannot be written.
    """
    hidden = file.with_name(f".{file.name}-{uuid4().hex}")
    try:
        hidden.write_bytes(text.encode())
        hidden.replace(file)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise FolderError(f"cannot write {file}: {error.strerror}") from error


@contextmanager
def _as_folder_error(what: str) -> Iterator[None]:
    """Turns exceptions of the JVM into a `FolderError` whose text begins with `what`."""
    try:
        yield
    except Py4JJavaError as error:
        reason = str(error.java_exception.toString()).splitlines()[0]
        raise FolderError(f"{what}: {reason}") from error
