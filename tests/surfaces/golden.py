"""The list of surfaces, and the paths of their golden files."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.surfaces.admin_api import admin_api
from tests.surfaces.admin_replies import admin_replies, admin_statuses
from tests.surfaces.check_config import check_config
from tests.surfaces.command_line import command_line, fleet_faults, usage_faults
from tests.surfaces.configuration import configuration, reloadable_keys
from tests.surfaces.groups_output import groups_output
from tests.surfaces.metrics import label_values, metric_families
from tests.surfaces.records import records
from tests.surfaces.spark_tables import spark_tables

SURFACES: Mapping[str, Callable[[], str]] = {
    "metric_families.json": metric_families,
    "metric_label_values.txt": label_values,
    "configuration.json": configuration,
    "reloadable_keys.txt": reloadable_keys,
    "check_config.txt": check_config,
    "command_line.json": command_line,
    "usage_faults.txt": usage_faults,
    "fleet_faults.txt": fleet_faults,
    "groups_output.txt": groups_output,
    "records.json": records,
    "admin_api.json": admin_api,
    "admin_replies.txt": admin_replies,
    "admin_statuses.txt": admin_statuses,
    "spark_tables.json": spark_tables,
}
"""The function that dumps each surface, by the name of its golden file."""


def golden_file(name: str) -> Path:
    """Returns the path of the golden file with this name. The file may not exist yet."""
    return Path(__file__).parent / "golden" / name


def golden_text(name: str) -> str:
    """Returns the golden file's text."""
    return golden_file(name).read_text("utf-8")
