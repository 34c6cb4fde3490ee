"""Reads which shared libraries compiled modules need, from the strings in their ELF files."""

import re
from collections.abc import Iterable
from pathlib import Path

_GLIBC = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")
_NEEDED = re.compile(rb"(?<=\0)(lib[\w.+-]+\.so(?:\.\d+)*)(?=\0)")
PACKAGES = {"libgcc_s.so.1": "libgcc-s1", "libstdc++.so.6": "libstdc++6"}
"""The Debian package of each shared library, other than glibc's, that a wheel may expect on the system."""


def glibc_version(libraries: Iterable[Path]) -> tuple[int, int]:
    """Returns the oldest version of glibc that has all symbols that the compiled modules use."""
    found = (match for library in libraries for match in _GLIBC.findall(library.read_bytes()))
    return max(((int(major), int(minor)) for major, minor in found), default=(2, 0))


def packages(libraries: Iterable[Path]) -> list[str]:
    """Returns the Debian packages in `PACKAGES` of shared libraries that the compiled modules name, sorted."""
    named = {name.decode() for library in libraries for name in _NEEDED.findall(library.read_bytes())}
    return sorted({package for name, package in PACKAGES.items() if name in named})
