"""Replays the kept inputs and the seeds of each target, without atheris."""

import json

import pytest

from tests.as_python import run_as_python
from tests.fuzzing.all_targets import TARGETS
from tests.fuzzing.target import CORPUS, Target

MAX_CORPUS_BYTES = 300_000
COMPARED = {name: target for name, target in TARGETS.items() if target.is_compiled}
_OUTCOMES = """
import json
from tests.fuzzing.all_targets import TARGETS
targets = [TARGETS[name] for name in sys.argv[2:]]
print(json.dumps({each.name: [each.outcome(data) for data in each.inputs()] for each in targets}))
"""


def name_of(target: Target) -> str:
    """Returns the test id of a target."""
    return target.name


@pytest.mark.parametrize("target", TARGETS.values(), ids=name_of)
def test_inputs_hold(target: Target) -> None:
    """No kept input and no seed violates an invariant."""
    inputs = target.inputs()
    assert inputs
    for data in inputs:
        assert len(data) <= target.max_bytes, f"the input is longer than the target's {target.max_bytes} bytes"
        target.outcome(data)


def test_sources_and_compiled_modules_agree() -> None:
    """The Python sources and the installed modules, which may be compiled, give the same result for each input."""
    other = run_as_python(_OUTCOMES, *COMPARED)
    assert other.returncode == 0, other.stderr
    outcomes = json.loads(other.stdout)
    assert {*outcomes} == {*COMPARED}
    for name, target in COMPARED.items():
        assert outcomes[name] == [target.outcome(data) for data in target.inputs()], name


def test_corpus_is_small() -> None:
    """Each folder of the kept corpus belongs to a target, and all inputs together are small."""
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} <= set(TARGETS)
    assert sum(file.stat().st_size for file in CORPUS.rglob("*") if file.is_file()) < MAX_CORPUS_BYTES
