"""Sections that are measured in separate processes."""

import os

import pytest

from benchmarks.section_process import measured_in_subprocess

PRETENDED = "tests.benchmarks.pretended"


def test_section_is_measured_in_subprocess() -> None:
    """A section is measured in another process and returned with its charts."""
    section = measured_in_subprocess(PRETENDED, True, note="here")
    assert (section.title, section.charts) == ("here", {"chart.svg": "True"})
    assert int(section.text) != os.getpid()


def test_subprocess_error_is_raised() -> None:
    """An exception in the measuring process is raised in the caller."""
    with pytest.raises(ValueError, match="nothing to note"):
        measured_in_subprocess(PRETENDED, False, note="")


def test_import_error_is_raised() -> None:
    """A benchmark module that cannot be imported raises ModuleNotFoundError."""
    with pytest.raises(ModuleNotFoundError):
        measured_in_subprocess("benchmarks.nowhere", False)
