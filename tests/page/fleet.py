"""An invented fleet, equal in each run, for the pages in tests and in the README's pictures."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from starlette.types import ASGIApp

from group_sidecar.codecs.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from group_sidecar.codecs.schema import encode
from group_sidecar.coordinator.model.facts import (
    ClientRefused,
    Departure,
    Fact,
    MemberGone,
    MemberInfo,
    MemberJoined,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
    SlowestMember,
)
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupState, GroupView, MemberView
from group_sidecar.metrics.flight_recorder import FlightRecorder
from tests.proxy.admin.served_app import NOW, admin, figures

COUNT = 10_000
"""The number of groups of a large fleet, besides CHECKOUT."""
CHECKOUT = "checkout"
"""The group with a story: see `checkout_story`."""
LIMIT = 8
MINUTE = 60.0
SECONDS = 3.2
"""Seconds that each rebalance of CHECKOUT takes."""

_TEAMS = ("billing", "catalogue", "fraud", "inventory", "mail", "orders", "pricing", "search", "shipping", "web")
_TASKS = ("audit", "cache", "enrich", "export", "index", "ledger", "notify", "report", "sync", "totals")
_HOUR = (
    (52, "expired", 3),
    (51.5, "fails to commit", 3),
    (49.5, "joins", 3),
    (43, "expired", 3),
    (40.5, "joins", 3),
    (36, "resubscribes", 1),
    (31, "expired", 3),
    (30.6, "fails to commit", 3),
    (28.5, "joins", 3),
    (26, "left", 6),
    (24.5, "joins", 6),
    (19, "expired", 3),
    (16.5, "joins", 3),
    (15, "joins", 8),
    (14, "is refused", 9),
    (13.9, "is refused", 9),
    (13.7, "is refused", 9),
    (12.5, "is refused", 9),
    (11.6, "is refused", 9),
    (8, "expired", 3),
    (7.5, "fails to commit", 3),
    (5.5, "joins", 3),
)
"""The events of CHECKOUT, as (minutes before now, event, number of the client)."""


def client(number: int) -> dict[str, Any]:
    """Returns the client id and the host of a client of CHECKOUT."""
    return {"client_id": f"checkout-{number}", "client_host": f"/10.0.3.{10 + number}"}


@dataclass
class Story:
    """Records the facts about CHECKOUT.

    Attributes:
        there: the current members: member id by the number of the client.
        since: when each client joined last.
    """

    facts: list[Fact] = field(default_factory=list)
    there: dict[int, str] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    generation: int = 41
    _incarnations: int = 0

    def joins(self, at: float, number: int) -> None:
        """A client joins, and the group rebalances."""
        self._incarnations += 1
        self.since[number] = at
        self.there[number] = f"checkout-{number}-{self._incarnations:08x}"
        self.facts.append(MemberJoined(group_id=CHECKOUT, at=at, member_id=self.there[number], **client(number)))
        self.rebalances(at, RebalanceCause.NEW_MEMBER, self.who(number), joined=1)

    def goes(self, at: float, number: int, how: Departure) -> None:
        """A member leaves or expires, and the group rebalances."""
        who = self.who(number)
        said = "the consumer is being closed" if how is Departure.LEFT else ""
        gone = MemberGone(group_id=CHECKOUT, at=at, member_id=who.member_id, how=how, said=said, **client(number))
        self.facts.append(gone)
        del self.there[number]
        cause = RebalanceCause.MEMBER_LEFT if how is Departure.LEFT else RebalanceCause.SESSION_EXPIRED
        self.rebalances(at, cause, who, gone=1, said=said)

    def rebalances(
        self, at: float, cause: RebalanceCause, by: MemberInfo, *, joined: int = 0, gone: int = 0, said: str = ""
    ) -> None:
        """Records the start and the completion of a rebalance."""
        self.facts.append(RebalanceStarted(group_id=CHECKOUT, at=at, cause=cause, by=by, said=said))
        self.generation += 1
        completed = RebalanceCompleted(
            group_id=CHECKOUT,
            at=at + SECONDS,
            cause=cause,
            by=by,
            said=said,
            generation=self.generation,
            protocol="cooperative-sticky",
            members=len(self.there),
            duration_seconds=SECONDS,
            joined=joined,
            gone=gone,
            slowest=SlowestMember(member_id=self.there.get(2, ""), **client(2), seconds=2.6),
            moved_partitions=2,
        )
        self.facts.append(completed)

    def is_refused(self, at: float, number: int) -> None:
        """Records the refusal of a client above the limit."""
        refused = ClientRefused(
            group_id=CHECKOUT,
            at=at,
            policy="group_max_size",
            error_code=81,
            size=LIMIT + 1,
            limit=LIMIT,
            **client(number),
        )
        self.facts.append(refused)

    def fails_to_commit(self, at: float) -> None:
        """Records a refused commit of a client that is no longer a member."""
        self.facts.append(OffsetsCommitted(group_id=CHECKOUT, at=at, accepted=0, refused=((25, 3),)))

    def who(self, number: int) -> MemberInfo:
        return MemberInfo(member_id=self.there.get(number, ""), **client(number))


def checkout_story(now: float = NOW) -> Story:
    """Returns an hour of CHECKOUT, in which one consumer expires repeatedly because it is too slow for its session."""
    story = Story()
    for number in range(1, 8):
        story.joins(now - 300 * MINUTE + number, number)
    for minutes, what, number in _HOUR:
        at = now - minutes * MINUTE
        match what:
            case "expired" | "left":
                story.goes(at, number, Departure(what))
            case "joins":
                story.joins(at, number)
            case "resubscribes":
                story.rebalances(at, RebalanceCause.SUBSCRIPTION_CHANGED, story.who(number))
            case "is refused":
                story.is_refused(at, number)
            case "fails to commit":
                story.fails_to_commit(at)
    return story


def checkout(now: float = NOW) -> tuple[GroupView, Story]:
    """Returns CHECKOUT at the end of its story, and the story."""
    story = checkout_story(now)
    members = []
    for number, member_id in sorted(story.there.items()):
        owned = {"orders.placed": (number - 1, number + 7), "payments.settled": (number - 1,)}
        parts = tuple(TopicPartition(topic=topic, partitions=partitions) for topic, partitions in owned.items())
        members.append(
            MemberView(
                member_id=member_id,
                **client(number),
                assignment=b"\0\3" + encode(ConsumerProtocolAssignment(assigned_partitions=parts), 3),
                since=story.since[number],
            )
        )
    offsets = {
        (topic, partition): CommittedOffset(1_204_500 + 13 * partition, at=now - 4 - partition)
        for topic, count in (("orders.placed", 16), ("payments.settled", 8))
        for partition in range(count)
    }
    view = GroupView(
        group_id=CHECKOUT,
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol="cooperative-sticky",
        leader=story.there[1],
        generation=story.generation,
        members=tuple(members),
        roster_known=True,
        offsets=offsets,
        last_rebalance_at=now - 5.5 * MINUTE + 3.2,
    )
    return view, story


def crowd(count: int, now: float = NOW) -> tuple[list[GroupView], list[Fact]]:
    """Returns `count` groups in all states, and the facts about their rebalances."""
    chance = Random(7)
    views: list[GroupView] = []
    facts: list[Fact] = []
    for number in range(count):
        group_id = f"{chance.choice(_TEAMS)}.{chance.choice(_TASKS)}-{number:04d}"
        at = now - chance.expovariate(1 / (90 * MINUTE))
        views.append(_group(chance, group_id, at))
        facts += _rebalances(chance, views[-1], at)
    return views, facts


def recorded(facts: Iterable[Fact]) -> FlightRecorder:
    """Returns a flight recorder that has observed these facts."""
    recorder = FlightRecorder(1 << 30)
    for fact in facts:
        recorder.observe(fact)
    return recorder


def _group(chance: Random, group_id: str, at: float) -> GroupView:
    states = (GroupState.STABLE, GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
    state = chance.choices(states, (88, 9, 2, 1))[0]
    size = 0 if state is GroupState.EMPTY else chance.choice((1, 2, 3, 3, 4, 6, 7, 8))
    members = (
        MemberView(member_id=f"{group_id}-{n}", client_id=f"c-{n}", client_host="/10.0.0.1") for n in range(size)
    )
    behind = chance.choice((0.5, 3, 30, 300))
    offsets = [10_000 - int(chance.expovariate(1 / behind)) for _ in range(4)]
    return GroupView(
        group_id=group_id,
        state=state,
        protocol_type="consumer",
        protocol="range",
        generation=chance.randrange(1, 90),
        members=tuple(members),
        roster_known=chance.random() > 0.02,
        offsets={("events", partition): CommittedOffset(offset, at=at) for partition, offset in enumerate(offsets)},
        fallback_reason=FallbackReason.COLD if chance.random() < 0.01 else None,
        last_rebalance_at=at,
    )


def _rebalances(chance: Random, view: GroupView, at: float) -> Iterator[Fact]:
    """Yields the rebalances of a group, the last one at `at`. Some groups have many."""
    cause = chance.choice(tuple(RebalanceCause))
    times = min(13, int(chance.paretovariate(1.2)))
    for back in reversed(range(times)):
        yield RebalanceCompleted(
            group_id=view.group_id,
            at=at - MINUTE * back,
            cause=cause,
            generation=view.generation - back,
            protocol="range",
            members=len(view.members),
            duration_seconds=1.5,
        )


def log_ends() -> dict[tuple[str, int], int]:
    """Returns the log ends of all partitions, as `tests.proxy.admin.served_app.sources` takes them."""
    ends = {("events", partition): 10_000 for partition in range(4)}
    ends |= {("orders.placed", partition): 1_204_512 + 41 * partition for partition in range(16)}
    return ends | {("payments.settled", partition): 1_204_500 + 13 * partition for partition in range(7)}


def fleet(count: int, **others: Any) -> ASGIApp:
    """Returns the admin port of a sidecar with CHECKOUT and `count` other groups.

    `others` are passed to `served_app.sources`.
    """
    view, story = checkout()
    views, facts = crowd(count)
    told = replace(figures(), answers={9: 18_204, 15: 911, 16: 377}, fallbacks={(9, FallbackReason.IN_DOUBT): 12})
    given = {
        "figures": lambda: told,
        "recorder": recorded([*facts, *story.facts]),
        "log_ends": log_ends(),
        "max_members": lambda _: LIMIT,
    }
    return admin([view, *views], **{**given, **others})
