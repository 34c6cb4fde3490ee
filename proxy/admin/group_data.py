"""Reads the data of groups and of the sidecar, for JSON and pages alike.

Reading ten thousand groups takes long, and this code shares a thread with the data path. So items are built one by one,
and the data path forwards frames in between.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import count, islice
from time import perf_counter
from typing import TypeVar

import trio

from group_sidecar.codecs.api_registry import api_name
from group_sidecar.coordinator.model.views import FallbackReason, GroupView
from group_sidecar.metrics.collector import JournalWriterHealth
from group_sidecar.metrics.group_snapshot import GroupFigures, LagSums, batches, newest_log_end_lookup, offsets_of
from group_sidecar.metrics.installed_version import installed_version
from group_sidecar.metrics.rebalance_explanation import why
from group_sidecar.metrics.records import timestamp
from group_sidecar.proxy.admin import json_models as m
from group_sidecar.proxy.admin.config_model import Config
from group_sidecar.proxy.admin.group_rows import OffsetsSnapshot, RebalanceHistory, coordinator_row, member_row, summary
from group_sidecar.proxy.admin.member_rows import (
    MemberAssignment,
    consumer_view,
    each_member,
    member_count,
    partition_owners,
)
from group_sidecar.proxy.admin.sources import AdminSources, Readiness
from group_sidecar.proxy.admin.timeline_models import Answer
from group_sidecar.proxy.config.effective import effective_settings

T = TypeVar("T")
K = TypeVar("K", bound=tuple[str | float, int])

SLICE_SECONDS = 0.0005
"""Seconds of work between two checkpoints. A frame waits at most this long, plus the time that one item takes."""
SORTED_AT_ONCE = 500

_Histories = dict[str, RebalanceHistory]
_Key = Callable[[GroupFigures], float | None]


class GroupData:
    """The data for JSON and pages. Methods return None if a group does not exist."""

    def __init__(self, sources: AdminSources) -> None:
        self._sources = sources

    async def groups(self, query: m.GroupsQuery) -> m.Groups:
        """Returns the requested page of the matching groups, sorted."""
        group_snapshot = await self._sources.group_snapshot()
        found = await _matching(group_snapshot.groups, query)
        histories: _Histories = {}
        if query.cause or query.sort == "rebalances":
            histories = await self._histories(found)
        if query.cause:
            found = [figures for figures in found if histories[figures.view.group_id].cause is query.cause]
        shown = await _sorted(found, query, histories)
        histories = histories or await self._histories(shown)
        rows = await collect_in_slices(summary(figures, histories[figures.view.group_id]) for figures in shown)
        return m.Groups(
            at=timestamp(group_snapshot.at),
            total=len(found),
            all=len(group_snapshot.groups),
            unreachable=self.unreachable(),
            groups=rows,
        )

    def unreachable(self) -> list[m.UnreachableBroker]:
        """Returns the brokers that do not answer."""
        return [
            m.UnreachableBroker(broker=each.broker, since=timestamp(each.since), reason=each.reason)
            for each in self._sources.unreachable()
        ]

    async def group(self, group_id: str) -> m.GroupDetail | None:
        """Returns the current state of a group, and its members."""
        view = self._sources.find_group(group_id)
        if view is None:
            return None
        limit, past, offsets_snapshot = (
            self._sources.max_members(view),
            self._history(group_id),
            self._offsets_snapshot(view),
        )
        sums = LagSums(offsets_snapshot.log_end)
        await collect_in_slices(map(sums.add, batches(offsets_snapshot.offsets.partition_offsets(), SORTED_AT_ONCE)))
        figures = GroupFigures(view, limit, None, *sums.result())
        members = await collect_in_slices(map(member_row, await self._members(view)))
        return m.GroupDetail(
            **dict(summary(figures, past)),
            coordinator=coordinator_row(self._sources.coordinator(group_id)),
            leader=view.leader,
            unreachable=self.unreachable(),
            member_list=members,
        )

    async def offsets(self, group_id: str) -> m.Offsets | None:
        """Returns the offsets of a group in each partition that has a commit or is assigned to a member."""
        view = self._sources.find_group(group_id)
        if view is None:
            return None
        offsets_snapshot, owned = self._offsets_snapshot(view), partition_owners(await self._members(view))
        committed = dict(await collect_in_slices(offsets_snapshot.offsets.decoded()))
        partitions = await sort_in_slices({*committed, *owned})
        rows = await collect_in_slices(
            offsets_snapshot.row(partition, committed.get(partition), owned.get(partition)) for partition in partitions
        )
        return m.Offsets(group=group_id, state=view.state, offsets=rows, unreachable=self.unreachable())

    async def timeline(self, group_id: str) -> m.Timeline | None:
        """Returns the recorded events of a group, also of a group that has been removed."""
        cells = self._sources.recorder.timeline(group_id)
        if cells is None and self._sources.find_group(group_id) is None:
            return None
        forgotten = m.Forgotten.model_validate(self._sources.recorder.forgotten(group_id))
        return m.Timeline(group=group_id, timeline=cells or [], forgotten=forgotten, unreachable=self.unreachable())

    async def why(self, group_id: str, seconds: int) -> m.Why | None:
        """Returns why a group rebalanced in the last `seconds`, also for a group that has been removed."""
        recorded = await self.timeline(group_id)
        if recorded is None:
            return None
        await trio.lowlevel.checkpoint()
        until = self._sources.epoch()
        explanation = why(recorded.timeline, until - seconds, until, recorded.forgotten.model_dump())
        return m.Why.model_validate({"group": group_id, **explanation, "unreachable": recorded.unreachable})

    async def refusals(self, limit: int) -> m.Refusals:
        """Returns the last refusals by policies, in all groups."""
        return m.Refusals(refusals=self._sources.recorder.refusals(limit))

    async def status(self) -> m.Status:
        """Returns the status of the sidecar."""
        sources, figures = self._sources, self._sources.figures()
        group_snapshot = await sources.group_snapshot()
        states = await collect_in_slices(group.view.state for group in group_snapshot.groups)
        brokers, last = sources.readiness(), figures.last_reload
        return m.Status(
            version=installed_version(),
            sidecar_id=figures.sidecar_id,
            mode=figures.mode,
            started_at=timestamp(figures.started_at),
            ready=is_ready(brokers),
            brokers={broker: dict(conditions) for broker, conditions in brokers.items()},
            unreachable=self.unreachable(),
            offsets_log={broker: dict(status) for broker, status in sources.log_statuses().items()},
            connections=figures.connections,
            groups=dict(Counter(states)),
            held_bytes=figures.held_bytes,
            recorded_bytes=sources.recorder.held_bytes,
            series_suppressed=figures.series_suppressed,
            answers={api_name(key): number for key, number in figures.answers.items()},
            fallbacks=_by_reason(figures.fallbacks),
            outlets={name: _outlet(health) for name, health in figures.outlets.items()},
            last_reload=m.LastReload(successful=last.successful, succeeded_at=timestamp(last.succeeded_at)),
        )

    async def config(self) -> Answer:
        """Returns the settings in force, without secrets."""
        return Config(**effective_settings(self._sources.config()))

    def _offsets_snapshot(self, view: GroupView) -> OffsetsSnapshot:
        return OffsetsSnapshot(offsets_of(view), newest_log_end_lookup(self._sources.log_ends()))

    async def _members(self, view: GroupView) -> list[MemberAssignment]:
        consumer = consumer_view(view)
        return await collect_in_slices(
            each_member(view, self._sources.topic_names(consumer.topic_ids) if consumer else {})
        )

    async def _histories(self, groups: Iterable[GroupFigures]) -> _Histories:
        ids = [figures.view.group_id for figures in groups]
        return dict(zip(ids, await collect_in_slices(map(self._history, ids)), strict=True))

    def _history(self, group_id: str) -> RebalanceHistory:
        recorder, since = self._sources.recorder, self._sources.epoch() - m.HOUR
        return RebalanceHistory(recorder.last_rebalance(group_id), recorder.rebalances_since(group_id, since))


def is_ready(brokers: Readiness) -> bool:
    """Whether there is at least one broker, and every readiness condition holds for each broker."""
    return bool(brokers) and all(all(conditions.values()) for conditions in brokers.values())


def _by_reason(fallbacks: Mapping[tuple[int, FallbackReason], int]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for (_, why_not), number in fallbacks.items():
        sums[why_not] += number
    return dict(sums)


def _outlet(health: JournalWriterHealth) -> m.Outlet:
    return m.Outlet(
        records_written=health.records_written,
        records_dropped=dict(health.records_dropped),
        write_failures=health.failures,
        last_flush_at=timestamp(health.last_flush) if health.last_flush else None,
    )


async def collect_in_slices(items: Iterable[T]) -> list[T]:
    """Returns a list of the items. The items are built one by one, and other tasks run in between."""
    found: list[T] = []
    slice_end = perf_counter() + SLICE_SECONDS
    for item in items:
        found.append(item)
        if perf_counter() >= slice_end:
            await trio.lowlevel.checkpoint()
            slice_end = perf_counter() + SLICE_SECONDS
    return found


async def sort_in_slices(items: Iterable[K]) -> Iterator[K]:
    """Returns the items in ascending order. Slices are sorted one by one, and merged lazily.

    Sorting all items in one call would block the data path.
    """
    return merge(*await collect_in_slices(sorted(part) for part in batches(items, SORTED_AT_ONCE)))


async def _matching(groups: Sequence[GroupFigures], query: m.GroupsQuery) -> list[GroupFigures]:
    search = query.search.casefold()

    def matches(figures: GroupFigures) -> bool:
        view = figures.view
        if query.state not in (None, view.state) or query.type not in (None, view.kind):
            return False
        return search in view.group_id.casefold()

    matched = await collect_in_slices(map(matches, groups))
    return [figures for figures, found in zip(groups, matched, strict=True) if found]


async def _sorted(found: list[GroupFigures], query: m.GroupsQuery, histories: _Histories) -> list[GroupFigures]:
    """Returns the requested page of the groups, sorted. Groups without a value are last.

    Groups with equal values keep their order in `found`, which is by id.
    """
    end = query.offset + query.limit
    if query.sort == "group":
        return (found[::-1] if query.order == "desc" else found)[query.offset : end]
    values: dict[str, _Key] = {
        "members": lambda figures: member_count(figures.view),
        "lag": lambda figures: figures.lag,
        "last_rebalance_at": lambda figures: figures.view.last_rebalance_at,
        "rebalances": lambda figures: histories[figures.view.group_id].rebalances,
    }
    value, sign = values[query.sort], -1.0 if query.order == "desc" else 1.0

    def key(figures: GroupFigures) -> float:
        known = value(figures)
        return float("inf") if known is None else sign * known

    ranked = await sort_in_slices(zip(await collect_in_slices(map(key, found)), count(), strict=False))
    return [found[index] for _, index in await collect_in_slices(islice(ranked, query.offset, end))]
