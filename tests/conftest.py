"""Settings for all tests: the Hypothesis profile, and the option of the conformance scenarios."""

import gc

import pytest
from hypothesis import settings

from tests.as_python import ROOMS, ROOT

# pytest shows the compared values of a failed assertion in these helpers too.
pytest.register_assert_rewrite("tests.conformance", "tests.kafka")

# Each run has new examples. The profiles `deep` (tests/codecs) and `conformance` have many more of them.
settings.register_profile("default", deadline=None, print_blob=True, max_examples=25)
settings.load_profile("default")


def pytest_configure() -> None:
    """Stops the run if a source is newer than its compiled module, because the tests would import the old code."""
    libraries = [library for room in ROOMS for library in room.rglob("*.so")]
    pairs = ((each, each.with_name(f"{each.name.partition('.')[0]}.py")) for each in libraries)
    if old := [
        str(py.relative_to(ROOT)) for so, py in pairs if py.exists() and py.stat().st_mtime > so.stat().st_mtime
    ]:
        pytest.exit(
            f"edited since it was compiled: {', '.join(old)}; `make lint` compiles, `make plain` does without", 4
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option ``--through``."""
    parser.addoption(
        "--through",
        choices=("sidecar", "direct"),
        default="sidecar",
        help="what the second run of a conformance scenario goes through; 'direct' proves the scenarios themselves",
    )


def pytest_collection_finish() -> None:
    """Freezes the collected tests. The garbage collector then does not visit 11,000 tests at each collection."""
    gc.collect()
    gc.freeze()
