"""The workflows of GitHub Actions are valid, pinned, and give no more rights than a job needs."""

import json
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from scripts.release import unpinned
from tests.go_tools import built
from tests.scripts.documents import ROOT, text_of

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
ACTIONLINT = "1.7.7"
WRITERS = {"pypi", "github", "image"}
"""The jobs that may write, all of them under the environment that a person approves."""


def content(workflow: Path) -> dict[Any, Any]:
    """The parsed text of a workflow."""
    parsed: dict[Any, Any] = yaml.safe_load(workflow.read_text("utf-8"))
    return parsed


def faults(workflow: dict[Any, Any]) -> list[str]:
    """What the published schema of workflows finds wrong. YAML 1.1 reads the key `on` as true."""
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/github-workflows.json").read_text("utf-8"))
    named = {"on" if key is True else key: value for key, value in workflow.items()}
    return [each.message for each in validator_for(schema)(schema).iter_errors(named)]


def actionlint() -> Path:
    """The linter of workflows, which comes as source code."""
    return built("actionlint", f"github.com/rhysd/actionlint/cmd/actionlint@v{ACTIONLINT}")


def test_workflows_follow_schema() -> None:
    """Each workflow follows the published schema, and one without a runner does not."""
    assert {each.name for each in WORKFLOWS} == {"release.yml", "test.yml"}
    for workflow in WORKFLOWS:
        assert faults(content(workflow)) == [], workflow.name
    broken = content(WORKFLOWS[0])
    del broken["jobs"]["sdist"]["runs-on"]
    assert faults(broken) != []


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    """actionlint accepts the expressions, the needs, the runners and the shell of all workflows."""
    program = actionlint()
    done = subprocess.run([program, *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text("utf-8").replace("needs: [sdist, wheels]", "needs: [sdist, whels]"))
    assert subprocess.run([program, broken], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.name)
def test_actions_are_pinned(workflow: Path) -> None:
    """Each action is named by its commit, with its version in a comment."""
    assert unpinned(workflow.read_text("utf-8")) == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.name)
def test_rights_are_given_by_job(workflow: Path) -> None:
    """A workflow has no rights of its own. Only jobs that publish may write, and a person approves these."""
    parsed = content(workflow)
    assert parsed["permissions"] == {}
    for name, job in parsed["jobs"].items():
        if "write" in job["permissions"].values():
            assert name in WRITERS
            assert job["environment"] == "release"
        assert job["timeout-minutes"] <= 120


def test_workflows_run_the_same_commands_as_people() -> None:
    """Changes and releases are tested by `make test`, and a release is checked against its tag before all else."""
    steps = [step.get("run", "") for step in content(FOLDER / "release.yml")["jobs"]["sdist"]["steps"]]
    commands = [each for each in steps if each]
    assert commands[0] == 'python scripts/release.py check "$GITHUB_REF_NAME"'
    assert commands[1] == "make test"
    assert "run: make test\n" in text_of(".github/workflows/test.yml")
