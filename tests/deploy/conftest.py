"""The Debian package, which is built once for all tests of a run."""

import shutil
import sys
from pathlib import Path

import pytest

from deploy.debian.__main__ import build

BOOKWORM = (3, 11)
"""The minor version of Python in Debian bookworm."""


@pytest.fixture(scope="session")
def debian_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the package, built from the checkout. Skips where the package does not fit Debian bookworm."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("missing: dpkg-deb")
    if sys.version_info[:2] != BOOKWORM:
        pytest.skip("the compiled modules are for this Python, and Debian bookworm has 3.11")
    return build(tmp_path_factory.mktemp("package"))
