"""The version of the installed sidecar."""

from functools import cache
from importlib.metadata import version

DISTRIBUTION = "kafka-group-sidecar"


@cache  # Each lookup reads files, and leaves a cycle that may never be freed (proxy/runtime/garbage_collection.py).
def installed_version() -> str:
    """Returns the version of the sidecar."""
    return version(DISTRIBUTION)
