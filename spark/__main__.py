"""``python -m group_sidecar.spark``: the fleet job, where there is PySpark.

Exit status 3: PySpark is missing, and standard error says in one line how to get it. Else that of `fleet.main`.
"""

import sys

from group_sidecar.spark.requirements import pyspark_missing

if __name__ == "__main__":
    if missing := pyspark_missing():
        print(missing, file=sys.stderr)
        sys.exit(3)
    from group_sidecar.spark.fleet import main

    sys.exit(main())
