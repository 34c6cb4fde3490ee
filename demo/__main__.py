"""`python -m group_sidecar.demo [--stay]`.

Exit status 0 when all was really seen, 1 when any part was not, 3 when Spark could not be shown for want of Java.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from group_sidecar.demo import acts
from group_sidecar.demo.cluster import EmbeddedCluster
from group_sidecar.demo.crowd import Crowd
from group_sidecar.demo.gateway import Gateway
from group_sidecar.demo.stage import Stage

COMMAND = os.path.relpath(Path(sys.executable).with_name("group-sidecar"))
"""As it can be typed here: nobody has put the virtual environment into PATH."""
BROKERS = 3
LIMIT = 3


def perform(stage: Stage, crowd: Crowd, gateway: Gateway) -> None:
    """All acts, in order."""
    stage.heading("A crowd of librdkafka clients, through the sidecar")
    acts.gather(stage, crowd)
    stage.heading("ListGroups, DescribeGroups: the cluster has neither")
    acts.list_and_describe(stage, crowd, gateway)
    stage.heading("OffsetFetch v2, null topics (KIP-88), by kafka-python")
    acts.fetch_offsets(stage, crowd, gateway)
    stage.heading(f"group.max.size {LIMIT} (KIP-389)")
    acts.refuse(stage, crowd, gateway, LIMIT)
    stage.heading("Why did this group rebalance?")
    acts.explain(stage, crowd, gateway)
    stage.heading(f"Prometheus: http://{gateway.admin}/metrics")
    acts.scrape(stage, gateway)
    stage.heading("Spark, over the records that the sidecar exported")
    acts.aggregate(stage, crowd, gateway)


def stay(stage: Stage, gateway: Gateway) -> None:
    """Keeps everything up until it is interrupted."""
    stage.heading("Still up. Look around, and end it with Ctrl-C")
    stage.say(f"  Kafka clients   {gateway.bootstrap}")
    stage.say(f"  groups          {COMMAND} groups list --bootstrap {gateway.bootstrap}")
    stage.say(f"  the page        http://{gateway.admin}/")
    stage.say(f"  live            {COMMAND} groups top --sidecar {gateway.admin}")
    stage.say(f"  metrics         http://{gateway.admin}/metrics")
    stage.say(f"  records         {gateway.journal}")
    stage.say(f"  configuration   {gateway.config}")
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    try:
        over.wait()
    except KeyboardInterrupt:
        stage.say("")


def main() -> int:
    """The demo. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description="The whole product in the terminal.")
    parser.add_argument("--stay", action="store_true", help="keep everything up for looking around")
    arguments = parser.parse_args()
    stage = Stage()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="group-sidecar-demo-") as folder:
        cluster = EmbeddedCluster(BROKERS)
        stage.say(f"[bold]kafka-group-sidecar[/]: {BROKERS} embedded brokers, a sidecar as their gateway")
        with Gateway(cluster.brokers[0], Path(folder), LIMIT) as gateway:
            crowd = Crowd(gateway.bootstrap)
            try:
                perform(stage, crowd, gateway)
                if arguments.stay:
                    stay(stage, gateway)
            finally:
                crowd.disperse()
    stage.heading(f"{time.monotonic() - began:.0f} seconds")
    if stage.missing:
        stage.say(f"[bold red]{len(stage.missing)} not seen:[/] " + "; ".join(stage.missing))
        return 1
    if stage.impossible:
        stage.say("[bold yellow]all was seen but what this machine cannot show[/]")
        return acts.NO_JAVA
    stage.say("[bold green]all of it was seen[/]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
