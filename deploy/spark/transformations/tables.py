"""Defines a materialized view for each table, from the records or from another table."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark.tables import TABLES, Table


def define(table: Table) -> None:
    """Defines a materialized view with the name of a table."""

    @dp.materialized_view(name=table.name, comment=table.doc)
    def asked() -> DataFrame:
        spark = SparkSession.active()
        return table.query(spark.read.table(table.source), str(spark.conf.get("spark.group_sidecar.window")))


for each in TABLES.values():
    define(each)
