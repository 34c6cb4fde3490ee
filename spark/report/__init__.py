"""The fleet's report: a self-contained HTML file with charts, and the tables behind them.

Owns: what is shown of the tables, and how. It reads them through a function of their names and through the summaries,
and must not know where they lie.
"""

from group_sidecar.spark.report.report import write_report

__all__ = ["write_report"]
