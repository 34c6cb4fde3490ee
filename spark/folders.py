"""Folders on whatever file system Spark has: of this machine, HDFS or an object store.

Owns: which folders there are, removing and moving them, small files; how an hour's folder is called. Must not know:
what is in them. Hadoop's FileSystem does it, in the JVM that Spark runs in anyway.

Hadoop reports some failures by an exception and others by returning false. Both become a `FolderError` here.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
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
    """The folder of a day, as Spark's partitionBy names it; in UTC."""
    return f"day={moment.astimezone(UTC):%Y-%m-%d}"


def hour_folder(hour: datetime) -> str:
    """The folder of an hour, as Spark's partitionBy names it; in UTC."""
    return f"{day_folder(hour)}/hour={hour.astimezone(UTC).hour}"


def hour_of_folder(folder: str) -> datetime:
    """The hour whose folder a path ends in."""
    day, hour = folder.rsplit("/", 2)[-2:]
    return datetime.strptime(f"{day} {hour}", "day=%Y-%m-%d hour=%H").replace(tzinfo=UTC)


class FolderError(Exception):
    """The file system did not do what it was asked to do; the text names the operation and the path, in one line."""


class Folders:
    """The folders below a root, by their paths relative to it.

    Args:
        root: path or URL; a path is one of Spark's default file system.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._new_path: Any = jvm.org.apache.hadoop.fs.Path
        configuration: Any = spark._jsc.hadoopConfiguration()
        path = self._new_path(root)
        self._system: Any = path.getFileSystem(configuration)
        self.root = str(self._system.makeQualified(path).toString())
        self._local = self.root.startswith("file:")
        # Small files are written over while others read them: no checksums in files of their own.
        self._plain: Any = self._system.getRawFileSystem() if self._local else self._system

    def url(self, folder: str) -> str:
        """The whole URL of a folder."""
        return f"{self.root}/{folder}"

    def below(self, folder: str) -> list[str]:
        """Names of what is in a folder, sorted; none where there is no such folder. Hidden ones are left out."""
        if not self._system.exists(self._path(folder)):
            return []
        names = (str(status.getPath().getName()) for status in self._system.listStatus(self._path(folder)))
        return sorted(name for name in names if name[0] not in "._")

    def matching(self, pattern: str) -> list[str]:
        """Paths that a glob matches, relative to the root."""
        found = self._system.globStatus(self._path(pattern)) or ()
        return [str(status.getPath().toString()).removeprefix(f"{self.root}/") for status in found]

    def hours(self, folder: str, since: datetime | None = None, until: datetime | None = None) -> list[datetime]:
        """The hours that a folder has, oldest first; those that have a part between `since` and `until`."""
        return [
            hour
            for day in self.days(folder)
            if (since is None or day_folder(since) <= day) and (until is None or day <= day_folder(until))
            for hour in self._hours_of(folder, day)
            if (since is None or since < hour + HOUR) and (until is None or hour < until)
        ]

    def days(self, folder: str) -> list[str]:
        """Names of the folders of days in a folder, oldest first."""
        return [name for name in self.below(folder) if _DAY.fullmatch(name)]

    def newest_hour(self, folder: str) -> datetime | None:
        """The newest hour that a folder has; None if it has none."""
        for day in reversed(self.days(folder)):
            if hours := list(self._hours_of(folder, day)):
                return hours[-1]
        return None

    def exists(self, path: str) -> bool:
        """Whether there is such a folder or file."""
        return bool(self._system.exists(self._path(path)))

    def remove(self, folder: str) -> None:
        """Removes a folder or file, with all that is in it; nothing happens where there is none.

        Raises:
            FolderError: the folder is still there.
        """
        path = self._path(folder)
        with _failing(f"cannot delete {path}"):
            if not self._system.delete(path, True) and self._system.exists(path):
                raise FolderError(f"cannot delete {path}")

    def move(self, folder: str, to: str) -> None:
        """Moves a folder with its files to a place where nothing is.

        Raises:
            FolderError: something is there, or not every file arrived.
        """
        source, target = self._path(folder), self._path(to)
        with _failing(f"cannot move {source} to {target}"):
            if self._system.exists(target):
                # HDFS would move the source into that folder, and call it a success.
                raise FolderError(f"cannot move {source} to {target}: the target exists")
            size = self.size(folder)
            self._make_folder(target.getParent())
            if not self._system.rename(source, target):
                raise FolderError(f"cannot move {source} to {target}")
            if self.size(to) != size:
                raise FolderError(f"not all files of {source} arrived in {target}")

    def replace(self, folder: str, by: str, aside: str) -> None:
        """Puts one folder in the place of another; where `by` is not there, the other is only moved aside.

        Args:
            folder: the place.
            by: what comes there.
            aside: where the folder that was there is moved to; it is moved back when `by` cannot be moved.

        Raises:
            FolderError: not every file arrived.
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
        """The number of files below a folder, and of their bytes; both 0 where there is no such folder."""
        path = self._path(folder)
        with _failing(f"cannot list {path}"):
            if not self._system.exists(path):
                return 0, 0
            summary = self._system.getContentSummary(path)
            return int(summary.getFileCount()), int(summary.getLength())

    def read(self, file: str) -> str | None:
        """The text of a small file; None where there is none."""
        path = self._path(file)

        def text() -> str:
            stream = self._plain.open(path)
            try:
                return bytes(stream.readAllBytes()).decode(errors="replace")
            finally:
                stream.close()

        with _failing(f"cannot read {path}"):
            return self._unless_gone(path, text)

    def write(self, file: str, text: str) -> None:
        """Writes a small file, in place of the one that is there. A reader may see it half written.

        Raises:
            FolderError: it cannot be written.
        """
        path = self._path(file)
        with _failing(f"cannot write {path}"):
            self._write(path, text, overwrite=True)

    def write_whole(self, file: str, text: str) -> None:
        """Writes a small file that is not there yet. A reader sees all of it or nothing.

        Raises:
            FolderError: it cannot be written.
        """
        head, _, name = file.rpartition("/")
        hidden = f"{head}/.{name}-{uuid4().hex}".removeprefix("/")
        self.write(hidden, text)
        self.move(hidden, to=file)

    def claim(self, file: str, text: str) -> bool:
        """Makes a file that nobody else has made: of several that try at once, one succeeds.

        Returns:
            Whether this one did.
        """
        path = self._path(file)
        with _failing(f"cannot write {path}"):
            self._make_folder(path.getParent())
            if self._local:
                # Hadoop looks first and makes the file then; the kernel does both at once.
                try:
                    os.close(os.open(unquote(urlsplit(str(path.toUri())).path), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                except FileExistsError:
                    return False
                except OSError as error:
                    raise FolderError(f"cannot write {path}: {error.strerror}") from error
                self._write(path, text, overwrite=True)
                return True
            try:
                self._write(path, text, overwrite=False)
            except Py4JJavaError as error:
                if self._system.exists(path):
                    return False
                raise error
        return True

    def modified_at(self, file: str) -> float | None:
        """When a file was last written by the file system's own clock, in seconds; None where there is none."""
        path = self._path(file)
        with _failing(f"cannot look at {path}"):
            return self._unless_gone(path, lambda: int(self._plain.getFileStatus(path).getModificationTime()) / 1000)

    def _unless_gone(self, path: Any, ask: Callable[[], T]) -> T | None:
        """Returns what `ask` does; None where there is no such file, or no longer."""
        try:
            return ask()
        except Py4JJavaError:
            if self._plain.exists(path):
                raise
            return None

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
        numbers = sorted(int(found[1]) for name in self.below(f"{folder}/{day}") if (found := _HOUR.fullmatch(name)))
        for number in numbers:
            yield datetime.strptime(day, "day=%Y-%m-%d").replace(hour=number, tzinfo=UTC)


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Exceptions of the JVM become a `FolderError` that begins with `what`."""
    try:
        yield
    except Py4JJavaError as error:
        reason = str(error.java_exception.toString()).splitlines()[0]
        raise FolderError(f"{what}: {reason}") from error
