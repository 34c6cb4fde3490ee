"""`python -m tests.surfaces [--spark] [NAME ...]` rewrites all golden files, or only the named ones.

`--spark` also writes the schemas of the fleet's tables. For that, it starts Spark.
"""

import argparse

from tests.surfaces.golden import SURFACES, golden_file
from tests.surfaces.spark_tables import SCHEMAS, schemas_of_new_session


def main() -> None:
    """Writes the files and prints their names."""
    parser = argparse.ArgumentParser(prog="python -m tests.surfaces")
    parser.add_argument("--spark", action="store_true", help="also the schemas of the fleet's tables")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SURFACES)}; by default all of them")
    given = parser.parse_args()
    if unknown := set(given.names) - SURFACES.keys():
        parser.error(f"no such surface: {', '.join(sorted(unknown))}")
    made = {name: SURFACES[name] for name in given.names or SURFACES}
    if given.spark:
        made[SCHEMAS] = schemas_of_new_session
    for name, dump in made.items():
        file = golden_file(name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(dump(), "utf-8")
        print(file)


if __name__ == "__main__":
    main()
