"""Runs code in a new process that imports the package's Python sources, even if this process uses compiled modules."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = sorted(link.resolve() for link in (ROOT / "group_sidecar").iterdir() if link.is_symlink())
"""The top-level folders that are part of the package."""
_SOURCES_ONLY = """
import sys
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
def sources(folder):
    if Path(sys.argv[1], "group_sidecar") in Path(folder).parents:
        return FileFinder(folder, (SourceFileLoader, [".py"]))
    raise ImportError
sys.path_hooks.insert(0, sources)
sys.path_importer_cache.clear()
from group_sidecar.proxy.dataplane import connections
from group_sidecar.proxy.dataplane import session
if connections.FAST_PATH or not session.__file__.endswith(".py"):
    sys.exit("compiled")
"""


def run_as_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process without compiled modules. The arguments begin at `sys.argv[2]`."""
    command = [sys.executable, "-c", _SOURCES_ONLY + code, str(ROOT), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
