"""Fixtures for settings that come from a file or the environment."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from group_sidecar.proxy.config.model import ENVIRONMENT


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the sidecar's variables from the environment."""
    for name in list(os.environ):
        if name.startswith(ENVIRONMENT):
            monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes sidecar.yaml into an empty working directory."""
    monkeypatch.chdir(tmp_path)

    def write_file(settings: object) -> Path:
        file = Path("sidecar.yaml")
        file.write_text(settings if isinstance(settings, str) else yaml.safe_dump(settings))
        return file

    return write_file
