"""Whether the modules that handle group requests were compiled when the sidecar was installed."""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

LIBRARIES = (
    "group_sidecar.proxy.dataplane.fast_path",
    "group_sidecar.proxy.dataplane.session",
    "group_sidecar.proxy.listeners.acceptor_thread",
)
"""A module of each library. mypyc compiles all its modules into one library, for which `session` stands."""


def uncompiled_modules() -> list[str]:
    """Returns the names of those `LIBRARIES` that are not compiled. Python code then does the same, but slower."""
    return [name for name in LIBRARIES if not _is_compiled(name)]


def _is_compiled(name: str) -> bool:
    spec = find_spec(name)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))
