"""Computes the tables of some hours again, from the stored records. So a record that arrives hours late counts.

There is no watermark, because a watermark would silently drop a late record and make its hour wrong.
"""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from group_sidecar.spark.store import Store
from group_sidecar.spark.tables import RECORDS, TABLES, Table

_PARALLEL_TABLES = 3
"""How many tables are computed at the same time. Planning a table keeps the driver busy while the executors wait."""


def compute_tables(store: Store, hours: Collection[datetime]) -> None:
    """Computes all tables of these hours again, from the stored records."""
    if not hours:
        return
    records = store.records(hours)

    def compute(first: Table) -> None:
        store.replace(first.name, first.query(records, store.window), hours)
        for table in TABLES.values():
            if table.source == first.name:
                store.replace(table.name, table.query(store.read_hours(first.name, hours), store.window), hours)

    with ThreadPoolExecutor(_PARALLEL_TABLES) as pool:
        computations = [pool.submit(compute, table) for table in TABLES.values() if table.source == RECORDS]
    for each in computations:
        each.result()
