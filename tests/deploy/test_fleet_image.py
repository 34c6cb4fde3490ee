"""The image of the fleet pipeline, built from the Dockerfile, and run on a journal with a read-only root."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.images import Container, build, root_of, unavailable
from tests.spark.segment_files import seal, segments_in_order

pytestmark = [
    pytest.mark.long,  # It downloads PySpark and Java, which are half a gigabyte.
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
    pytest.mark.timeout(3600),
]
SCRATCH = {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]}
"""Spark writes its temporary files here."""


def test_job_makes_tables(tmp_path: Path) -> None:
    """The job reads a journal, and writes its tables to the folder of its data. Nothing else is writable but /tmp."""
    image = build("spark", {"OPTIMIZE": "1"})
    for name, lines in segments_in_order().items():
        seal(tmp_path / "journals" / name, name, lines)
    arguments = ["run", "--input", "/etc/group-sidecar", "--output", "/var/lib/group-sidecar/tables"]
    with root_of(image) as root:
        container = Container(
            tmp_path / "bundle",
            image,
            root,
            settings=tmp_path / "journals",
            data=tmp_path / "data",
            command=arguments,
            more=[SCRATCH],
        )
        done = subprocess.run(container.run, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data" / "tables" / "groups").is_dir()
