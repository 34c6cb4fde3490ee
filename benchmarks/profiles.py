"""Records flame graphs of the sidecar on each of its hot paths.

    python -m benchmarks.profiles [--seconds N] [NAME ...]

Starts a real broker and a sidecar set up as in production. Runs one load after the other while py-spy samples the
sidecar, including C functions, and writes docs/profiles/NAME.svg. Widths are shares of the time in which a thread of
the sidecar could run. The kernel's work counts for the function that made the system call. Run this program on a quiet
machine: `benchmarks.flame_graphs` explains why. Standard error reports how much CPU time was used.
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

from benchmarks.broker_and_sidecar import SIDECAR, a_broker, a_sidecar, cpu_seconds
from benchmarks.flame_graphs import recorded
from benchmarks.load_driver import Driver, close, connected
from benchmarks.many_groups import PARTITIONS, TOPICS, commit_all, commit_request
from benchmarks.single_member_groups import create_groups, create_topic, heartbeat_frames
from benchmarks.workloads import churn, consume, framed, produce
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, host_port
from tests.kafka.sidecar_process import SidecarProcess

FOLDER = Path(__file__).parent.parent / "docs" / "profiles"
RECORDS = 200_000
"""Records of each producer and of each consumer, which run one after the other."""
TOPIC = "records"
CONNECTIONS = 16
GROUPS = tuple(f"billing-{number:02}" for number in range(CONNECTIONS))
COMMITS = 64
"""Commits in flight. The broker collects commits for some milliseconds before it writes them."""
COMMITTED, FETCHED = 10, 1_000
"""Partitions of a commit, and of a group whose offsets are all fetched."""
FETCHED_GROUP = "fetched"
LOADED_GROUPS = 100
CONNECTED = 500
"""Connections that one run of the load opens one after the other."""
_DESCRIBE, _COMMIT, _FETCH = 5, 8, 8

Load = Callable[[float], object]
"""Sends load to the sidecar. The argument is the duration in seconds."""

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
    """Creates the groups of the loads, and returns all client loads by name. `prepare` must have run."""
    members = create_groups(address, GROUPS)
    beats = heartbeat_frames(members)
    commits = [framed(commit_request(f"orders-{number}", COMMITTED), _COMMIT) for number in range(COMMITS)]
    questions = [framed(DescribeGroupsRequest(groups=(name,)), _DESCRIBE) for name in GROUPS]
    return {
        "heartbeat-1": partial(drive, address, beats[:1], 1),
        "heartbeat-16": partial(drive, address, beats, CONNECTIONS),
        "produce": partial(repeat, lambda: produce(address, TOPIC, RECORDS)),
        "consume": partial(repeat, lambda: consume(address, TOPIC, RECORDS)),
        "connections": partial(repeat, lambda: churn(address, CONNECTIONS, CONNECTED)),
        "offset-commit": partial(drive, address, commits, COMMITS),
        "describe-groups": partial(drive, address, questions, 1),
        "offset-fetch": partial(fetch_what_changes, address),
    }


def drive(address: Address, frames: Sequence[bytes], in_flight: int, seconds: float) -> None:
    """Keeps `in_flight` requests in flight for `seconds` seconds, each on its own connection."""
    connections = connected(address, in_flight, frames[0])
    try:
        Driver(connections, frames, in_flight).run(seconds)
    finally:
        close(connections)


def repeat(once: Callable[[], object], seconds: float) -> None:
    """Repeats a function for at least `seconds` seconds."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        once()


def fetch_what_changes(address: Address, seconds: float) -> None:
    """Fetches all offsets of a group repeatedly, while another client commits one of them."""
    everything = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=FETCHED_GROUP, topics=None),))
    changes = [framed(commit_request(FETCHED_GROUP, 1, offset), _COMMIT) for offset in range(100)]
    committing = threading.Thread(target=drive, args=(address, changes, 1, seconds))
    committing.start()
    drive(address, [framed(everything, _FETCH)], 1, seconds)
    committing.join()


def prepare(broker: KafkaBroker) -> None:
    """Creates the topics and the first records."""
    create_topic(broker.direct)
    admin = AdminClient({"bootstrap.servers": host_port(broker.direct)})
    committed = [NewTopic(name, PARTITIONS, 1) for name in TOPICS[: FETCHED // PARTITIONS]]
    for created in admin.create_topics([NewTopic(TOPIC, 1, 1), *committed]).values():
        created.result()
    produce(broker.direct, TOPIC, RECORDS)
    commit_all(broker.direct, [commit_request(FETCHED_GROUP, FETCHED)])


def profile_loading(broker: KafkaBroker, folder: Path, seconds: float) -> None:
    """Profiles a sidecar that loads a log. Commits are written for some seconds before the sidecar starts."""
    frames = [framed(commit_request(f"loaded-{n}", PARTITIONS), _COMMIT) for n in range(LOADED_GROUPS)]
    drive(broker.direct, frames, COMMITS, seconds)
    broker.stop()
    sidecar = SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=SIDECAR, until="/healthz")
    with sidecar, _profiled(psutil.Process(sidecar.process.running.pid), "loading"):
        broker.start()
        time.sleep(seconds)  # The sidecar is not polled, because the replies would be part of the profile.
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
    """Records all named profiles."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
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
    parser.add_argument("--seconds", type=float, default=10, help="the duration of each load in seconds")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(TITLES)}; by default all of them")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(TITLES):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    run(arguments.names or list(TITLES), arguments.seconds)
