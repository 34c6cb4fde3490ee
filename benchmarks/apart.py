"""A section, measured in a process of its own, so that none pays for what another left in memory.

Owns: that process. Must not know: which sections there are.
"""

import importlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from benchmarks.section import Section


def measured(module: str, quick: bool, **options: object) -> Section:
    """Imports a module there, and has it measure. Raises whatever was raised there."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(partial(_measure, module, quick, **options)).result()


def _measure(module: str, quick: bool, **options: object) -> Section:
    section: Section = importlib.import_module(module).measure(quick, **options)
    return section
