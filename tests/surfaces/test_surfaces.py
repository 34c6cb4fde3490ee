"""Each public surface equals its golden file."""

from pathlib import Path
from tempfile import gettempdir

import pytest

from tests.surfaces.golden import SURFACES, golden_file, golden_text
from tests.surfaces.spark_tables import SCHEMAS

RENEW = "a public surface has changed; if that is meant: python -m tests.surfaces {name}"


@pytest.mark.parametrize("name", SURFACES)
def test_surface_unchanged(name: str) -> None:
    """The dump equals the golden file, line by line."""
    assert SURFACES[name]().splitlines() == golden_text(name).splitlines(), RENEW.format(name=name)


def test_golden_files_complete() -> None:
    """Each surface has a golden file, and each golden file belongs to a surface."""
    found = {file.name for file in golden_file(SCHEMAS).parent.iterdir()}
    assert found == {*SURFACES, SCHEMAS}


def test_golden_files_have_no_machine_paths() -> None:
    """No golden file contains the path of this checkout or of a temporary folder."""
    here = (str(Path(__file__).parents[2]), gettempdir())
    for name in (*SURFACES, SCHEMAS):
        assert [path for path in here if path in golden_text(name)] == [], name
