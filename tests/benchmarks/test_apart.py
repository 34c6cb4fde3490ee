"""Sections in processes of their own."""

import os

import pytest

from benchmarks.apart import measured

PRETENDED = "tests.benchmarks.pretended"


def test_a_section_comes_from_another_process() -> None:
    section = measured(PRETENDED, True, note="here")
    assert (section.title, section.charts) == ("here", {"chart.svg": "True"})
    assert int(section.text) != os.getpid()


def test_what_is_raised_there_is_raised_here() -> None:
    with pytest.raises(ValueError, match="nothing to note"):
        measured(PRETENDED, False, note="")


def test_a_module_that_cannot_be_imported_is_told() -> None:
    with pytest.raises(ModuleNotFoundError):
        measured("benchmarks.nowhere", False)
