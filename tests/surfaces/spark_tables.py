"""The surface of the fleet's tables and summaries: their declarations, and the schemas that Spark derives."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from group_sidecar.spark.line_parsing import Fault, record_ddl
from group_sidecar.spark.spark_session import session
from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.tables import TABLES
from group_sidecar.spark.textfile import NAMES, PREFIX
from tests.surfaces.texts import as_json

SCHEMAS = "spark_schemas.txt"
"""The name of the golden file of the schemas. tests/spark compares it, because Spark already runs there."""
WIDTH = "5 minutes"
QUARANTINE = "fault STRING, sidecar STRING, line STRING, arrived_at TIMESTAMP"
"""The columns of the quarantine that a summary reads, as in `Store.read`."""


def spark_tables() -> str:
    """Returns the declarations of tables and summaries: names, keys, sources, order, and the columns in a terminal."""
    return as_json(
        {
            "records": record_ddl().split(", "),
            "faults": [fault.value for fault in Fault],
            "tables": {
                name: {"name": table.name, "keys": table.keys, "source": table.source} for name, table in TABLES.items()
            },
            "summaries": {
                name: {
                    "name": each.name,
                    "largest": each.first_by,
                    "then": each.then_by,
                    "terminal": each.terminal_columns,
                }
                for name, each in SUMMARIES.items()
            },
            "textfile": sorted(f"{PREFIX}{name}" for name in NAMES),
        }
    )


def schemas(spark: SparkSession) -> str:
    """Returns the ordered columns of all tables and summaries, with their types."""
    records = _empty(spark, f"{record_ddl()}, arrived_at TIMESTAMP")
    frames = {name: table.compute(records, WIDTH) for name, table in TABLES.items()}
    frames["quarantine"] = _empty(spark, QUARANTINE)
    lines = [f"table {name}: {_columns(frame)}" for name, frame in frames.items()]
    lines += [f"summary {name}: {_columns(each.compute(frames.__getitem__))}" for name, each in SUMMARIES.items()]
    return "\n".join(lines) + "\n"


def schemas_of_new_session() -> str:
    """Returns the same as `schemas`, with its own Spark session."""
    spark = session(small=True)
    try:
        return schemas(spark)
    finally:
        spark.stop()


def _empty(spark: SparkSession, ddl: str) -> DataFrame:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return spark.createDataFrame([], schema)


def _columns(frame: DataFrame) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)
