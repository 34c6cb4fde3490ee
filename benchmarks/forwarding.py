"""Compares the cost of the data path with a direct connection and with other proxies in front of the same broker.

    python -m benchmarks.forwarding [--quick] [--broker-port PORT] [NAME=HOST:PORT ...]

The module defines the rows and their section of the page. `targets` starts the proxies.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker_and_sidecar import max_connections
from benchmarks.many_groups import consumers, join_request
from benchmarks.markdown_tables import cpu_table, memory_table, ratio_table, sidecar_table, target_table
from benchmarks.rounds import Row, measured
from benchmarks.section import Section
from benchmarks.targets import SIDECAR, ExternalProxy, RunningTargets, Target, parse_external_proxy, running_targets
from benchmarks.workloads import (
    FAILURES,
    HEARTBEAT,
    RECORD,
    answer_times,
    brokers_named,
    churn,
    consume,
    framed,
    held,
    one_by_one,
    produce,
    side_by_side,
)
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, host_port
from tests.kafka.wire import Wire

SECONDS, QUICK_SECONDS = 12 * 60.0, 60.0
"""Seconds for the rounds. Starting processes, creating data and measuring idle connections take additional time."""
AT_LEAST, QUICK_AT_LEAST = 3, 2
"""The minimum number of rounds, however long they take."""
TO_READ, TO_WRITE, WIDE = "to-read", "to-write", "wide"
"""Topics: clients consume one from its beginning, only produce to the second, and the third has many partitions."""
FULL, STORED = "full", "stored"
"""Groups: one with a single member and no room for another, and one with committed offsets."""
PARTITIONS = 1_000
RECORDS = 200_000
MANY, FEW, QUESTIONS, CHURN = 20_000, 8_000, 1_000, 3_000
"""Counts per run: concurrent requests, sequential requests, questions about groups, and connections."""
QUICK_SHARE = 4
"""A quick run divides each count by this number."""
IDLE = 1_000
"""The number of idle connections in each of two sets. There are fewer if the system does not allow enough descriptors.
Only the memory of the second set is measured."""
MADE_SECONDS = 60


def rows(share: int = 1) -> list[Row]:
    """Returns all rows that are measured in rounds. `share` divides the amount of work."""
    records, many, few, churned = (count // share for count in (RECORDS, MANY, FEW, CHURN))
    joins = framed(join_request(FULL), 3)
    rate, gigabytes, per = "per second", records * len(RECORD) / 1e9, "10,000"
    return [
        Row("produce 1 KiB, acks=1", "MB/s", lambda at: produce(at, TO_WRITE, records), gigabytes, "GB"),
        Row("consume", "MB/s", lambda at: consume(at, TO_READ, records), gigabytes, "GB"),
        Row("Heartbeat, 16 connections", rate, lambda at: side_by_side(at, HEARTBEAT, 16, many), many / 1e4, per),
        Row("Heartbeat, 1 connection", rate, lambda at: one_by_one(at, HEARTBEAT, few), few / 1e4, per),
        Row("connect, ApiVersions, close; 16 at a time", rate, lambda at: churn(at, 16, churned), churned / 1e4, per),
        Row("JoinGroup refused", rate, lambda at: one_by_one(at, joins, few), few / 1e4, per),
        *_answers(QUESTIONS // share),
    ]


def _answers(count: int) -> list[Row]:
    """Returns the rows of questions about groups. A reply that is too short counts as a refusal."""
    topic = OffsetFetchRequestTopic(name=WIDE, partition_indexes=tuple(range(PARTITIONS)))
    fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=STORED, topics=(topic,)),))
    asked = (
        (f"OffsetFetch of {PARTITIONS:,} partitions", framed(fetch, 8), PARTITIONS * 10),
        ("DescribeGroups of 1 member", framed(DescribeGroupsRequest(groups=(FULL,)), 5), 100),
    )

    def row(name: str, frame: bytes, at_least: int) -> Row:
        def run(address: Address) -> float:
            return statistics.median(answer_times(address, frame, count, at_least))

        return Row(name, "p50 us", run, count / 1e4, "10,000", more_is_better=False)

    return [row(*each) for each in asked]


def measure(quick: bool, others: Sequence[ExternalProxy] = (), broker_port: int | None = None) -> Section:
    """Measures all rows at all targets."""
    seconds, at_least, share = (QUICK_SECONDS, QUICK_AT_LEAST, QUICK_SHARE) if quick else (SECONDS, AT_LEAST, 1)
    count = min(IDLE, max_connections() // 2)
    with tempfile.TemporaryDirectory() as folder, running_targets(Path(folder), broker_port, others) as stage:
        _leave_out_leaks(stage)
        idle = {target.name: _idle_kilobytes(target, count) for target in stage.targets}
        with _filled(stage.broker, RECORDS // share):
            results = measured(rows(share), stage.targets, seconds, at_least)
    parts = [
        INTRODUCTION.format(rounds=results.rounds),
        *target_table(stage.targets),
        *(f"\nLeft out: {line}." for line in stage.left_out),
        f"\n{RATIOS}\n",
        *ratio_table(results),
        f"\n{BESIDE}\n",
        *sidecar_table(results),
        f"\n{CPU}\n",
        *cpu_table(results),
        f"\n{MEMORY.format(idle=count)}\n",
        *memory_table(results, idle, count),
    ]
    return Section("Forwarding", "\n".join(parts))


INTRODUCTION = """\
`python -m benchmarks.forwarding` starts a broker, and all proxies in front of this broker. For each row of the tables,
the same client sends the same load to the broker and to each proxy in turn. It does so in a warm-up round and in
{rounds} rounds that count. The order changes from round to round. Clients, proxies and the broker share the machine.
The client is one process. It produces and consumes with librdkafka. All other requests are frames that were built in
advance.
"""
RATIOS = """\
This table compares each target with the direct connection. A figure is the target's result divided by the direct result
**of the same round**. The cells have the minimum, the **median** and the maximum over the rounds. For rates, more is
better. For times (p50 us), less is better. The column `direct` has the median of the direct results. Heartbeats are
from an unknown member, so the broker refuses them. Joins are for a full group. The sidecar itself refuses these joins
and answers OffsetFetch and DescribeGroups."""
BESIDE = """\
This table compares the sidecar with each other target in the same round, as minimum, **median** and maximum. For rates,
a figure is the sidecar's rate divided by the other target's rate. For times, it is the other target's time divided by
the sidecar's time. A figure above 1 means that the sidecar is better."""
CPU = """\
This table has the CPU seconds of each process over all rounds: user and system time, as the kernel reports them. The
column `direct` has the broker's CPU seconds under direct requests."""
MEMORY = """\
This table has the resident memory of each process, as the kernel reports it. The benchmark opens {idle:,} idle
connections twice, before any load. Each connection has sent one ApiVersions request. The figure per idle connection is
the growth during the second time. The figure under load is the maximum over all runs."""


def _leave_out_leaks(stage: RunningTargets) -> None:
    """Removes targets that direct clients to the broker's own address, so that bytes would not pass through them."""
    ports = {stage.broker.direct[1], stage.broker.client[1], *(at[1] for at in stage.broker.upstreams.values())}
    for target in stage.targets[1:]:
        try:
            leaks = any(at[1] in ports for at in brokers_named(target.address))
            reason = "sends clients to the broker's own address" if leaks else ""
        except FAILURES as error:
            if target.name == SIDECAR:
                raise
            reason = str(error)
        if reason:
            stage.targets.remove(target)
            stage.left_out.append(f"{target.name}: {reason}")


def _idle_kilobytes(target: Target, count: int) -> float:
    """Returns by how many kB the memory of a target grows with each held connection."""
    with held(target.address, count):
        before = _settled(target)
        with held(target.address, count):
            return (_settled(target) - before) / 1e3 / count


def _settled(target: Target) -> int:
    """Returns the memory of a target once it no longer changes."""
    last, now = -1, target.resident()
    while now != last:
        time.sleep(0.2)
        last, now = now, target.resident()
    return now


@contextmanager
def _filled(broker: KafkaBroker, records: int) -> Iterator[None]:
    """Creates topics, records, offsets and a group with one member, for the length of a with statement."""
    admin = AdminClient({"bootstrap.servers": host_port(broker.direct)})
    short = {"retention.bytes": "200000000", "segment.bytes": "100000000"}
    topics = [NewTopic(TO_READ, 1, 1), NewTopic(TO_WRITE, 1, 1, config=short), NewTopic(WIDE, PARTITIONS, 1)]
    for created in admin.create_topics(topics).values():
        created.result()
    _wait(
        lambda: all(each.leader >= 0 for each in admin.list_topics(WIDE, timeout=60).topics[WIDE].partitions.values())
    )
    produce(broker.direct, TO_READ, records)
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1_000_000 + index, committed_metadata="")
        for index in range(PARTITIONS)
    )
    commit = OffsetCommitRequest(group_id=STORED, topics=(OffsetCommitRequestTopic(name=WIDE, partitions=partitions),))
    with Wire(broker.sidecar, client_id="committer") as wire:
        _wait(lambda: all(not each.error_code for topic in wire.ask(commit, 8).topics for each in topic.partitions))
    with consumers(broker.sidecar, FULL, members=1):
        yield


def _wait(ready: Callable[[], bool]) -> None:
    """Waits until a condition is true. A broker may learn of a new topic or group with a delay."""
    ends = time.monotonic() + MADE_SECONDS
    while not ready():
        if time.monotonic() > ends:
            raise TimeoutError("the broker does not know the created topics")
        time.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--broker-port", type=int)
    parser.add_argument("others", nargs="*", type=parse_external_proxy, metavar="NAME=HOST:PORT")
    arguments = parser.parse_args()
    print(measure(arguments.quick, arguments.others, arguments.broker_port).text)
