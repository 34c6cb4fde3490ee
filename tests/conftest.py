"""What holds for every test: Hypothesis' profile, and the option of the conformance scenarios."""

import gc

import pytest
from hypothesis import settings

# Helpers that assert on behalf of tests should show what differs, as tests do.
pytest.register_assert_rewrite("tests.conformance", "tests.kafka")

settings.register_profile("default", deadline=None, print_blob=True)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--through``."""
    parser.addoption(
        "--through",
        choices=("sidecar", "direct"),
        default="sidecar",
        help="what the second run of a conformance scenario goes through; 'direct' proves the scenarios themselves",
    )


def pytest_collection_finish() -> None:
    """What has been collected stays to the end: the garbage collector need not walk 11,000 tests time and again."""
    gc.collect()
    gc.freeze()
