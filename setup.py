"""Compiles performance-critical modules when the project is installed. All other settings are in pyproject.toml.

There are two kinds of compiled modules: Cython sources (`*.pyx`), and the Python modules that pyproject.toml lists.
mypyc compiles the latter from their only source.

Without a C compiler, everything runs as Python. The behaviour is the same, but slower. With the environment variable
GROUP_SIDECAR_REQUIRE_COMPILED=1, the installation fails instead. GROUP_SIDECAR_OPTIMIZE is the level at which the C
compiler optimizes, 1 to 3, and 2 by default. Level 1 takes less time, for tests of the build.

A source distribution is reproducible: its bytes depend on the contents of its files, and on SOURCE_DATE_EPOCH if the
environment has it.
"""

import gzip
import os
import re
import sys
import tarfile
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
PYPROJECT = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))
PACKAGE = "group_sidecar"
BUILDS = frozenset({"bdist_wheel", "build_ext", "editable_wheel"})
"""Commands of setuptools that compile. Others, such as `egg_info`, need only the names of the extensions."""
REQUIRED = os.environ.get("GROUP_SIDECAR_REQUIRE_COMPILED") == "1"
LEVEL = os.environ.get("GROUP_SIDECAR_OPTIMIZE", "2")
SHARED = f"{PACKAGE}.native"
"""The one library that mypyc compiles all modules into, without mypyc's suffix."""
EARLIEST_IN_WHEELS = 315532800
"""1980-01-01 in seconds since 1970: the earliest time that a zip archive, and so a wheel, can hold."""
RELATIVE_LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?![a-z]+:|#)(?P<target>[^)\s]+)\)")
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
    packages = [each for each in Path(PACKAGE).iterdir() if each.is_dir()]
    return sorted(found for package in packages for found in package.rglob(pattern))


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

    files = [str(Path(PACKAGE, file)) for file in PYPROJECT["tool"]["group-sidecar"]["compiled"]]
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


def long_description() -> str:
    """Returns README.md with absolute links, because PyPI shows the text without the files of the repository.

    The links lead to the tag of the release, or to the branch `main` before the release.
    """
    project = PYPROJECT["project"]
    place = "main" if ".dev" in project["version"] else f"v{project['version']}"

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}{link['text']}({project['urls']['Repository']}/{kind}/{place}/{link['target']})"

    return RELATIVE_LINK.sub(absolute, (HERE / "README.md").read_text("utf-8"))


class ReproducibleSdist(sdist):
    """Builds a source distribution without traces of the machine: times, users, groups, modes, order of the files."""

    def run(self) -> None:
        """Lists the files anew. An older list may name files that no longer belong to the package."""
        for old in HERE.glob("*.egg-info/SOURCES.txt"):
            old.unlink()
        super().run()

    def make_archive(
        self,
        base_name: str,
        format: str,
        root_dir: str | os.PathLike[str] | None = None,
        base_dir: str | None = None,
        owner: str | None = None,
        group: str | None = None,
    ) -> str:
        """Writes the folder `base_dir` as a `.tar.gz` and returns its name. Refuses another format with SystemExit."""
        if format != "gztar" or base_dir is None:
            raise SystemExit(f"a source distribution is a .tar.gz, not {format}")
        seconds = int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST_IN_WHEELS))
        archive = Path(f"{base_name}.tar.gz")
        with (
            archive.open("wb") as file,
            gzip.GzipFile("", "wb", mtime=seconds, fileobj=file) as packed,
            tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in sorted(each for each in Path(base_dir).rglob("*") if each.is_file()):
                entry = tarfile.TarInfo(path.as_posix())
                entry.size, entry.mtime, entry.mode = path.stat().st_size, seconds, 0o644
                with path.open("rb") as content:
                    tar.addfile(entry, content)
        return str(archive)


# mypyc's library keeps one core busy until the end. The other extensions are compiled on the other cores meanwhile.
setup(
    ext_modules=extensions(),
    options={"build_ext": {"parallel": os.cpu_count()}},
    cmdclass={"sdist": ReproducibleSdist},
    long_description=long_description(),
    long_description_content_type="text/markdown",
)
