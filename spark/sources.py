"""Where lines come from: sealed segments in a folder, or a Kafka topic; all at once or as a stream.

Owns: how Spark is asked for either, and which moment a line arrived at. Must not know: what a line says.

Each gives `value` STRING, a line, and `arrived_at` TIMESTAMP: when the segment was sealed, or the topic took the line.
Segments also give `file`, the segment as it was when it was listed: see `FILE`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

SEGMENTS = "*.jsonl"
"""Sealed segments. Spark itself passes over names that begin with a dot, as those of open ones do."""
FILE = "path STRING, size BIGINT, modified BIGINT"
"""A segment: its URL, its bytes, and when it was last written, in milliseconds since the epoch."""
MAX_FILE_AGE = "3650000d"
"""Spark passes over files that are so much older than the newest one that it has read, by their dates. A date may be
wrong by years, so this is ten thousand of them: no file is too old."""

_SEGMENT_OPTIONS = {"pathGlobFilter": SEGMENTS, "recursiveFileLookup": "true", "ignoreMissingFiles": "true"}
_KAFKA = re.compile(r"kafka://(?P<servers>[^/,\s:]+:\d+(?:,[^/,\s:]+:\d+)*)/(?P<topic>[A-Za-z0-9._-]{1,249})")


@dataclass(frozen=True, kw_only=True)
class KafkaTopic:
    """A topic with the journals of a fleet.

    Attributes:
        servers: HOST:PORT, several with commas.
        topic: its name.
        client: properties of Kafka's client, for instance security.protocol.
        fail_on_data_loss: whether a stream ends when records that it has not read are gone from the topic. Otherwise it
            goes on, and the sequence numbers say what is missing.
    """

    servers: str
    topic: str
    client: Mapping[str, str]
    fail_on_data_loss: bool = False

    @classmethod
    def from_url(
        cls, url: str, client: Mapping[str, str] | None = None, *, fail_on_data_loss: bool = False
    ) -> "KafkaTopic":
        """The topic that ``kafka://HOST:PORT[,HOST:PORT]/TOPIC`` means.

        Raises:
            ValueError: it is spelled otherwise.
        """
        found = _KAFKA.fullmatch(url)
        if found is None:
            raise ValueError(f"{url} is not kafka://HOST:PORT/TOPIC")
        return cls(
            servers=found["servers"], topic=found["topic"], client=client or {}, fail_on_data_loss=fail_on_data_loss
        )

    def options(self) -> dict[str, str]:
        """What Spark's Kafka source is told."""
        return {
            **{f"kafka.{name}": value for name, value in self.client.items()},
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
        }


def files(spark: SparkSession, path: str) -> DataFrame:
    """The lines of all sealed segments below a folder.

    Raises:
        AnalysisException: there is no such folder.
    """
    return _from_text(spark.read.options(**_SEGMENT_OPTIONS).text(path))


def files_stream(spark: SparkSession, path: str) -> DataFrame:
    """The same as a stream, to which segments come as they are sealed.

    Raises:
        AnalysisException: there is no such folder.
    """
    return _from_text(spark.readStream.options(**_SEGMENT_OPTIONS, maxFileAge=MAX_FILE_AGE).text(path))


def kafka(spark: SparkSession, topic: KafkaTopic) -> DataFrame:
    """The lines that a topic has now.

    Raises:
        AnalysisException: Spark lacks its Kafka connector.
    """
    return _from_kafka(spark.read.format("kafka").options(**topic.options()).load())


def kafka_stream(spark: SparkSession, topic: KafkaTopic) -> DataFrame:
    """The lines of a topic as a stream, from its beginning on.

    Raises:
        AnalysisException: Spark lacks its Kafka connector.
    """
    return _from_kafka(spark.readStream.format("kafka").options(**topic.options()).load())


def all_files(spark: SparkSession, path: str) -> DataFrame:
    """All files below a folder but hidden ones, whatever their names, as `FILE`. Nothing of their contents is read."""
    options = {name: value for name, value in _SEGMENT_OPTIONS.items() if name != "pathGlobFilter"}
    found = spark.read.format("binaryFile").options(**options).load(path)
    return found.select("path", F.col("length").alias("size"), F.unix_millis("modificationTime").alias("modified"))


def _from_text(lines: DataFrame) -> DataFrame:
    modified = F.col("_metadata.file_modification_time")
    # Spark escapes this URL, and has more slashes in it than Hadoop, which lists the files.
    escaped = F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))
    file = (
        F.regexp_replace(F.url_decode(escaped), "^file:/+", "file:/").alias("path"),
        F.col("_metadata.file_size").alias("size"),
        F.unix_millis(modified).alias("modified"),
    )
    return lines.select("value", modified.alias("arrived_at"), F.struct(*file).alias("file"))


def _from_kafka(messages: DataFrame) -> DataFrame:
    return messages.select(F.col("value").cast("string").alias("value"), F.col("timestamp").alias("arrived_at"))
