"""The fleet's report: one self-contained HTML file with charts, and the tables behind them.

The report reads each table through a function that takes the table's name.

- `report_writer`, `html_page`: the report from its tables, and its HTML
- `headline`, `lag_chapter`, `rebalances_chapter`, `sidecars_chapter`, `policies_chapter`, `other_chapters`:
  the chapters
- `content`, `collected_rows`, `html_table`: the parts of chapters
- `bar_chart`, `curve_chart`, `stack_chart`, `strip_chart`, `heat_map`, `scales`: the charts
- `formatting`: numbers, durations and times as text
"""

from group_sidecar.spark.report.report_writer import write_report

__all__ = ["write_report"]
