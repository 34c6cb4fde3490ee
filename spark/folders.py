"""Folders on whatever file system Spark has: of this machine, HDFS or an object store.

Owns: which folders there are, removing and moving them, small files; how an hour's folder is called. Must not know:
what is in them. Hadoop's FileSystem does it, in the JVM that Spark runs in anyway.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

HOUR = timedelta(hours=1)
_HOUR = re.compile(r"hour=(\d+)")
_DAY = re.compile(r"day=(\d{4}-\d{2}-\d{2})")


def day_folder(moment: datetime) -> str:
    """The folder of a day, as Spark's partitionBy names it; in UTC."""
    return f"day={moment.astimezone(UTC):%Y-%m-%d}"


def hour_folder(hour: datetime) -> str:
    """The folder of an hour, as Spark's partitionBy names it; in UTC."""
    return f"{day_folder(hour)}/hour={hour.astimezone(UTC).hour}"


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

    def remove(self, folder: str) -> None:
        """Removes a folder, with all that is in it; nothing happens where there is none."""
        self._system.delete(self._path(folder), True)

    def replace(self, folder: str, by: str) -> None:
        """Puts one folder in the place of another; where `by` is not there, the other is only removed."""
        self.remove(folder)
        if self._system.exists(self._path(by)):
            self._system.mkdirs(self._path(folder).getParent())
            self._system.rename(self._path(by), self._path(folder))

    def read(self, file: str) -> str | None:
        """The text of a small file; None where there is none."""
        if not self._system.exists(self._path(file)):
            return None
        stream = self._system.open(self._path(file))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, file: str, text: str) -> None:
        """Writes a small file, in place of the one that is there."""
        stream = self._system.create(self._path(file), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _path(self, folder: str) -> Any:
        return self._new_path(self.url(folder) if folder else self.root)

    def _hours_of(self, folder: str, day: str) -> Iterator[datetime]:
        numbers = sorted(int(found[1]) for name in self.below(f"{folder}/{day}") if (found := _HOUR.fullmatch(name)))
        for number in numbers:
            yield datetime.strptime(day, "day=%Y-%m-%d").replace(hour=number, tzinfo=UTC)
