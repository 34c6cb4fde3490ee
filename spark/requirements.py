"""What Spark needs on this machine, and whether it is there.

Owns: the check and its one line of advice. Must not import PySpark: it says when that is missing.
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
_GET_PYSPARK = "Spark is not installed: pip install 'kafka-group-sidecar[spark]'"


def pyspark_missing() -> str | None:
    """One line on how to get PySpark; None if it is there."""
    return _GET_PYSPARK if find_spec("pyspark") is None else None


def java_missing() -> str | None:
    """One line on which Java is needed and how to get it; None if the Java that Spark would start will do."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if java is None:
        return f"{_GET_JAVA} (JAVA_HOME is {home}, where there is none)" if home else _GET_JAVA
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    # Java 8 called itself 1.8.
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None:
        return f"{_GET_JAVA} ({java} does not say which version it is)"
    if int(version[1]) < JAVA_VERSION:
        return f"{_GET_JAVA} ({java} is Java {version[1]})"
    return None
