"""``python -m group_sidecar.spark``: runs the fleet job if PySpark is installed.

The exit status is 3 if PySpark is missing. Standard error then explains in one line how to install PySpark. Otherwise
the exit status is that of `cli.main`.
"""

import sys

from group_sidecar.spark.environment import pyspark_missing

if __name__ == "__main__":
    if missing := pyspark_missing():
        print(missing, file=sys.stderr)
        sys.exit(3)
    from group_sidecar.spark.cli import main

    sys.exit(main())
