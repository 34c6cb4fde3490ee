"""Why a group rebalanced, in words.

Owns: what a timeline adds up to over a span of time, and the sentences that say so. Must not know: who keeps
timelines, and who reads the answer. Nothing is said that the timeline does not say: where a cause is not known, it is
said that it is not; where a part of the time is no longer kept, a number is told as the least that it can be.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from group_sidecar.coordinator.facts import Departure, RebalanceCause, RebalanceReason
from group_sidecar.metrics.records import timestamp

Cells = Mapping[str, Any]

POLL_EXPIRED = "consumer poll timeout has expired"
"""How a Java consumer's leave begins that was not polled within max.poll.interval.ms (AbstractCoordinator)."""
MOST_CAUSES = 4
"""So many causes a summary names."""
_SPANS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_NUMBERS = ("", "once", "twice")
_NAMED = ("client_id", "client_host", "instance_id")


def why(
    cells: Iterable[Cells], since: float, until: float, forgotten: Mapping[str, str | None] = MappingProxyType({})
) -> dict[str, object]:
    """What a group's timeline says about the rebalances that were completed between two moments.

    Args:
        cells: as `FlightRecorder.timeline` has them, the newest last.
        since: seconds since the epoch, included.
        until: the same.
        forgotten: as `FlightRecorder.forgotten` has it.

    Returns:
        since, until (ISO 8601), rebalances, summary, causes (the most frequent first: cause, reason, count, by, said,
        sentence), rebalancing_seconds, longest_seconds, slowest (the slowest joiner of all), refusals, refused (who
        and why, the most frequent first: policy, error, client_id, client_host, count, first_at, last_at),
        failed_commits, at_least (those of rebalances, refusals and failed_commits that may be more than what is told).
    """
    begin, end = timestamp(since), timestamp(until)
    kept = list(cells)
    told = [cell for cell in kept if begin <= cell["at"] <= end]
    completed = [cell for cell in told if cell["what"] == "rebalance_completed"]
    runs = [cell for cell in told if cell["what"] == "client_refused"]
    causes = _causes(completed, kept)
    seconds = [float(cell["duration_seconds"]) for cell in completed]
    slow = [cell["slowest"] for cell in completed if cell["slowest"]]
    least = [figure for figure, kind in _FORGOTTEN.items() if (forgotten.get(kind) or "") >= begin]
    kept_since = forgotten.get("changes") if "rebalances" in least else None
    if "refusals" not in least and any(_first(run) < begin for run in runs):
        least.append("refusals")
    return {
        "since": begin,
        "until": end,
        "rebalances": len(completed),
        "summary": _summary(causes, len(completed), until - since, kept_since),
        "causes": [cause.told() for cause in causes],
        "rebalancing_seconds": sum(seconds),
        "longest_seconds": max(seconds, default=0.0),
        "slowest": max(slow, key=lambda who: float(who["seconds"]), default=None),
        "refusals": sum(_number(run, begin) for run in runs),
        "refused": _refused(runs, begin),
        "failed_commits": sum(_failed(cell) for cell in told if cell["what"] == "offsets_committed"),
        "at_least": least,
    }


_FORGOTTEN = {"rebalances": "changes", "refusals": "refusals", "failed_commits": "commits"}
"""The figures by the kind of what they are made of."""


def _first(run: Cells) -> str:
    """When the first of a run of refusals was; older sidecars tell each alone."""
    return str(run.get("first_at", run["at"]))


def _number(run: Cells, begin: str) -> int:
    """How many refusals of a run were at `begin` or later; of a run that was under way then only the last is known."""
    return int(run.get("count", 1)) if _first(run) >= begin else 1


def _refused(runs: Iterable[Cells], begin: str) -> list[dict[str, object]]:
    """Returns the refused clients with the reasons and counts, the most frequent first."""
    found: dict[object, dict[str, Any]] = {}
    for run in runs:
        who = {name: run[name] for name in ("policy", "error", "client_id", "client_host")}
        made = found.setdefault(
            tuple(who.values()), {**who, "count": 0, "first_at": max(_first(run), begin), "last_at": run["at"]}
        )
        made["count"] += _number(run, begin)
        made["first_at"] = min(made["first_at"], max(_first(run), begin))
        made["last_at"] = max(made["last_at"], run["at"])
    return sorted(found.values(), key=lambda each: -int(each["count"]))


def _failed(cell: Cells) -> int:
    return sum(refused["partitions"] for refused in cell["refused"])


@dataclass
class _Cause:
    """Rebalances that began for the same reason, by the same client. `joined`: how many came with one at most."""

    cause: str
    reason: str
    by: Cells | None
    said: str
    how: str
    count: int = 0
    joined: int = 0

    @property
    def because(self) -> str:
        """What comes behind "because"."""
        return _CLAUSES[RebalanceCause(self.cause)](self)

    def told(self) -> dict[str, object]:
        """As JSON has it."""
        by = {name: self.by[name] for name in _NAMED} if self.by else None
        sentence = f"{_times(self.count).capitalize()} because {self.because}."
        return {
            "cause": self.cause,
            "reason": self.reason,
            "count": self.count,
            "by": by,
            "said": self.said,
            "sentence": sentence,
        }


def _causes(completed: Sequence[Cells], kept: Sequence[Cells]) -> list[_Cause]:
    """The most frequent first; of equals the latest."""
    found: dict[object, _Cause] = {}
    departures = {cell["member_id"]: cell["how"] for cell in kept if cell["what"] == "member_gone"}
    for cell in reversed(completed):
        by, gone = cell["by"], cell["reason"] in (RebalanceReason.LEAVE, RebalanceReason.EXPIRED)
        how = departures.get(by["member_id"], "") if by and gone else ""  # Who came may have gone since.
        key = cell["cause"], tuple(by[name] for name in _NAMED) if by else None, _words(cell["said"]), how
        made = found.setdefault(key, _Cause(cell["cause"], cell["reason"], by, cell["said"], how))
        made.count += 1
        made.joined = max(made.joined, cell["joined"])
    return sorted(found.values(), key=lambda cause: -cause.count)


def _words(said: str) -> str:
    """What was said, but for what differs from one time to the next."""
    return said.partition(":")[0]


def _summary(causes: Sequence[_Cause], rebalances: int, span: float, kept_since: str | None) -> str:
    """`kept_since`: where not all of the span is known, when the part began that is."""
    lately, times = f"in the last {_span(span)}", f"at least {_times(rebalances)}" if kept_since else _times(rebalances)
    if not rebalances and kept_since:
        return f"Has not rebalanced since {kept_since}; what happened before is not known."
    if not rebalances:
        return f"Has not rebalanced {lately}."
    if len(causes) == 1:
        return f"Rebalanced {times} {lately}, because {causes[0].because}."
    each = [f"{_times(cause.count)} because {cause.because}" for cause in causes[:MOST_CAUSES]]
    if rest := sum(cause.count for cause in causes[MOST_CAUSES:]):
        each.append(f"{_times(rest)} for other reasons")
    return f"Rebalanced {times} {lately}: {', '.join(each)}."


def _times(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else f"{count} times"


def _span(seconds: float) -> str:
    """A span in the largest unit that it is a whole number of."""
    whole = max(1, round(seconds))
    size, unit = next((size, unit) for size, unit in _SPANS if whole % size == 0)
    number = whole // size
    return unit if number == 1 else f"{number} {unit}s"


def _name(by: Cells | None) -> str:
    """A client as people know it: its own name, and its address without Kafka's slash."""
    if by is None or not (by["client_id"] or by["client_host"]):
        return f"member {by['member_id']}" if by and by["member_id"] else "a member that is not known"
    name = by["client_id"] or "a client without a name"
    if by["instance_id"]:
        name += f" ({by['instance_id']})"
    return f"{name} at {by['client_host'].removeprefix('/')}" if by["client_host"] else str(name)


def _quoted(cause: _Cause) -> str:
    return f" and said: {cause.said.rstrip('.')}" if cause.said else ""


def _new(cause: _Cause) -> str:
    if cause.count == 1 and cause.joined > 1:
        return f"{cause.joined} new members joined (first {_name(cause.by)})"
    return f"a new member joined ({_name(cause.by)})"


def _left(cause: _Cause) -> str:
    if cause.said.startswith(POLL_EXPIRED):
        return f"{_name(cause.by)} did not poll within max.poll.interval.ms"
    return f"{_name(cause.by)} left{_quoted(cause)}"


def _removed(cause: _Cause) -> str:
    if cause.how == Departure.REMOVED:
        return f"this sidecar removed {_name(cause.by)}, since the group was over its limit"
    if cause.how == Departure.KICKED:
        return f"an admin removed {_name(cause.by)}{_quoted(cause)}"
    return f"{_name(cause.by)} was removed"


def _expired(cause: _Cause) -> str:
    if cause.how == Departure.DROPPED:
        return f"{_name(cause.by)} did not sync within its rebalance timeout"
    return f"{_name(cause.by)} was not heard of within its session timeout"


def _topics(cause: _Cause) -> str:
    seen = f", as {_name(cause.by)} saw" if cause.by else ""
    return f"the partitions of its topics changed{seen}"


def _moved(cause: _Cause) -> str:
    first = f": {_name(cause.by)} was the first to join again" if cause.by else ""
    return f"this broker had just become its coordinator, or been restarted{first}"


def _unknown(cause: _Cause) -> str:
    involved = f" ({_name(cause.by)} had to do with it{_quoted(cause)})" if cause.by else ""
    return f"of something that was not seen{involved}"


_CLAUSES: Mapping[RebalanceCause, Callable[[_Cause], str]] = {
    RebalanceCause.NEW_MEMBER: _new,
    RebalanceCause.STATIC_REPLACED: lambda cause: f"{_name(cause.by)} came back under its group.instance.id",
    RebalanceCause.MEMBER_LEFT: _left,
    RebalanceCause.MEMBER_REMOVED: _removed,
    RebalanceCause.SESSION_EXPIRED: _expired,
    RebalanceCause.SUBSCRIPTION_CHANGED: lambda cause: f"{_name(cause.by)} joined again with another subscription",
    RebalanceCause.PARTITIONS_REVOKED: lambda cause: f"{_name(cause.by)} gave up partitions that others are to have",
    RebalanceCause.LEADER_REJOINED: lambda cause: f"its leader {_name(cause.by)} joined again{_quoted(cause)}",
    RebalanceCause.TOPIC_METADATA: _topics,
    RebalanceCause.COORDINATOR_MOVED: _moved,
    RebalanceCause.UNKNOWN: _unknown,
}
