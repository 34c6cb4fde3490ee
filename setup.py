"""What is compiled where the project is installed; all else of that is in pyproject.toml.

Two kinds: what is written out in Cython (`*.pyx`); and by mypyc, from their one source, the modules that pyproject.toml
names.

Without a C compiler all is installed as Python, does the same, and costs more.
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent
BUILDS = frozenset({"bdist_wheel", "build_ext", "editable_wheel"})
"""Commands of setuptools that compile; others only ask."""
TREE = Path("build", "compiling")
"""Where the rooms stand under the names by which they are imported: mypyc names modules by their places."""
SHARED = "group_sidecar.codecs.native"
"""What all modules are compiled into, but for mypyc's suffix. In a package, so that an editable install finds it."""
OPTIONS = (
    "--config-file=",
    "--cache-dir=build/mypy-compiling",
    "--explicit-package-bases",
    "--ignore-missing-imports",
    "--python-version=3.11",
)
"""Of mypy, which types are taken from; whether they are right is not asked here."""


def written_out() -> list[Extension]:
    """What has its own source."""
    return [
        Extension(
            f"group_sidecar.{room}.{name}",
            [f"{room}/{name}.pyx"],
            depends=[*map(str, Path(room).glob("*.h"))],
            extra_compile_args=["-O2", "-g0"],
        )
        for room, name in sorted((source.parent.name, source.stem) for source in HERE.glob("*/*.pyx"))
    ]


def compiled() -> list[Extension]:
    """The modules that pyproject.toml names. Their C source is written now."""
    from mypyc.build import mypycify

    project = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]
    for name in project["setuptools"]["package-dir"]:
        link = TREE.joinpath(*name.split("."))
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(HERE / link.name, target_is_directory=True)
    files = [str(TREE / "group_sidecar" / file) for file in project["group-sidecar"]["compiled"]]
    os.environ["MYPYPATH"] = str(TREE)
    return mypycify(
        [*OPTIONS, *files], separate=[(files, SHARED)], opt_level="2", debug_level="0", target_dir="build/compiled"
    )


def extensions() -> list[Extension]:
    """Each is left out where it cannot be compiled."""
    if not BUILDS.intersection(sys.argv):
        return written_out()  # Whose sources belong to a distribution.
    for old in HERE.glob("*/*.so"):  # What is not compiled any more would be taken for its source.
        old.unlink()
    found = [*written_out(), *compiled()]
    for each in found:
        each.optional = True
    return found


setup(ext_modules=extensions())
