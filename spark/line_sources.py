"""Reads lines from sealed segments in a folder or from a Kafka topic, all at once or as a stream.

A frame of lines has two columns: `value` STRING is a line, and `arrived_at` TIMESTAMP is the time when the segment was
sealed or when the topic received the line. If the lines come from segments, the frame also has `file`, the state of the
segment when it was listed (`FILE`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

SEGMENTS = "*.jsonl"
"""The glob of sealed segments. Spark ignores names that begin with a dot, such as those of open segments."""
FILE = "path STRING, size BIGINT, modified BIGINT"
"""A segment: its URL, its size in bytes, and when it was last written, in milliseconds since the epoch."""
MAX_FILE_AGE = "3650000d"
"""Spark ignores files that are older than the newest file by more than this. The date of a file may be wrong by years,
so the value is ten thousand years."""

MAX_READ_BYTES = 32 << 20
"""Spark skips longer lines of segments without keeping them in memory. To read a line takes several times its size, and
by default Spark has 1 GiB of memory (`spark.driver.memory`)."""

_MAX_NAMED = 3
"""Maximum number of files or sidecars that a warning names."""
_LINE_LIMIT = "mapreduce.input.linerecordreader.line.maxlength"
"""The setting of Hadoop's line reader, in bytes."""
_SEGMENT_OPTIONS = {"pathGlobFilter": SEGMENTS, "recursiveFileLookup": "true", "ignoreMissingFiles": "true"}
_KAFKA = re.compile(r"kafka://(?P<servers>[^/,\s:]+:\d+(?:,[^/,\s:]+:\d+)*)/(?P<topic>[A-Za-z0-9._-]{1,249})")


@dataclass(frozen=True, kw_only=True)
class KafkaTopic:
    """A topic with the journals of a fleet.

    Attributes:
        servers: HOST:PORT, or several of them separated by commas.
        topic: the name of the topic.
        client: properties of the Kafka client, for instance security.protocol.
        fail_on_data_loss: whether a stream ends when unread records have been deleted from the topic. Otherwise the
            stream continues, and gaps in the sequence numbers show how many records are missing.
    """

    servers: str
    topic: str
    client: Mapping[str, str]
    fail_on_data_loss: bool = False

    @classmethod
    def from_url(
        cls, url: str, client: Mapping[str, str] | None = None, *, fail_on_data_loss: bool = False
    ) -> "KafkaTopic":
        """Parses the URL ``kafka://HOST:PORT[,HOST:PORT]/TOPIC``.

        Raises:
            ValueError: the URL has another form.
        """
        found = _KAFKA.fullmatch(url)
        if found is None:
            raise ValueError(f"{url} is not kafka://HOST:PORT/TOPIC")
        return cls(
            servers=found["servers"], topic=found["topic"], client=client or {}, fail_on_data_loss=fail_on_data_loss
        )

    def options(self) -> dict[str, str]:
        """Returns the options of Spark's Kafka source."""
        return {
            **{f"kafka.{name}": value for name, value in self.client.items()},
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
        }


def files(spark: SparkSession, path: str) -> DataFrame:
    """Returns the lines of all sealed segments below a folder.

    Raises:
        AnalysisException: the folder does not exist.
    """
    options = {**_SEGMENT_OPTIONS, _LINE_LIMIT: str(MAX_READ_BYTES)}
    return _from_text(spark.read.options(**options).text(path))


def files_stream(spark: SparkSession, path: str) -> DataFrame:
    """Returns the lines of a folder as a stream, which grows as segments are sealed.

    Raises:
        AnalysisException: the folder does not exist.
    """
    options = {**_SEGMENT_OPTIONS, _LINE_LIMIT: str(MAX_READ_BYTES)}
    return _from_text(spark.readStream.options(**options, maxFileAge=MAX_FILE_AGE).text(path))


def kafka(spark: SparkSession, topic: KafkaTopic) -> DataFrame:
    """Returns the lines that a topic contains now.

    Raises:
        AnalysisException: Spark lacks its Kafka connector.
    """
    return _from_kafka(spark.read.format("kafka").options(**topic.options()).load())


def kafka_stream(spark: SparkSession, topic: KafkaTopic) -> DataFrame:
    """Returns the lines of a topic as a stream, from the beginning of the topic.

    Raises:
        AnalysisException: Spark lacks its Kafka connector.
    """
    return _from_kafka(spark.readStream.format("kafka").options(**topic.options()).load())


def all_files(spark: SparkSession, path: str) -> DataFrame:
    """Returns all files below a folder except hidden files, as `FILE`, without reading the files."""
    options = {name: value for name, value in _SEGMENT_OPTIONS.items() if name != "pathGlobFilter"}
    found = spark.read.format("binaryFile").options(**options).load(path)
    return found.select("path", F.col("length").alias("size"), F.unix_millis("modificationTime").alias("modified"))


def list_names(names: Sequence[str]) -> str:
    """Returns some names, and how many others there are."""
    return ", ".join(names[:_MAX_NAMED]) + (f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else "")


def file_list(paths: Sequence[str]) -> str:
    """Returns how many files there are, and the names of some of them."""
    return f"{'1 file' if len(paths) == 1 else f'{len(paths)} files'} ({list_names(paths)})"


def _from_text(lines: DataFrame) -> DataFrame:
    modified = F.col("_metadata.file_modification_time")
    # Spark escapes this URL and puts more slashes into it than Hadoop, which lists the files.
    escaped = F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))
    file = (
        F.regexp_replace(F.url_decode(escaped), "^file:/+", "file:/").alias("path"),
        F.col("_metadata.file_size").alias("size"),
        F.unix_millis(modified).alias("modified"),
    )
    return lines.select("value", modified.alias("arrived_at"), F.struct(*file).alias("file"))


def _from_kafka(messages: DataFrame) -> DataFrame:
    return messages.select(F.col("value").cast("string").alias("value"), F.col("timestamp").alias("arrived_at"))
