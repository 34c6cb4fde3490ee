"""What is told of groups and of the sidecar: read once, for JSON and pages alike.

Owns: `GroupData`: which groups are told, in which order. Must not know: HTTP, HTML, how views and facts came about.

Ten thousand groups are a lot of work for the thread that the data path runs in. So items are made one by one, and
between two of them frames have their turn.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from importlib.metadata import version
from itertools import count, islice
from time import perf_counter
from typing import TypeVar

import trio

from group_sidecar.codecs.registry import api_name
from group_sidecar.coordinator.views import GroupView, Lacking
from group_sidecar.metrics.collector import OutletHealth
from group_sidecar.metrics.instruments import DISTRIBUTION
from group_sidecar.metrics.records import timestamp
from group_sidecar.metrics.survey import GroupFigures, Sums, batches, newest, offsets_of
from group_sidecar.metrics.why import why
from group_sidecar.proxy.admin import models as m
from group_sidecar.proxy.admin.members import Assigned, each_member, member_count, newer, owners
from group_sidecar.proxy.admin.rows import Past, Stand, coordinator_row, member_row, summary
from group_sidecar.proxy.admin.sources import AdminSources, Readiness

T = TypeVar("T")
K = TypeVar("K", bound=tuple[str | float, int])

SLICE_SECONDS = 0.0005
"""For so long, and an item, frames may wait."""
SORTED_AT_ONCE = 500

_Pasts = dict[str, Past]
_Key = Callable[[GroupFigures], float | None]


class GroupData:
    """What JSON and pages tell. Methods give None where there is no such group."""

    def __init__(self, sources: AdminSources) -> None:
        self._sources = sources

    async def groups(self, asked: m.GroupsQuery) -> m.Groups:
        """The groups that match, sorted, some of them."""
        survey = await self._sources.surveyed()
        found = await _matching(survey.groups, asked)
        pasts: _Pasts = {}
        if asked.cause or asked.sort == "rebalances":
            pasts = await self._pasts(found)
        if asked.cause:
            found = [figures for figures in found if pasts[figures.view.group_id].cause is asked.cause]
        shown = await _sorted(found, asked, pasts)
        pasts = pasts or await self._pasts(shown)
        rows = await made(summary(figures, pasts[figures.view.group_id]) for figures in shown)
        return m.Groups(
            at=timestamp(survey.at),
            total=len(found),
            all=len(survey.groups),
            unreachable=self.unreachable(),
            groups=rows,
        )

    def unreachable(self) -> list[m.UnreachableBroker]:
        """The brokers that do not answer."""
        return [
            m.UnreachableBroker(broker=each.broker, since=timestamp(each.since), reason=each.reason)
            for each in self._sources.unreachable()
        ]

    async def group(self, group_id: str) -> m.GroupDetail | None:
        """A group as it is now, and its members."""
        view = self._sources.find(group_id)
        if view is None:
            return None
        limit, past, stand = self._sources.most_members(view), self._past(group_id), self._stand(view)
        sums = Sums(stand.log_end)
        await made(map(sums.add, batches(stand.offsets.numbers(), SORTED_AT_ONCE)))
        figures = GroupFigures(view, limit, None, *sums.result())
        members = await made(map(member_row, await self._members(view)))
        return m.GroupDetail(
            **dict(summary(figures, past)),
            coordinator=coordinator_row(self._sources.coordinator(group_id)),
            leader=view.leader,
            unreachable=self.unreachable(),
            member_list=members,
        )

    async def offsets(self, group_id: str) -> m.Offsets | None:
        """Where a group stands in each partition that it has committed, or that a member has."""
        view = self._sources.find(group_id)
        if view is None:
            return None
        stand, owned = self._stand(view), owners(await self._members(view))
        committed = dict(await made(stand.offsets.decoded()))
        places = await in_order({*committed, *owned})
        rows = await made(stand.row(where, committed.get(where), owned.get(where)) for where in places)
        return m.Offsets(group=group_id, state=view.state, offsets=rows, unreachable=self.unreachable())

    async def timeline(self, group_id: str) -> m.Timeline | None:
        """What is recorded of a group, which may be gone."""
        cells = self._sources.recorder.timeline(group_id)
        if cells is None and self._sources.find(group_id) is None:
            return None
        forgotten = m.Forgotten.model_validate(self._sources.recorder.forgotten(group_id))
        return m.Timeline(group=group_id, timeline=cells or [], forgotten=forgotten, unreachable=self.unreachable())

    async def why(self, group_id: str, seconds: int) -> m.Why | None:
        """Why a group, which may be gone, rebalanced in the last `seconds`."""
        past = await self.timeline(group_id)
        if past is None:
            return None
        await trio.lowlevel.checkpoint()
        until = self._sources.epoch()
        told = why(past.timeline, until - seconds, until, past.forgotten.model_dump())
        return m.Why.model_validate({"group": group_id, **told, "unreachable": past.unreachable})

    async def refusals(self, limit: int) -> m.Refusals:
        """What policies refused last, in all groups."""
        return m.Refusals(refusals=self._sources.recorder.refusals(limit))

    async def status(self) -> m.Status:
        """The sidecar itself."""
        sources, numbers = self._sources, self._sources.numbers()
        survey = await sources.surveyed()
        states = await made(figures.view.state for figures in survey.groups)
        brokers, last = sources.readiness(), numbers.last_reload
        return m.Status(
            version=version(DISTRIBUTION),
            sidecar_id=numbers.sidecar_id,
            mode=numbers.mode,
            started_at=timestamp(numbers.started_at),
            ready=is_ready(brokers),
            brokers={broker: dict(conditions) for broker, conditions in brokers.items()},
            unreachable=self.unreachable(),
            offsets_log={broker: dict(standing) for broker, standing in sources.standings().items()},
            connections=numbers.connections,
            groups=dict(Counter(states)),
            held_bytes=numbers.held_bytes,
            recorded_bytes=sources.recorder.held_bytes,
            series_suppressed=numbers.series_suppressed,
            answers={api_name(key): number for key, number in numbers.answers.items()},
            fallbacks=_by_reason(numbers.fallbacks),
            outlets={name: _outlet(health) for name, health in numbers.outlets.items()},
            last_reload=m.LastReload(successful=last.successful, succeeded_at=timestamp(last.succeeded_at)),
        )

    def _stand(self, view: GroupView) -> Stand:
        return Stand(offsets_of(view), newest(self._sources.log_ends()))

    async def _members(self, view: GroupView) -> list[Assigned]:
        consumer = newer(view)
        return await made(each_member(view, self._sources.topic_names(consumer.topic_ids) if consumer else {}))

    async def _pasts(self, groups: Iterable[GroupFigures]) -> _Pasts:
        ids = [figures.view.group_id for figures in groups]
        return dict(zip(ids, await made(map(self._past, ids)), strict=True))

    def _past(self, group_id: str) -> Past:
        recorder, since = self._sources.recorder, self._sources.epoch() - m.HOUR
        return Past(recorder.last_rebalance(group_id), recorder.rebalances_since(group_id, since))


def is_ready(brokers: Readiness) -> bool:
    """Ready when there is a broker and everything is so for each."""
    return bool(brokers) and all(all(conditions.values()) for conditions in brokers.values())


def _by_reason(fallbacks: Mapping[tuple[int, Lacking], int]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for (_, why_not), number in fallbacks.items():
        sums[why_not] += number
    return dict(sums)


def _outlet(health: OutletHealth) -> m.Outlet:
    return m.Outlet(
        records_written=health.records_written,
        records_dropped=dict(health.records_dropped),
        write_failures=health.failures,
        last_flush_at=timestamp(health.last_flush) if health.last_flush else None,
    )


async def made(items: Iterable[T]) -> list[T]:
    """The items, made one by one, with a turn for everybody else in between."""
    found: list[T] = []
    rest_at = perf_counter() + SLICE_SECONDS
    for item in items:
        found.append(item)
        if perf_counter() >= rest_at:
            await trio.lowlevel.checkpoint()
            rest_at = perf_counter() + SLICE_SECONDS
    return found


async def in_order(items: Iterable[K]) -> Iterator[K]:
    """The items sorted, as far as they are asked for: all at once would take long."""
    return merge(*await made(sorted(part) for part in batches(items, SORTED_AT_ONCE)))


async def _matching(groups: Sequence[GroupFigures], asked: m.GroupsQuery) -> list[GroupFigures]:
    search = asked.search.casefold()

    def matches(figures: GroupFigures) -> bool:
        view = figures.view
        if asked.state not in (None, view.state) or asked.type not in (None, view.kind):
            return False
        return search in view.group_id.casefold()

    matched = await made(map(matches, groups))
    return [figures for figures, found in zip(groups, matched, strict=True) if found]


async def _sorted(found: list[GroupFigures], asked: m.GroupsQuery, pasts: _Pasts) -> list[GroupFigures]:
    """Those asked for. Ones with the same value stand in the order of their ids, ones without any behind the others."""
    end = asked.offset + asked.limit
    if asked.sort == "group":
        return (found[::-1] if asked.order == "desc" else found)[asked.offset : end]
    values: dict[str, _Key] = {
        "members": lambda figures: member_count(figures.view),
        "lag": lambda figures: figures.lag,
        "last_rebalance_at": lambda figures: figures.view.last_rebalance_at,
        "rebalances": lambda figures: pasts[figures.view.group_id].rebalances,
    }
    value, sign = values[asked.sort], -1.0 if asked.order == "desc" else 1.0

    def key(figures: GroupFigures) -> float:
        known = value(figures)
        return float("inf") if known is None else sign * known

    places = await in_order(zip(await made(map(key, found)), count(), strict=False))
    return [found[place] for _, place in await made(islice(places, asked.offset, end))]
