"""Compiles performance-critical modules when the project is installed. All other settings are in pyproject.toml.

There are two kinds of compiled modules: Cython sources (`*.pyx`), and the Python modules that pyproject.toml lists.
mypyc compiles the latter from their only source.

Without a C compiler, everything runs as Python. The behaviour is the same, but slower. With the environment variable
GROUP_SIDECAR_REQUIRE_COMPILED=1, the installation fails instead. GROUP_SIDECAR_OPTIMIZE is the level at which the C
compiler optimizes, 1 to 3, and 2 by default. Level 1 takes less time, for tests of the build.
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent
PACKAGE = "group_sidecar"
BUILDS = frozenset({"bdist_wheel", "build_ext", "editable_wheel"})
"""Commands of setuptools that compile. Others, such as `egg_info`, need only the names of the extensions."""
REQUIRED = os.environ.get("GROUP_SIDECAR_REQUIRE_COMPILED") == "1"
LEVEL = os.environ.get("GROUP_SIDECAR_OPTIMIZE", "2")
SHARED = f"{PACKAGE}.native"
"""The one library that mypyc compiles all modules into, without mypyc's suffix."""
OPTIONS = (
    "--config-file=",
    "--cache-dir=build/mypy-compiling",
    "--explicit-package-bases",
    "--ignore-missing-imports",
    "--no-site-packages",
    "--python-version=3.11",
)
"""Options of mypy, which supplies the types. Type errors are checked by `make lint`.

Without site-packages, mypy generates the same code whether other packages are installed or not.
"""


def sources(pattern: str) -> list[Path]:
    """Returns the files below the package that match a pattern, relative to the root of the checkout, sorted."""
    rooms = [each for each in Path(PACKAGE).iterdir() if each.is_dir()]
    return sorted(found for room in rooms for found in room.rglob(pattern))


def written_in_cython() -> list[Extension]:
    """Returns the extensions that have a Cython source."""
    headers = [str(header) for header in sources("*.h")]
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            depends=headers,
            extra_compile_args=[f"-O{LEVEL}", "-g0"],
        )
        for source in sources("*.pyx")
    ]


def compiled_by_mypyc() -> list[Extension]:
    """Generates the C sources of the modules that pyproject.toml lists, and returns their extensions."""
    from mypyc.build import mypycify

    listed = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["group-sidecar"]["compiled"]
    files = [str(Path(PACKAGE, file)) for file in listed]
    os.environ["MYPYPATH"] = str(HERE)
    return mypycify(
        [*OPTIONS, *files], separate=[(files, SHARED)], opt_level=LEVEL, debug_level="0", target_dir="build/compiled"
    )


def extensions() -> list[Extension]:
    """Returns all extensions. Unless they are required, the installation continues without those that fail."""
    if not BUILDS.intersection(sys.argv):
        return written_in_cython()  # A source distribution contains their sources.
    for old in sources("*.so"):  # Python would load the old library of a module that is no longer compiled.
        old.unlink()
    found = [*written_in_cython(), *compiled_by_mypyc()]
    for each in found:
        each.optional = not REQUIRED
    return found


# mypyc's library keeps one core busy until the end. The other extensions are compiled on the other cores meanwhile.
setup(ext_modules=extensions(), options={"build_ext": {"parallel": os.cpu_count()}})
