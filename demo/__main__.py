"""Runs the demo: `python -m group_sidecar.demo [--stay]`.

Exit status: 0 if all checks passed, 1 if any check failed, 3 if Spark could not run because Java is missing.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from group_sidecar.demo import scenarios
from group_sidecar.demo.cluster import EmbeddedCluster
from group_sidecar.demo.demo_output import DemoOutput
from group_sidecar.demo.gateway import Gateway
from group_sidecar.demo.group_clients import GroupClients

COMMAND = os.path.relpath(Path(sys.executable).with_name("group-sidecar"))
"""The path of the command as a user can type it, because the virtual environment is not in PATH."""
GROUP_MAX_SIZE = 3


def run_scenarios(output: DemoOutput, crowd: GroupClients, gateway: Gateway) -> None:
    """Runs all steps of the demo, in order."""
    output.heading("librdkafka clients connect through the sidecar")
    scenarios.start_clients(output, crowd)
    output.heading("ListGroups and DescribeGroups, which the cluster does not support")
    scenarios.list_and_describe(output, crowd, gateway)
    output.heading("OffsetFetch v2 with null topics (KIP-88), sent by kafka-python")
    scenarios.fetch_offsets(output, crowd, gateway)
    output.heading(f"group.max.size {GROUP_MAX_SIZE} (KIP-389)")
    scenarios.refuse(output, crowd, gateway, GROUP_MAX_SIZE)
    output.heading("Why did this group rebalance?")
    scenarios.explain(output, crowd, gateway)
    output.heading(f"Prometheus: http://{gateway.admin}/metrics")
    scenarios.scrape(output, gateway)
    output.heading("Spark aggregates the records that the sidecar exported")
    scenarios.aggregate(output, crowd, gateway)


def stay(output: DemoOutput, gateway: Gateway) -> None:
    """Keeps the demo's processes running until Ctrl-C or SIGTERM."""
    output.heading("The demo keeps running until Ctrl-C")
    output.say(f"  Kafka clients   {gateway.bootstrap}")
    output.say(f"  groups          {COMMAND} groups list --bootstrap {gateway.bootstrap}")
    output.say(f"  the page        http://{gateway.admin}/")
    output.say(f"  live            {COMMAND} groups top --sidecar {gateway.admin}")
    output.say(f"  metrics         http://{gateway.admin}/metrics")
    output.say(f"  records         {gateway.journal}")
    output.say(f"  configuration   {gateway.config}")
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    try:
        stopped.wait()
    except KeyboardInterrupt:
        output.say("")


def main() -> int:
    """Runs the demo. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description="The whole product in the terminal.")
    parser.add_argument("--stay", action="store_true", help="keep the demo running after the last step")
    arguments = parser.parse_args()
    output = DemoOutput()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="group-sidecar-demo-") as folder:
        cluster = EmbeddedCluster()
        output.say("[bold]kafka-group-sidecar[/]: an embedded broker, and a sidecar as its gateway")
        with Gateway(cluster.broker, Path(folder), GROUP_MAX_SIZE) as gateway:
            crowd = GroupClients(gateway.bootstrap)
            try:
                run_scenarios(output, crowd, gateway)
                if arguments.stay:
                    stay(output, gateway)
            finally:
                crowd.leave_all()
    output.heading(f"{time.monotonic() - began:.0f} seconds")
    if output.failed_checks:
        output.say(f"[bold red]{len(output.failed_checks)} checks failed:[/] " + "; ".join(output.failed_checks))
        return 1
    if output.skipped_checks:
        output.say("[bold yellow]all checks passed, except those that this machine cannot run[/]")
        return scenarios.NO_JAVA
    output.say("[bold green]all checks passed[/]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
