"""Reads which shared libraries compiled modules need, from the strings in their ELF files."""

import re
from collections.abc import Iterable
from pathlib import Path

_GLIBC = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")
_NEEDED = re.compile(rb"(?<=\0)(lib[\w.+-]+\.so(?:\.\d+)*)(?=\0)")
PACKAGES = {"libgcc_s.so.1": "libgcc-s1", "libstdc++.so.6": "libstdc++6"}
"""Debian's packages of the libraries that a wheel may expect of the system, beside those of glibc."""


def glibc_version(libraries: Iterable[Path]) -> tuple[int, int]:
    """Returns the oldest version of glibc that has all symbols of the libraries."""
    found = (match for library in libraries for match in _GLIBC.findall(library.read_bytes()))
    return max(((int(major), int(minor)) for major, minor in found), default=(2, 0))


def packages(libraries: Iterable[Path]) -> list[str]:
    """Returns the Debian packages of the other shared libraries that are named in the libraries, sorted."""
    named = {name.decode() for library in libraries for name in _NEEDED.findall(library.read_bytes())}
    return sorted({package for name, package in PACKAGES.items() if name in named})
