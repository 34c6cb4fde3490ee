"""Where the sidecar's time goes on each of its hot paths, as flame graphs.

    python -m benchmarks.profiles [--seconds N] [NAME ...]

Starts a real broker and a sidecar set up as in production, puts one load after the other on it, has py-spy sample the
sidecar meanwhile, C functions included, and writes docs/profiles/NAME.svg. Widths are shares of the time in which a
thread of the sidecar could run; the kernel's work for it counts to the function that called the kernel. To be run on a
quiet machine (`benchmarks.flame_graphs` says why); stderr tells how much CPU was used.

Owns: which loads there are. Must not know: how clients make load, how it is sampled, how the sidecar works.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.driving import Driver, close, connected
from benchmarks.flame_graphs import recorded
from benchmarks.groups import PARTITIONS, TOPICS, commit_all, commit_of
from benchmarks.lone_members import create_topic, found_groups, heartbeat_frames
from benchmarks.stage import SIDECAR, a_broker, a_sidecar, cpu_seconds
from benchmarks.workloads import churn, consume, framed, produce
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, spelled
from tests.kafka.sidecar import SidecarProcess

FOLDER = Path(__file__).parent.parent / "docs" / "profiles"
RECORDS = 200_000
"""Of each producer and each consumer; one follows the other."""
TOPIC = "records"
CONNECTIONS = 16
GROUPS = tuple(f"billing-{number:02}" for number in range(CONNECTIONS))
COMMITS = 64
"""Under way at once: the broker gathers them for some milliseconds before it writes them."""
COMMITTED, FETCHED = 10, 1_000
"""Partitions of a commit, and of a group that is asked for all its offsets."""
FETCHED_GROUP = "fetched"
LOADED_GROUPS = 100
CONNECTED = 500
"""Connections, one after the other."""
_DESCRIBE, _COMMIT, _FETCH = 5, 8, 8

Load = Callable[[float], object]
"""Asks the sidecar for so many seconds."""

TITLES = {
    "heartbeat-1": "Heartbeat, one connection",
    "heartbeat-16": f"Heartbeat, {CONNECTIONS} connections",
    "produce": "Produce of records of 1 KiB, acks=1",
    "consume": "Fetch of the same records",
    "connections": f"Connect, ApiVersions, close; {CONNECTIONS} at a time",
    "offset-commit": f"OffsetCommit of {COMMITTED} partitions, {COMMITS} under way",
    "describe-groups": "DescribeGroups, answered here; the groups do not change",
    "offset-fetch": f"OffsetFetch of {FETCHED:,} partitions, answered here while they change",
    "loading": "Loading __consumer_offsets",
}


def loads(address: Address) -> dict[str, Load]:
    """All loads of clients, by name. Groups and what they ask about are there before."""
    members = found_groups(address, GROUPS)
    beats = heartbeat_frames(members)
    commits = [framed(commit_of(f"orders-{number}", COMMITTED), _COMMIT) for number in range(COMMITS)]
    questions = [framed(DescribeGroupsRequest(groups=(name,)), _DESCRIBE) for name in GROUPS]
    return {
        "heartbeat-1": partial(drive, address, beats[:1], 1),
        "heartbeat-16": partial(drive, address, beats, CONNECTIONS),
        "produce": partial(again, lambda: produce(address, TOPIC, RECORDS)),
        "consume": partial(again, lambda: consume(address, TOPIC, RECORDS)),
        "connections": partial(again, lambda: churn(address, CONNECTIONS, CONNECTED)),
        "offset-commit": partial(drive, address, commits, COMMITS),
        "describe-groups": partial(drive, address, questions, 1),
        "offset-fetch": partial(fetch_what_changes, address),
    }


def drive(address: Address, frames: Sequence[bytes], in_flight: int, seconds: float) -> None:
    """Keeps so many requests under way, each on a connection of its own."""
    connections = connected(address, in_flight, frames[0])
    try:
        Driver(connections, frames, in_flight).run(seconds)
    finally:
        close(connections)


def again(once: Callable[[], object], seconds: float) -> None:
    """Does it time and again, for at least so long."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        once()


def fetch_what_changes(address: Address, seconds: float) -> None:
    """Asks for all offsets of a group, one of which is committed time and again meanwhile."""
    everything = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=FETCHED_GROUP, topics=None),))
    changes = [framed(commit_of(FETCHED_GROUP, 1, offset), _COMMIT) for offset in range(100)]
    committing = threading.Thread(target=drive, args=(address, changes, 1, seconds))
    committing.start()
    drive(address, [framed(everything, _FETCH)], 1, seconds)
    committing.join()


def prepare(broker: KafkaBroker) -> None:
    """Makes the topics, and the first records."""
    create_topic(broker.direct)
    admin = AdminClient({"bootstrap.servers": spelled(broker.direct)})
    committed = [NewTopic(name, PARTITIONS, 1) for name in TOPICS[: FETCHED // PARTITIONS]]
    for created in admin.create_topics([NewTopic(TOPIC, 1, 1), *committed]).values():
        created.result()
    produce(broker.direct, TOPIC, RECORDS)
    commit_all(broker.direct, [commit_of(FETCHED_GROUP, FETCHED)])


def profile_loading(broker: KafkaBroker, folder: Path, seconds: float) -> None:
    """The broker is made to have commits for some seconds; then a sidecar waits for it and reads its log."""
    frames = [framed(commit_of(f"loaded-{n}", PARTITIONS), _COMMIT) for n in range(LOADED_GROUPS)]
    drive(broker.direct, frames, COMMITS, seconds)
    broker.stop()
    sidecar = SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=SIDECAR, until="/healthz")
    with sidecar, _profiled(psutil.Process(sidecar.process.running.pid), "loading"):
        broker.start()
        time.sleep(seconds)  # It is not asked whether it is done: answering takes its time too.
        sidecar.wait_for_log()


@contextmanager
def _profiled(process: psutil.Process, name: str) -> Iterator[None]:
    FOLDER.mkdir(exist_ok=True)
    with recorded(process.pid, FOLDER / f"{name}.svg", TITLES[name]):
        before, began = cpu_seconds(process), time.monotonic()
        yield
        used, seconds = cpu_seconds(process) - before, time.monotonic() - began
    print(f"{TITLES[name]}: {used:.1f} s of CPU in {seconds:.1f} s", file=sys.stderr)


def run(names: Sequence[str], seconds: float) -> None:
    """Records all that are named."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with a_broker(folder) as broker:
            prepare(broker)
            with a_sidecar(folder, broker) as process:
                for name, load in loads(broker.sidecar).items():
                    if name in names:
                        with _profiled(process, name):
                            load(seconds)
            if "loading" in names:
                profile_loading(broker, folder / "waiting", seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="of each load")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(TITLES)}; all, where none is given")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(TITLES):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    run(arguments.names or list(TITLES), arguments.seconds)
