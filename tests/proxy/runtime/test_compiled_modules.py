"""`uncompiled_modules` reports the modules that run as Python. The tests replace the import system's results."""

from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec

import pytest

from group_sidecar.proxy.runtime import compiled_modules
from group_sidecar.proxy.runtime.compiled_modules import LIBRARIES, uncompiled_modules
from tests.as_python import ROOT


def test_names_modules_without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is named if it is a Python source, or if its Cython source was not compiled."""
    fast_path, session, _ = LIBRARIES
    found = {fast_path: None, session: ModuleSpec(session, None, origin="/lib/session.py")}
    library = ModuleSpec("any", None, origin=f"/lib/any{EXTENSION_SUFFIXES[0]}")
    monkeypatch.setattr(compiled_modules, "find_spec", lambda name: found.get(name, library))
    assert uncompiled_modules() == [fast_path, session]


def test_each_module_has_a_source() -> None:
    """Each of the modules exists, as Python or as Cython."""
    sources = [ROOT / name.replace(".", "/").removeprefix("group_sidecar/") for name in LIBRARIES]
    assert all(each.with_suffix(".py").exists() or each.with_suffix(".pyx").exists() for each in sources)
