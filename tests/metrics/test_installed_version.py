"""The version of the installed sidecar."""

import gc
from importlib.metadata import version

from group_sidecar.metrics.installed_version import DISTRIBUTION, installed_version


def test_version_is_looked_up_once() -> None:
    """The version is that of the installed package. A later call leaves no cycle."""
    assert installed_version() == version(DISTRIBUTION)
    gc.collect()
    gc.disable()
    try:
        installed_version()
        assert gc.collect() == 0
    finally:
        gc.enable()
