"""Checks whether this machine has what Spark needs.

This module must not import PySpark, because it reports whether PySpark is missing.
"""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

JAVA_VERSION = 17
"""The oldest Java that Spark 4 runs on."""

_GET_JAVA = f"Spark needs Java {JAVA_VERSION} or later: apt-get install openjdk-17-jre-headless"
_GET_PYSPARK = "Spark is not installed: in a checkout, pip install '.[spark]'"


def pyspark_missing() -> str | None:
    """Returns one line that explains how to install PySpark; None if it is installed."""
    return _GET_PYSPARK if find_spec("pyspark") is None else None


def java_missing() -> str | None:
    """Returns one line that explains which Java is needed; None if the Java that Spark would start is recent enough."""
    java = java_command()
    if java is None:
        home = os.environ.get("JAVA_HOME")
        return f"{_GET_JAVA} (JAVA_HOME is {home}, where there is none)" if home else _GET_JAVA
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    # Java 8 reports its version as 1.8.
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None:
        return f"{_GET_JAVA} ({java} does not say which version it is)"
    if int(version[1]) < JAVA_VERSION:
        return f"{_GET_JAVA} ({java} is Java {version[1]})"
    return None


def java_command() -> str | None:
    """Returns the path of the Java that Spark would start; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin")) if home else None)
