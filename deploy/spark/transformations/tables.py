"""What is asked of the records, or of another table: a table each."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark.tables import TABLES, Table


def define(table: Table) -> None:
    """A materialized view of that name."""

    @dp.materialized_view(name=table.name, comment=table.doc)
    def asked() -> DataFrame:
        spark = SparkSession.active()
        return table.ask(spark.read.table(table.source), str(spark.conf.get("spark.group_sidecar.window")))


for each in TABLES.values():
    define(each)
