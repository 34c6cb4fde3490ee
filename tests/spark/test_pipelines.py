"""The files in deploy/spark: the Declarative Pipelines, with Spark's own check, and the submission of the job."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from group_sidecar.spark.command_arguments import arguments

FOLDER = Path(__file__).parents[2] / "deploy" / "spark"
PROGRAM = Path(sys.executable).with_name("spark-pipelines")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project with temporary folders."""
    shutil.copytree(FOLDER, tmp_path / "project")
    specification = tmp_path / "project" / "spark-pipeline.yml"
    content = yaml.safe_load(specification.read_text())
    places = {"storage": content, "spark.sql.warehouse.dir": content["configuration"]}
    for name, where in {**places, "spark.group_sidecar.input": content["configuration"]}.items():
        folder = tmp_path / name
        folder.mkdir()
        where[name] = folder.as_uri()
    specification.write_text(yaml.safe_dump(content))
    return specification


def checked(specification: Path) -> subprocess.CompletedProcess[str]:
    # Without SPARK_TESTING, the server uses a fixed port.
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_TESTING": "1"}
    return subprocess.run(
        [PROGRAM, "dry-run", "--spec", specification],
        cwd=specification.parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_table_can_be_planned(project: Path) -> None:
    """Spark's dry run of the declarative pipeline completes."""
    done = checked(project)
    assert done.returncode == 0, done.stderr
    assert "Run is COMPLETED." in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("script", "environment"),
    [
        ("yarn.sh", {"ENVIRONMENT": "env.tar.gz"}),
        ("kubernetes.sh", {"CLUSTER": "https://127.0.0.1:6443", "IMAGE": "i"}),
    ],
)
def test_submit_scripts_use_known_options(
    script: str, environment: dict[str, str], tmp_path: Path, known_options: set[str]
) -> None:
    """The submit scripts pass only options that spark-submit and the job accept."""
    fake = tmp_path / "spark-submit"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    words = subprocess.run(
        [FOLDER / script, "hdfs:///journals", "hdfs:///tables"],
        env={**os.environ, **environment, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    application = next(index for index, word in enumerate(words) if word.endswith(("cli.py", "fleet.py")))
    options = dict(zip(words[:application:2], words[1:application:2], strict=True))
    assert set(options) <= known_options
    assert options["--deploy-mode"] == "cluster"
    chosen = arguments(words[application + 1 :])
    assert (chosen.input, chosen.output, chosen.stream) == ("hdfs:///journals", "hdfs:///tables", True)


@pytest.fixture(scope="module")
def known_options() -> set[str]:
    """Returns the options of spark-submit, from its help."""
    result = subprocess.run(
        [PROGRAM.with_name("spark-submit"), "--help"],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(re.findall(r"^ +(--[a-z-]+)", result.stderr + result.stdout, re.MULTILINE))
