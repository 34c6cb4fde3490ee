"""How long a message holds the event loop, the whole way through session and desk.

    python -m benchmarks.whole_steps [--groups 100000] [--only TEXT] [--elements 5000] [--profile]

Each message goes through a `Session` and the `BrokerDesk` of a copy with very many groups: the request is decoded,
judged and followed, the reply likewise. What is understood only behind a message that has gone on counts with it. The
time is CPU time of one thread, the longest of several rounds, with the garbage collector as in production.

Owns: how messages are sent and timed. Must not know: the messages (`whole_cases`), sockets.
"""

import argparse
import cProfile
import gc
import pstats
from collections.abc import Callable, Iterable, Iterator
from time import thread_time
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from benchmarks import whole_cases, whole_gateway_cases, whole_offset_cases
from benchmarks.loading import batch
from benchmarks.whole_cases import CROWD, MEMBERS, OWN, Case, Sizes, log_group, member_id
from group_sidecar.codecs.headers import RequestHeader, encode_reply, encode_request
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.coordinator.events import DescribedMember, GroupDescribed
from group_sidecar.coordinator.facts import Fact
from group_sidecar.coordinator.partitions import DEFAULT_PARTITIONS, partition_for
from group_sidecar.coordinator.views import GroupState
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.instruments import Instruments
from group_sidecar.proxy import garbage
from group_sidecar.proxy.desk import BrokerDesk
from group_sidecar.proxy.disposals import Origin
from group_sidecar.proxy.element_bounds import GROUP_COST, OFFSETS_OF_COST, ElementBounds
from group_sidecar.proxy.reply_rewriting import LARGEST_METADATA, REWRITTEN_TIMES
from group_sidecar.proxy.replying import MOST_DESCRIBED
from group_sidecar.proxy.session import MOST_KEPT, Session
from tests.proxy.playbook import certain_copy

GOAL_MS = 5.0
NOW = 100.0
LARGEST_FRAME = 104_857_600
OFFSETS = 10
"""Of each group in the log."""
BIG = 4_000
"""Offsets of the one group that has many."""
CROWDED = 990
"""Members of a group that is described by itself: about as many as an answer tells of."""
ROUNDS = 5
SETTLED, UNSETTLED = "settled", "unsettled"
JUDGED = {"group_max_size": {"limit": 1_000_000}}


class Taken(NamedTuple):
    """Milliseconds that the steps of a message took at most. `lost`: the connection ends with a reply owed."""

    request: float
    reply: float
    lost: float


class House:
    """A broker's copy with very many groups in its log, and the desk of its clients."""

    def __init__(self, groups: int, **settings: Any) -> None:
        instruments, recorder = Instruments(CollectorRegistry()), FlightRecorder(1 << 24)

        def observe(fact: Fact) -> None:
            instruments.observe(fact)
            recorder.observe(fact)

        self.copy = certain_copy(observe, limits={"groups": groups + 50_000}, **settings)
        self.desk = BrokerDesk(self.copy)
        self.manager = self.copy.manager
        self.copy.learn_open()
        self._load(groups)
        for number in range(MOST_DESCRIBED):
            self.describe(f"{SETTLED}-{number}", MEMBERS)
        for number in range(MOST_DESCRIBED):
            self.describe(f"{UNSETTLED}-{number}", MEMBERS)
            self.manager.obscure(f"{UNSETTLED}-{number}")
        self.describe(OWN, 1)

    def _load(self, groups: int) -> None:
        """Reads a log in which each group has some offsets, and one group very many."""
        now, follower = self.copy.epoch(NOW), self.manager.log
        follower.count_partitions(DEFAULT_PARTITIONS, now)
        names: dict[int, list[tuple[str, int]]] = {}
        for name, count in ((log_group(number), OFFSETS) for number in range(groups)):
            names.setdefault(partition_for(name), []).append((name, count))
        names.setdefault(partition_for("big"), []).append(("big", BIG))
        for number in range(DEFAULT_PARTITIONS):
            log = follower.begin_load(number, leader_epoch=0, start_offset=0, now=now)
            base = 0
            for name, count in names.get(number, []):
                keys = [key(name, index) for index in range(count)]
                exhaust(log.replay(batch(base, keys)))
                base += count
            exhaust(follower.follow(number, now, now))
            follower.caught_up(number, now, now)

    def describe(self, group: str, members: int) -> None:
        """The broker describes a group."""
        told = tuple(
            DescribedMember(
                member_id=member_id(group, number),
                instance_id=None,
                client_id="consumer-1",
                client_host="/10.0.0.1",
                metadata=bytes(60),
                assignment=bytes(60),
            )
            for number in range(members)
        )
        at = self.copy.epoch(NOW)
        self.manager.apply(
            [
                GroupDescribed(
                    group_id=group,
                    sent_at=at,
                    state=GroupState.STABLE if members else GroupState.DEAD,
                    protocol_type="consumer",
                    protocol="range",
                    members=told,
                    as_of=self.manager.changes_of(group)[0],
                )
            ],
            at,
        )

    def crowd(self, members: int) -> None:
        """The group of very many members is as if it had just begun its generation."""
        self.manager.relearn(CROWD, self.copy.epoch(NOW))
        self.describe(CROWD, members)


def key(group: str, index: int) -> bytes:
    """The key of a group's offset (OffsetCommitKey v1)."""
    name, topic = group.encode(), b"orders-%03d" % (index // 100)
    head = b"".join((b"\0\1", len(name).to_bytes(2, "big"), name, len(topic).to_bytes(2, "big"), topic))
    return head + (index % 100).to_bytes(4, "big")


def exhaust(turns: Iterator[Any]) -> None:
    """Takes all turns."""
    for _ in turns:
        pass


class Clock:
    """Times steps, under a profiler where one is given."""

    def __init__(self, profile: cProfile.Profile | None) -> None:
        self._profile = profile

    def time(self, *steps: Callable[[], Any]) -> float:
        """Milliseconds of all steps together."""
        if self._profile:
            self._profile.enable()
        began = thread_time()
        for step in steps:
            step()
        taken = thread_time() - began
        if self._profile:
            self._profile.disable()
        return taken * 1000


class Sender:
    """Sends a case through sessions, again and again."""

    def __init__(self, house: House, clock: Clock, pick: Callable[[Iterable[float]], float] = max) -> None:
        self._house, self._clock, self._pick = house, clock, pick
        self._desk = house.desk
        self.answered = False
        """Whether the last request was answered here."""

    def longest(self, case: Case) -> Taken:
        """The longest steps of some rounds, after one that is not timed: what is compiled once is compiled then."""
        self._round(case, Clock(None))
        self._lost(case, Clock(None))
        rounds = [self._round(case, self._clock) for _ in range(ROUNDS)]
        lost = [self._lost(case, self._clock) for _ in range(ROUNDS)]
        pick = self._pick
        return Taken(pick(each[0] for each in rounds), pick(each[1] for each in rounds), pick(lost))

    def _session(self, case: Case) -> Session:
        if case.crowd:
            self._house.crowd(case.crowd)
        self._desk._answering._replying._remembered.clear()
        return Session(self._desk, self._house.copy.traffic, Origin("10.0.0.1"), LARGEST_FRAME)

    def _sent(self, case: Case, session: Session, clock: Clock) -> float:
        frame = encode_request(case.request, RequestHeader(case.request.KEY, case.version, 1, "consumer-1"))
        commands: list[Any] = []
        taken = clock.time(lambda: commands.extend(session.receive_client(frame, NOW)), self._desk.catch_up)
        self.answered = any(type(each).__name__ == "ToClient" for each in commands)
        return taken

    def _round(self, case: Case, clock: Clock) -> tuple[float, float]:
        session = self._session(case)
        taken = self._sent(case, session, clock)
        replied = 0.0
        if not self.answered:
            frame = encode_reply(case.reply, case.version, 1)
            replied = clock.time(lambda: session.receive_upstream(frame, NOW), self._desk.catch_up)
        session.close(NOW)
        return taken, replied

    def _lost(self, case: Case, clock: Clock) -> float:
        session = self._session(case)
        self._sent(case, session, Clock(None))
        return self._ended(session, clock)

    def _ended(self, session: Session, clock: Clock) -> float:
        """The longest step when a connection ends."""
        taken = clock.time(lambda: session.close(NOW))
        while self._house.copy.losses:
            taken = max(taken, clock.time(self._desk.follow_losses))
        return taken

    def owed(self, case: Case) -> float:
        """The longest step when a connection ends on which as much is owed as may be kept for it."""
        frame = encode_request(case.request, RequestHeader(case.request.KEY, case.version, 1, "consumer-1"))
        most = 0.0
        for _ in range(ROUNDS):
            session = self._session(case)
            session.receive_client(frame * (2 * MOST_KEPT // len(frame)), NOW)
            most = max(most, self._ended(session, self._clock))
        return most


def cases(sizes: Sizes, groups: int) -> Iterator[Case]:
    """All that is timed. `groups`: as many as OffsetFetch is answered for."""
    yield from whole_offset_cases.commits(sizes)
    yield from whole_cases.joins(sizes)
    yield from whole_cases.leaves(sizes)
    yield from whole_cases.heartbeats(sizes)
    yield from whole_cases.descriptions(sizes, SETTLED, UNSETTLED, MOST_DESCRIBED, CROWDED)
    yield from whole_offset_cases.fetches(sizes, groups, BIG)
    yield from whole_offset_cases.ends(sizes)
    yield from whole_offset_cases.deletions(sizes)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--elements", type=int, help="of each message, in place of as many as are looked into")
    parser.add_argument("--shortest", action="store_true", help="of the rounds, in place of the longest")
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    asked = parser.parse_args()
    house = House(asked.groups, policies=JUDGED)
    most = house.copy.config.limits.inspected_elements
    bounds = ElementBounds(most)

    def size(api_key: int) -> int:
        return asked.elements or min(bounds.request(api_key), bounds.reply(api_key))

    gc.collect()
    gc.freeze()
    garbage.keep_short()
    print(f"{asked.groups:,} groups\n\n| message | request | reply | connection lost |\n| --- | ---: | ---: | ---: |")
    judge = House(0, policies={"offset_metadata_max_bytes": {"limit": len(whole_cases.LONG_NOTE) - 1}})
    all_cases = [(house, case) for case in cases(size, most // (GROUP_COST + OFFSETS // OFFSETS_OF_COST))]
    all_cases += [
        (judge, case) for case in whole_offset_cases.judged(bounds.request(ApiKey.OFFSET_COMMIT, judged=True))
    ]
    gateway = House(0, advertise=whole_gateway_cases.advertised)
    all_cases += [(gateway, case) for case in whole_gateway_cases.rewritten(REWRITTEN_TIMES * most, LARGEST_METADATA)]
    for where, case in all_cases:
        if asked.only not in case.name:
            continue
        profile = cProfile.Profile() if asked.profile else None
        sender = Sender(where, Clock(profile), min if asked.shortest else max)
        taken = sender.longest(case)
        reply = "answered" if sender.answered else f"{taken.reply:.1f}"
        print(f"| {case.name} | {taken.request:.1f} | {reply} | {taken.lost:.1f} |", flush=True)
        if isinstance(case.request, DeleteGroupsRequest):
            print(f"| 512 KiB of {case.name} | - | - | {sender.owed(case):.1f} |", flush=True)
        if profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
