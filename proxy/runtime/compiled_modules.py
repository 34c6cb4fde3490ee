"""Whether the modules that handle group requests were compiled when the sidecar was installed."""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

LIBRARIES = (
    "group_sidecar.proxy.dataplane.fast_path",
    "group_sidecar.proxy.dataplane.session",
    "group_sidecar.proxy.listeners.acceptor_thread",
)
"""One module of each compiled library. mypyc compiles many modules into one library, which contains `session`."""


def uncompiled_modules() -> list[str]:
    """Returns the names of the `LIBRARIES` that are not compiled, and so run as slower Python code."""
    return [name for name in LIBRARIES if not _is_compiled(name)]


def _is_compiled(name: str) -> bool:
    spec = find_spec(name)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))
