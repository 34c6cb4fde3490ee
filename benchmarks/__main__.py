"""Measures the data path or the fleet pipeline, and writes the results to docs/.

    python -m benchmarks [--quick] [--broker-port PORT] [--docs FOLDER] [NAME=HOST:PORT ...]
    python -m benchmarks --fleet [--quick] [--docs FOLDER]

The first command writes docs/performance.md and docs/charts. The second command measures the fleet pipeline instead,
and writes docs/fleet-performance.md. Each command takes about as long as the other.

NAME=HOST:PORT is a proxy that the user has started in front of the broker's port. NAME may contain blanks, for instance
before a version: "kafka-proxy 0.4.3=127.0.0.1:19101". Start the proxy from the same terminal, without setsid. Linux may
divide the cores between sessions (sched_autogroup_enabled), so a proxy in a session of its own would get more CPU time.

Each section is measured in a process of its own, so that memory left by one section does not affect another. If a
section fails, the program writes the other sections, reports the failure at the end, and exits with status 1.
"""

import argparse
import os
import shlex
import sys
import time
import traceback
from pathlib import Path

from benchmarks.markdown_pages import DATA_PATH, FLEET, machine, markdown, write
from benchmarks.section import Section
from benchmarks.section_process import measured_in_subprocess
from benchmarks.targets import parse_external_proxy

FIRST, REST = (
    "forwarding",
    ("tls", "growth", "bystander", "attacks", "group_traffic", "answers", "scrape", "loading", "restart", "codecs"),
)
"""The modules that measure, in the order of the page."""
DOCS = Path(__file__).resolve().parent.parent / "docs"


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure less of everything, in ten minutes")
    parser.add_argument("--fleet", action="store_true", help="measure the fleet pipeline instead")
    parser.add_argument("--broker-port", type=int, help="the broker's port, to which the user's proxies connect")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder to write into")
    parser.add_argument("others", nargs="*", type=parse_external_proxy, metavar="NAME=HOST:PORT")
    given = parser.parse_args()
    if given.fleet and (given.others or given.broker_port):
        parser.error("--fleet: no proxy is measured, so none can be named")
    return given


def command(given: argparse.Namespace) -> str:
    """Returns the command that repeats this measurement."""
    words = ["python", "-m", "benchmarks"]
    words += [flag for flag, asked in (("--fleet", given.fleet), ("--quick", given.quick)) if asked]
    if given.broker_port:
        words += ["--broker-port", str(given.broker_port)]
    return shlex.join([*words, *(f"{name}={host}:{port}" for name, (host, port) in given.others)])


def main() -> int:
    """Measures, writes the page, and reports which sections failed."""
    given, load = arguments(), os.getloadavg()
    options = {FIRST: {"others": given.others, "broker_port": given.broker_port}}
    page, names = (FLEET, ("fleet",)) if given.fleet else (DATA_PATH, (FIRST, *REST))
    sections, failed = [], []
    for name in names:
        began = time.monotonic()
        try:
            sections.append(measured_in_subprocess(f"benchmarks.{name}", given.quick, **options.get(name, {})))
        except Exception:  # noqa: BLE001 (the other sections are measured after any error)
            failed.append(f"benchmarks.{name} failed\n{traceback.format_exc()}")
            sections.append(Section(name, "Not measured: it failed in this run."))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    write(given.docs, page, markdown(page, command(given), machine(load), sections), sections)
    for text in failed:
        print(text, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
