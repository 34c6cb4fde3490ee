"""What answers cost: the sidecar's own beside those of the broker, asked directly.

    python -m benchmarks.answers [--rounds N]

Starts a real broker, with its whole compiler, and a sidecar that vouches for all clients; makes 10,000 groups
through the sidecar, one with 100 members, two with 1,000 and 10,000 committed partitions; and asks both sides in
turn, round by round, with the same client. Prints a table of the 50th and 99th percentiles, in milliseconds from
sending a request to having its whole reply. That every answer was the sidecar's own is asserted from its metrics.

"changed": a commit changed what is asked for before each question, so that no answer can be remembered.
"""

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.groups import PARTITIONS, TOPICS, commit_all, commit_of, consumers, create_topics
from group_sidecar.codecs.headers import RequestHeader, encode_request
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from group_sidecar.codecs.registry import api_name
from group_sidecar.codecs.schema import Struct
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address
from tests.kafka.sidecar import SidecarProcess

APIS = ("ListGroups", "DescribeGroups", "OffsetFetch")
COMMIT = 8
GROUPS = 10_000
SMALL, LARGE = 1_000, 10_000
BROKER = {
    "group.initial.rebalance.delay.ms": "3000",  # All members join in one rebalance.
    "log.index.size.max.bytes": "4096",  # The least of memory for each of the 10,000 partitions.
}
JAVA_OPTIONS = "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC -Xmx1g"
"""Over the flags for tests, which start quickly: here the broker is to be as fast as it can."""


@dataclass
class Question:
    """What is asked, `times` in a round, behind `change` where that is given.

    Attributes:
        size: bytes of the answer.
        direct, sidecar: seconds that each took.
    """

    name: str
    request: Struct
    version: int
    times: int
    change: Struct | None = None
    size: int = 0
    direct: list[float] = field(default_factory=list)
    sidecar: list[float] = field(default_factory=list)


def fetch(group: str, partitions: int | None) -> OffsetFetchRequest:
    """Asks for so many partitions; None: for all there are."""
    topics = None
    if partitions is not None:
        topics = tuple(
            OffsetFetchRequestTopic(name=name, partition_indexes=tuple(range(PARTITIONS)))
            for name in TOPICS[: partitions // PARTITIONS]
        )
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=topics),))


def questions() -> list[Question]:
    """All that is measured."""
    describe, everything = DescribeGroupsRequest(groups=("members",)), ListGroupsRequest()
    small, large = commit_of("small", 1), commit_of("large", 1)
    return [
        Question("DescribeGroups, 100 members", describe, 5, 200),
        Question(f"ListGroups, {GROUPS:,} groups", everything, 4, 40),
        Question(f"ListGroups, {GROUPS:,} groups, changed", everything, 4, 40, small),
        Question(f"OffsetFetch, {SMALL:,} named", fetch("small", SMALL), 8, 100),
        Question(f"OffsetFetch, {SMALL:,} named, changed", fetch("small", SMALL), 8, 50, small),
        Question(f"OffsetFetch, all of {SMALL:,}", fetch("small", None), 8, 100),
        Question(f"OffsetFetch, all of {SMALL:,}, changed", fetch("small", None), 8, 50, small),
        Question(f"OffsetFetch, {LARGE:,} named", fetch("large", LARGE), 8, 20),
        Question(f"OffsetFetch, {LARGE:,} named, changed", fetch("large", LARGE), 8, 20, large),
        Question(f"OffsetFetch, all of {LARGE:,}", fetch("large", None), 8, 20),
        Question(f"OffsetFetch, all of {LARGE:,}, changed", fetch("large", None), 8, 20, large),
    ]


class Asker:
    """One connection that asks, and knows how long each answer took; `size`: bytes of the last one."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 22)
        self.size = 0

    def ask(self, frame: bytes) -> float:
        """Seconds until the reply is there."""
        view, received, size = memoryview(self._buffer), 0, 4
        began = time.perf_counter()
        self._socket.sendall(frame)
        while received < size:
            count = self._socket.recv_into(view[received:])
            if not count:
                raise ConnectionError("the connection ended before the reply")
            received += count
            if received >= 4:
                size = 4 + int.from_bytes(view[:4], "big")
        taken = time.perf_counter() - began
        self.size = size
        return taken

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def framed(request: Struct, version: int) -> bytes:
    """A request as it goes out."""
    return encode_request(request, RequestHeader(request.KEY, version, 1, "bench"))


@contextmanager
def populated() -> Iterator[tuple[KafkaBroker, SidecarProcess]]:
    """A broker and a sidecar that know all the groups."""
    os.environ["_JAVA_OPTIONS"] = JAVA_OPTIONS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(KafkaBroker(folder / "broker", properties=BROKER))
        broker.wait_for_coordinator()
        create_topics(broker.direct)
        settings = {"answers": {"exclusive": True}}
        sidecar = stack.enter_context(
            SidecarProcess(folder / "sidecar", listen=broker.sidecar, upstream=broker.client, settings=settings)
        )
        commit_all(broker.sidecar, (commit_of(f"group-{number:05}", 1) for number in range(GROUPS - 3)))
        commit_all(broker.sidecar, [commit_of("small", SMALL), commit_of("large", LARGE)])
        stack.enter_context(consumers(broker.sidecar, "members"))
        yield broker, sidecar


def measure(question: Question, asker: Asker, changer: Asker) -> list[float]:
    """Seconds of each answer of a round."""
    frame = framed(question.request, question.version)
    change = framed(question.change, COMMIT) if question.change else b""
    taken = []
    for _ in range(question.times):
        if change:
            changer.ask(change)
        taken.append(asker.ask(frame))
    return taken


def ask_in_turn(
    asked: Sequence[Question], direct: Asker, sidecar: Asker, changer: Asker, *, direct_first: bool
) -> None:
    """One round. Changes go through the sidecar, whoever is asked then."""
    for question in asked:
        for side in (direct, sidecar) if direct_first else (sidecar, direct):
            taken = measure(question, side, changer)
            (question.direct if side is direct else question.sidecar).extend(taken)
        assert direct.size == sidecar.size, f"{question.name}: the answers differ"
        question.size = sidecar.size


def run(rounds: int, warm_up: int) -> None:
    """Measures, and prints the table."""
    with populated() as (broker, sidecar):
        direct, through, changer = Asker(broker.direct), Asker(broker.sidecar), Asker(broker.sidecar)
        for number in range(warm_up):
            print(f"warm-up {number + 1} of {warm_up}", file=sys.stderr)
            ask_in_turn(questions(), direct, through, changer, direct_first=number % 2 == 0)
        asked, before = questions(), answered(sidecar)
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            ask_in_turn(asked, direct, through, changer, direct_first=number % 2 == 0)
        after = answered(sidecar)
    for api in before:
        expected = sum(len(each.sidecar) for each in asked if api_name(each.request.KEY) == api)
        assert after[api] - before[api] == expected, f"{api}: {after[api] - before[api]} of {expected} answered locally"
    for line in table(asked):
        print(line)


def answered(sidecar: SidecarProcess) -> dict[str, float]:
    """How many questions the sidecar has answered itself, by API."""
    return {api: sidecar.metric("group_sidecar_mirror_answers_total", api=api) for api in APIS}


def table(asked: Sequence[Question]) -> list[str]:
    """The figures as Markdown."""
    lines = [
        "| milliseconds | KB | broker p50 | sidecar p50 | ratio | broker p99 | sidecar p99 | ratio |",
        "|---" * 8 + "|",
    ]
    for question in asked:
        cells = [question.name, f"{question.size / 1e3:,.0f}"]
        for percent in (50, 99):
            direct, sidecar = (percentile(taken, percent) for taken in (question.direct, question.sidecar))
            cells += [f"{direct * 1e3:.2f}", f"{sidecar * 1e3:.2f}", f"**{sidecar / direct:.2f}**"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which so many percent lie."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=10)
    arguments = parser.parse_args()
    run(arguments.rounds, arguments.warm_up)
