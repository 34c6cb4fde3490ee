"""Measures how long a message holds the event loop on its whole way through session and dispatcher.

    python -m benchmarks.whole_steps [--groups 100000] [--only TEXT] [--elements 5000] [--profile]

Each message goes through a `Session` and the `BrokerDispatcher` of a copy with very many groups. The request is
decoded, checked and applied, and so is the reply. Deferred work counts for the message that caused it. The time is CPU
time of one thread, the longest of several rounds, with the garbage collector as in production. `largest_group_messages`
defines the messages.
"""

import argparse
import cProfile
import gc
import pstats
from collections.abc import Callable, Iterable, Iterator
from time import thread_time
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from benchmarks import largest_gateway_replies, largest_group_messages, largest_offset_messages
from benchmarks.largest_group_messages import CROWD, MEMBERS, OWN, Case, Sizes, log_group, member_id
from benchmarks.loading import batch
from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.headers import RequestHeader, encode_reply, encode_request
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.coordinator.model.events import DescribedMember, GroupDescribed, MemberSeen
from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.coordinator.state.log_partitions import DEFAULT_PARTITIONS, partition_for
from group_sidecar.metrics.fact_counters import FactCounters
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.listener_counters import ListenerCounters
from group_sidecar.proxy.config.limits_section import Limits
from group_sidecar.proxy.config.model import DEFAULT_LISTENER
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.dataplane.session import Session, SessionLimits
from group_sidecar.proxy.handlers.api_table import make_reply_builder
from group_sidecar.proxy.handlers.decode_limits import GROUP_COST, LOGGED_OFFSETS_PER_MICROSECOND, DecodeLimits
from group_sidecar.proxy.handlers.dispatcher import BrokerDispatcher
from group_sidecar.proxy.handlers.reply_builder import MAX_DESCRIBED_GROUPS
from group_sidecar.proxy.handlers.reply_rewriter import LARGEST_METADATA, REWRITTEN_TIMES
from group_sidecar.proxy.runtime import garbage_collection
from tests.proxy.dataplane.playbook import complete_state

GOAL_MS = 5.0
NOW = 100.0
LIMITS = Limits()
SESSION_LIMITS = SessionLimits(LIMITS.largest_frame, LIMITS.in_flight_requests, LIMITS.kept_bytes)
OFFSETS = 10
"""Offsets of each group in the log."""
BIG = 4_000
"""Offsets of the one group that has many."""
CROWDED = 990
"""Members of a group that is described alone. The sidecar describes about this number in one answer."""
ROUNDS = 5
SETTLED, UNSETTLED = "settled", "unsettled"
JUDGED = {"group_max_size": {"limit": 1_000_000}}


class StepTimes(NamedTuple):
    """The maximum milliseconds of the steps of a message. `lost` is the end of a connection with a pending reply."""

    request: float
    reply: float
    lost: float


class BrokerWithManyGroups:
    """The copy of a broker with very many groups in its log, and the dispatcher of its clients."""

    def __init__(self, groups: int, **settings: Any) -> None:
        fact_counters, recorder = FactCounters(CollectorRegistry()), FlightRecorder(1 << 24)

        def observe(fact: Fact) -> None:
            fact_counters.observe(fact)
            recorder.observe(fact)

        self.state = complete_state(observe, limits={"groups": groups + 50_000}, **settings)
        self.dispatcher = BrokerDispatcher(
            self.state, ListenerCounters(DEFAULT_LISTENER), make_reply_builder(self.state)
        )
        self.manager = self.state.copy.manager
        self.state.accesses[DEFAULT_LISTENER].learn_anonymous_access(Origin("10.0.0.1"))
        self._load(groups)
        for number in range(MAX_DESCRIBED_GROUPS):
            self.describe(f"{SETTLED}-{number}", MEMBERS)
        for number in range(MAX_DESCRIBED_GROUPS):
            self.describe(f"{UNSETTLED}-{number}", MEMBERS)
            self.manager.note_unread_write(f"{UNSETTLED}-{number}")
        self.describe(OWN, 1)

    def _load(self, groups: int) -> None:
        """Reads a log in which each group has some offsets, and one group has very many."""
        now, follower = self.state.copy.epoch(NOW), self.manager.log
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
                run_to_end(log.replay(batch(base, keys)))
                base += count
            run_to_end(follower.merge(number, now))
            run_to_end(follower.end_reached(number, now, now))

    def describe(self, group: str, members: int) -> None:
        """Applies a heartbeat of each member of a group, and then the broker's description of the group."""
        described_members = tuple(
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
        at = self.state.copy.epoch(NOW)
        heartbeats = [
            MemberSeen(
                group_id=group,
                sent_at=at,
                member_id=described.member_id,
                instance_id=None,
                generation=7,
                client_id=described.client_id,
                client_host=described.client_host,
                no_rebalance=True,
            )
            for described in described_members
        ]
        self.manager.apply(heartbeats, at)
        description = GroupDescribed(
            group_id=group,
            sent_at=at,
            state=GroupState.STABLE if members else GroupState.DEAD,
            protocol_type="consumer",
            protocol="range",
            members=described_members,
            as_of=self.manager.changes_of(group)[0],
        )
        self.manager.apply([description], at)

    def crowd(self, members: int) -> None:
        """Creates the group with very many members again, at the beginning of its generation."""
        self.manager.forget_group_state(CROWD, self.state.copy.epoch(NOW))
        self.describe(CROWD, members)


def key(group: str, index: int) -> bytes:
    """Returns the key of a group's offset (OffsetCommitKey v1)."""
    name, topic = group.encode(), b"orders-%03d" % (index // 100)
    head = b"".join((b"\0\1", len(name).to_bytes(2, "big"), name, len(topic).to_bytes(2, "big"), topic))
    return head + (index % 100).to_bytes(4, "big")


def run_to_end(turns: Iterator[Any]) -> None:
    """Runs an iterator to its end."""
    for _ in turns:
        pass


class Clock:
    """Times steps, under a profiler if one is given."""

    def __init__(self, profile: cProfile.Profile | None) -> None:
        self._profile = profile

    def time(self, *steps: Callable[[], Any]) -> float:
        """Runs all steps. Returns their total milliseconds."""
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
    """Sends a case through sessions repeatedly."""

    def __init__(
        self, broker: BrokerWithManyGroups, clock: Clock, pick: Callable[[Iterable[float]], float] = max
    ) -> None:
        self._house, self._clock, self._pick = broker, clock, pick
        self._dispatcher = broker.dispatcher
        self.answered = False
        """Whether the sidecar answered the last request itself."""

    def longest(self, case: Case) -> StepTimes:
        """Sends the case in several rounds. Returns the times that `pick` selects, by default the longest ones.

        The first round is not timed, because it compiles some code.
        """
        self._round(case, Clock(None))
        self._note_lost(case, Clock(None))
        rounds = [self._round(case, self._clock) for _ in range(ROUNDS)]
        lost = [self._note_lost(case, self._clock) for _ in range(ROUNDS)]
        pick = self._pick
        return StepTimes(pick(each[0] for each in rounds), pick(each[1] for each in rounds), pick(lost))

    def _session(self, case: Case) -> Session:
        if case.crowd:
            self._house.crowd(case.crowd)
        self._house.state.versions.revision += 1  # The sidecar then builds its replies again.
        return Session(self._dispatcher, self._house.state.traffic, Origin("10.0.0.1"), SESSION_LIMITS)

    def _sent(self, case: Case, session: Session, clock: Clock) -> float:
        frame = encode_request(case.request, RequestHeader(case.request.KEY, case.version, 1, "consumer-1"))
        commands: list[Any] = []
        taken = clock.time(
            lambda: commands.extend(session.receive_client(frame, NOW)), self._house.state.deferred.apply
        )
        self.answered = any(type(each).__name__ == "ToClient" for each in commands)
        return taken

    def _round(self, case: Case, clock: Clock) -> tuple[float, float]:
        session = self._session(case)
        taken = self._sent(case, session, clock)
        replied = 0.0
        if not self.answered:
            frame = encode_reply(case.reply, case.version, 1)
            replied = clock.time(lambda: session.receive_upstream(frame, NOW), self._house.state.deferred.apply)
        session.close(NOW)
        return taken, replied

    def _note_lost(self, case: Case, clock: Clock) -> float:
        session = self._session(case)
        self._sent(case, session, Clock(None))
        return self._ended(session, clock)

    def _ended(self, session: Session, clock: Clock) -> float:
        """Returns the longest step at the end of a connection."""
        taken = clock.time(lambda: session.close(NOW))
        while self._house.state.lost_requests:
            taken = max(taken, clock.time(self._dispatcher.apply_lost_requests))
        return taken

    def owed(self, case: Case) -> float:
        """Returns the longest step at the end of a connection with the maximum number of pending replies."""
        frame = encode_request(case.request, RequestHeader(case.request.KEY, case.version, 1, "consumer-1"))
        most = 0.0
        for _ in range(ROUNDS):
            session = self._session(case)
            session.receive_client(frame * (2 * LIMITS.kept_bytes // len(frame)), NOW)
            most = max(most, self._ended(session, self._clock))
        return most


def cases(sizes: Sizes, groups: int) -> Iterator[Case]:
    """Yields all cases. `groups` is the maximum number of groups for which the sidecar answers OffsetFetch."""
    yield from largest_offset_messages.commits(sizes)
    yield from largest_group_messages.joins(sizes)
    yield from largest_group_messages.leaves(sizes)
    yield from largest_group_messages.heartbeats(sizes)
    yield from largest_group_messages.descriptions(sizes, SETTLED, UNSETTLED, MAX_DESCRIBED_GROUPS, CROWDED)
    yield from largest_offset_messages.fetches(sizes, groups, BIG)
    yield from largest_offset_messages.ends(sizes)
    yield from largest_offset_messages.deletions(sizes)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--only", default="", help="only cases whose names contain this text")
    parser.add_argument("--elements", type=int, help="elements per message, instead of the decode limit")
    parser.add_argument("--shortest", action="store_true", help="report the shortest round instead of the longest")
    parser.add_argument("--profile", action="store_true", help="print a profile of each case")
    options = parser.parse_args()
    broker = BrokerWithManyGroups(options.groups, policies=JUDGED)
    most = broker.state.config.limits.inspected_elements
    bounds = DecodeLimits(most)

    def size(api_key: int) -> int:
        return options.elements or min(bounds.request(api_key), bounds.reply(api_key))

    gc.collect()
    gc.freeze()
    # CPython plans a full collection by the size of the last one. Without an empty one, the next would be too late and
    # would take 100 ms, which never happens in a sidecar.
    gc.collect()
    garbage_collection.keep_collections_short()
    print(f"{options.groups:,} groups\n\n| message | request | reply | connection lost |\n| --- | ---: | ---: | ---: |")
    judge = BrokerWithManyGroups(
        0, policies={"offset_metadata_max_bytes": {"limit": len(largest_group_messages.LONG_NOTE) - 1}}
    )
    all_cases = [
        (broker, case) for case in cases(size, most // (GROUP_COST + OFFSETS // LOGGED_OFFSETS_PER_MICROSECOND))
    ]
    all_cases += [
        (judge, case) for case in largest_offset_messages.judged(bounds.request(ApiKey.OFFSET_COMMIT, judged=True))
    ]
    gateway = BrokerWithManyGroups(0, advertise=largest_gateway_replies.advertised)
    all_cases += [
        (gateway, case) for case in largest_gateway_replies.rewritten(REWRITTEN_TIMES * most, LARGEST_METADATA)
    ]
    for simulated, case in all_cases:
        if options.only not in case.name:
            continue
        profile = cProfile.Profile() if options.profile else None
        sender = Sender(simulated, Clock(profile), min if options.shortest else max)
        taken = sender.longest(case)
        reply = "answered" if sender.answered else f"{taken.reply:.1f}"
        print(f"| {case.name} | {taken.request:.1f} | {reply} | {taken.lost:.1f} |", flush=True)
        if isinstance(case.request, DeleteGroupsRequest):
            print(f"| 512 KiB of {case.name} | - | - | {sender.owed(case):.1f} |", flush=True)
        if profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
