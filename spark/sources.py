"""Where lines come from: sealed segments in a folder, or a Kafka topic; all at once or as a stream.

Owns: how Spark is asked for either, and which moment a line arrived at. Must not know: what a line says.

Each gives `value` STRING, a line, and `arrived_at` TIMESTAMP: when the segment was sealed, or the topic took the line.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

SEGMENTS = "*.jsonl"
"""Sealed segments. Spark itself passes over names that begin with a dot, as those of open ones do."""
MAX_FILE_AGE = "30d"
"""A stream forgets which segments it has read, and passes over those it has not, once they are so much older than the
newest one. A sidecar keeps its own for a shorter time."""

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


def _from_text(lines: DataFrame) -> DataFrame:
    return lines.select("value", F.col("_metadata.file_modification_time").alias("arrived_at"))


def _from_kafka(messages: DataFrame) -> DataFrame:
    return messages.select(F.col("value").cast("string").alias("value"), F.col("timestamp").alias("arrived_at"))
