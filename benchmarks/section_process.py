"""Measures a section in a separate process, so that memory left by other sections does not affect it."""

import importlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from benchmarks.section import Section


def measured_in_subprocess(module: str, quick: bool, **options: object) -> Section:
    """Imports a module in a new process and runs its `measure`. Raises the exceptions of `measure`."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(partial(_measure, module, quick, **options)).result()


def _measure(module: str, quick: bool, **options: object) -> Section:
    section: Section = importlib.import_module(module).measure(quick, **options)
    return section
