"""Compares the time of the sidecar's own answers with that of the broker's answers over a direct connection.

    python -m benchmarks.answers [--quick]

Starts a real broker, whose JVM uses all its compilers, and a sidecar with the `exclusive` setting. Creates groups
through the sidecar, and then asks both sides in turn, round by round, with the same client. The sidecar's metrics prove
that the sidecar gave every answer itself. `alternating_requests` sends and times the requests.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.alternating_requests import Connections, Measurement, VersionedRequest, ask_in_turn, table
from benchmarks.broker_and_sidecar import SIDECAR, max_connections
from benchmarks.many_groups import PARTITIONS, TOPICS, commit_all, commit_request, create_topics, groups_of_consumers
from benchmarks.section import Section
from benchmarks.targets import JAVA_OPTIONS
from benchmarks.workloads import Asker
from group_sidecar.codecs.api_registry import api_name
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.kafka.broker import KafkaBroker
from tests.kafka.sidecar_process import SidecarProcess

APIS = ("ListGroups", "DescribeGroups", "OffsetFetch")
LIST, DESCRIBE, FETCH = 4, 5, 8
"""The versions of ListGroups, DescribeGroups and OffsetFetch."""
GROUPS = 10_000
BROKER = {
    "group.initial.rebalance.delay.ms": "3000",  # All members of a group join in one rebalance.
    "log.index.size.max.bytes": "4096",  # The minimum, to save memory in each partition.
}
MEMBERS = {"one": 1, "three": 3, "hundred": 100}
"""How many members each kind of group has, by the prefix of its name."""
MAX_LARGE_IN_FLIGHT = 16
"""The maximum number of in-flight commits of thousands of partitions."""
ABOUT = """\
`python -m benchmarks.answers` measures the microseconds from sending a question to the complete answer. Broker and
sidecar have one connection each, and are asked in turn. There are {groups:,} groups. The broker's JVM uses all its
compilers and is warm. The sidecar has the setting `answers.exclusive` and reads the offsets log. The benchmark asserts
that both answers have the same size, and that the sidecar gave its answers itself. "changed": a commit before each
question changes an offset that the question asks for. "first time": each question is about a group that no earlier
question named. After {warm_up} rounds of warm-up, {rounds} rounds count."""


class Plan(NamedTuple):
    """The amounts that are measured.

    `partitions` are the numbers of partitions of the larger groups. They are small enough for the sidecar to answer
    itself (`limits.inspected_elements`). `once` is the number of first-time requests of each kind in a round.
    """

    rounds: int
    warm_up: int
    partitions: tuple[int, ...]
    once: int


FULL = Plan(rounds=10, warm_up=8, partitions=(1_000, 2_000), once=10)
QUICK = Plan(rounds=4, warm_up=3, partitions=(1_000,), once=5)


def fetch(group: str, partitions: int | None) -> VersionedRequest:
    """Returns an OffsetFetch request for some partitions of a group. `partitions` is their number; None for all."""
    topics = None
    if partitions is not None:
        topics = tuple(
            OffsetFetchRequestTopic(name=name, partition_indexes=tuple(range(min(PARTITIONS, partitions - first))))
            for name, first in zip(TOPICS, range(0, partitions, PARTITIONS), strict=False)
        )
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=topics),)), FETCH


def describe(group: str) -> VersionedRequest:
    """Returns a DescribeGroups request for a group."""
    return DescribeGroupsRequest(groups=(group,)), DESCRIBE


def listing() -> VersionedRequest:
    """Returns a ListGroups request for all groups."""
    return ListGroupsRequest(), LIST


class Stage:
    """A broker, a sidecar, and the groups of the requests. The processes end when `stack` is closed."""

    def __init__(self, plan: Plan, stack: ExitStack) -> None:
        self.plan = plan
        self._stack = stack
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.broker = KafkaBroker(folder / "broker", properties=BROKER, java_options=JAVA_OPTIONS)
        self.broker.start()
        stack.callback(self.broker.kill)  # A clean stop would take half a minute to close its logs.
        self.broker.wait_for_coordinator()
        create_topics(self.broker.direct, TOPICS[: max(plan.partitions) // PARTITIONS])
        self.sidecar = stack.enter_context(
            SidecarProcess(
                folder / "sidecar", listen=self.broker.sidecar, upstream=self.broker.client, settings=SIDECAR
            )
        )
        self.sidecar.wait_for_log()

    def fill(self) -> None:
        """Creates all groups except those of `few`."""
        plan, address = self.plan, self.broker.sidecar
        names = [name for partitions in (1, 10) for name in self.firsts(f"partitions-{partitions}")]
        commit_all(address, (commit_request(name, int(name.split("-")[1])) for name in names))
        for partitions in plan.partitions:
            names = [
                f"partitions-{partitions}",
                *self.firsts(f"named-{partitions}", 1),
                *self.firsts(f"all-{partitions}", 1),
            ]
            commit_all(address, (commit_request(name, partitions) for name in names), MAX_LARGE_IN_FLIGHT)
        sizes = {"hundred": MEMBERS["hundred"]}
        for kind, members in MEMBERS.items():
            sizes |= dict.fromkeys(self.firsts(kind, 1 if members > 3 else plan.once), members)
        self._stack.enter_context(groups_of_consumers(address, sizes))
        commit_all(address, (commit_request(f"group-{number:05}", 1) for number in range(GROUPS)))
        self.sidecar.wait_for_log()

    def few(self) -> None:
        """Creates the few groups that exist before `fill`."""
        commit_all(
            self.broker.sidecar, [commit_request(f"partitions-{partitions}", partitions) for partitions in (1, 10)]
        )
        self._stack.enter_context(groups_of_consumers(self.broker.sidecar, {"one": 1, "three": 3}))

    def firsts(self, kind: str, once: int | None = None) -> list[str]:
        """Returns the names of groups for first-time requests. `once` is their number per round."""
        return [f"{kind}-{number}" for number in range(self.plan.rounds * (self.plan.once if once is None else once))]


def few_groups() -> list[Measurement]:
    """Returns the measurements that are made while there are only a few groups."""
    return [Measurement("ListGroups, 4 groups", [listing()], 200)]


def small() -> list[Measurement]:
    """Returns the measurements of small groups, with repeated requests."""
    return [
        Measurement("DescribeGroups, 1 member", [describe("one")], 200),
        Measurement("DescribeGroups, 3 members", [describe("three")], 200),
        Measurement("OffsetFetch, 1 named", [fetch("partitions-1", 1)], 200),
        Measurement("OffsetFetch, 10 named", [fetch("partitions-10", 10)], 200),
        Measurement("OffsetFetch, all of 10", [fetch("partitions-10", None)], 200),
        Measurement(
            "OffsetFetch, 10 named, changed", [fetch("partitions-10", 10)], 40, commit_request("partitions-10", 1)
        ),
    ]


def small_once(stage: Stage) -> list[Measurement]:
    """Returns the measurements of small groups, with first-time requests."""
    times, firsts = stage.plan.once, stage.firsts
    return [
        Measurement("DescribeGroups, 1 member, first time", [*map(describe, firsts("one"))], times, once=True),
        Measurement("DescribeGroups, 3 members, first time", [*map(describe, firsts("three"))], times, once=True),
        Measurement(
            "OffsetFetch, 1 named, first time", [fetch(g, 1) for g in firsts("partitions-1")], times, once=True
        ),
        Measurement(
            "OffsetFetch, 10 named, first time", [fetch(g, 10) for g in firsts("partitions-10")], times, once=True
        ),
    ]


def large(plan: Plan) -> list[Measurement]:
    """Returns the measurements of large groups, and of all groups, with repeated requests."""
    first = commit_request(f"partitions-{plan.partitions[0]}", 1)
    questions = [
        Measurement("DescribeGroups, 100 members", [describe("hundred")], 200),
        Measurement(f"ListGroups, {GROUPS:,} groups", [listing()], 40),
        Measurement(f"ListGroups, {GROUPS:,} groups, changed", [listing()], 20, first),
    ]
    for count in plan.partitions:
        group, times = f"partitions-{count}", 50_000 // count + 15
        change = commit_request(group, 1)
        for name, asked in ((f"{count:,} named", fetch(group, count)), (f"all of {count:,}", fetch(group, None))):
            questions.append(Measurement(f"OffsetFetch, {name}", [asked], times))
            questions.append(Measurement(f"OffsetFetch, {name}, changed", [asked], times // 2, change))
    return questions


def large_once(stage: Stage) -> list[Measurement]:
    """Returns the measurements of large groups, with first-time requests."""
    hundred = [describe(group) for group in stage.firsts("hundred", 1)]
    questions = [Measurement("DescribeGroups, 100 members, first time", hundred, 1, once=True)]
    for count in stage.plan.partitions:
        named = [fetch(group, count) for group in stage.firsts(f"named-{count}", 1)]
        all_there_are = [fetch(group, None) for group in stage.firsts(f"all-{count}", 1)]
        questions.append(Measurement(f"OffsetFetch, {count:,} named, first time", named, 1, once=True))
        questions.append(Measurement(f"OffsetFetch, all of {count:,}, first time", all_there_are, 1, once=True))
    return questions


def answered(sidecar: SidecarProcess) -> dict[str, float]:
    """Returns how many requests the sidecar has answered itself, by API."""
    return {api: sidecar.metric("group_sidecar_mirror_answers_total", api=api) for api in APIS}


@contextmanager
def assert_answered_locally(sidecar: SidecarProcess, questions: Sequence[Measurement]) -> Iterator[None]:
    """Asserts that the sidecar answers all requests itself."""
    before = answered(sidecar)
    yield
    after = answered(sidecar)
    for api in APIS:
        expected = sum(len(each.sidecar) for each in questions if api_name(each.asked[0][0].KEY) == api)
        assert after[api] - before[api] == expected, f"{api}: {after[api] - before[api]} of {expected} answered here"


def measure(quick: bool) -> Section:
    """Starts the processes and measures."""
    plan = QUICK if quick else FULL
    max_connections()  # The call raises the descriptor limit of this process and of the processes that it starts.
    with ExitStack() as stack:
        stage = Stage(plan, stack)
        sides = Connections(
            *(Asker(each) for each in (stage.broker.direct, stage.broker.sidecar, stage.broker.sidecar))
        )
        stack.callback(sides.close)
        stage.few()
        ask_in_turn([*few_groups(), *small()], sides, plan.warm_up, "few groups, warm-up")
        few = few_groups()
        with assert_answered_locally(stage.sidecar, few):
            ask_in_turn(few, sides, plan.rounds, "few groups, round")
        stage.fill()
        ask_in_turn([*small(), *large(plan)], sides, plan.warm_up, "warm-up")
        little, much = [*small(), *small_once(stage)], [*large(plan), *large_once(stage)]
        with assert_answered_locally(stage.sidecar, [*little, *much]):
            ask_in_turn([*little, *much], sides, plan.rounds, "round")
    about = ABOUT.format(groups=GROUPS, warm_up=plan.warm_up, rounds=plan.rounds)
    lines = [about, "", *table([*few, *little]), "", *table(much)]
    return Section("Local answers", "\n".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    print(measure(parser.parse_args().quick).text)
