"""Writes the dashboards to this folder, or to the folder that the command line names."""

import json
import sys
from pathlib import Path

from deploy.grafana import fleet, group, sidecar
from deploy.grafana.panels import dashboard

FOLDER = Path(__file__).parent
DASHBOARDS = (fleet.DASHBOARD, group.DASHBOARD, sidecar.DASHBOARD)


def main(folder: Path) -> None:
    """Writes one file for each dashboard."""
    for one in DASHBOARDS:
        (folder / f"{one.name}.json").write_text(json.dumps(dashboard(one), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
