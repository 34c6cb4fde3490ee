"""Why a group rebalanced, in words.

The module sums up a timeline over a span of time, as figures and sentences. An unknown cause is reported as unknown. A
figure is reported as a lower bound if the entries of a part of the span are no longer kept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from group_sidecar.coordinator.model.facts import ISSUED_ID_REASON, Departure, RebalanceCause, RebalanceReason
from group_sidecar.metrics.records import timestamp

Cells = Mapping[str, Any]

POLL_EXPIRED = "consumer poll timeout has expired"
"""Start of the leave reason of a Java consumer after max.poll.interval.ms without a poll (AbstractCoordinator)."""
MAX_CAUSES = 4
"""Maximum number of causes that a summary names."""
_SPANS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_NUMBERS = ("", "once", "twice")
_REFUSED = ("policy", "error", "client_id", "client_host", "principal")
_NAMED = ("client_id", "client_host", "instance_id", "principal")


def informative_reason(said: str) -> str:
    """Returns the reason that a client sent, or an empty string if every new member sends this reason."""
    return "" if said.startswith(ISSUED_ID_REASON) else said


def why(
    cells: Iterable[Cells],
    since: float,
    until: float,
    forgotten: Mapping[str, str | None] = MappingProxyType({}),
    format_time: Callable[[str], str] = str,
) -> dict[str, object]:
    """Sums up the rebalances of a group's timeline that were completed between two moments.

    Args:
        cells: the entries of `FlightRecorder.timeline`, the newest last.
        since: start in seconds since the epoch, inclusive.
        until: end in seconds since the epoch, inclusive.
        forgotten: the result of `FlightRecorder.forgotten`.
        format_time: formats a time in the summary, which is in ISO 8601. By default it stays as it is.

    Returns:
        since, until (ISO 8601), rebalances, summary, causes (the most frequent first: cause, reason, count, by, said,
        sentence), rebalancing_seconds, longest_seconds, slowest (the slowest joiner of all), refusals, refused
        (clients and reasons, the most frequent first: policy, error, client_id, client_host, principal, count,
        first_at, last_at), failed_commits, at_least (the names of those figures among rebalances, refusals and
        failed_commits that are lower bounds).
    """
    begin, end = timestamp(since), timestamp(until)
    kept = list(cells)
    in_span = [cell for cell in kept if begin <= cell["at"] <= end]
    completed = [cell for cell in in_span if cell["what"] == "rebalance_completed"]
    runs = [cell for cell in in_span if cell["what"] == "client_refused"]
    causes = _causes(completed, kept)
    seconds = [float(cell["duration_seconds"]) for cell in completed]
    slow = [cell["slowest"] for cell in completed if cell["slowest"]]
    failed = [cell for cell in in_span if cell["what"] == "offsets_committed"]
    least = _lower_bounds({"refusals": runs, "failed_commits": failed}, forgotten, begin)
    kept_since = format_time(str(forgotten.get("changes"))) if "rebalances" in least else None
    return {
        "since": begin,
        "until": end,
        "rebalances": len(completed),
        "summary": _summary(causes, len(completed), until - since, kept_since),
        "causes": [cause.as_json() for cause in causes],
        "rebalancing_seconds": sum(seconds),
        "longest_seconds": max(seconds, default=0.0),
        "slowest": max(slow, key=lambda joiner: float(joiner["seconds"]), default=None),
        "refusals": sum(_refusals_since(run, begin) for run in runs),
        "refused": _refused(runs, begin),
        "failed_commits": sum(_failed(cell, begin) for cell in failed),
        "at_least": least,
    }


_FORGOTTEN = {"rebalances": "changes", "refusals": "refusals", "failed_commits": "commits"}
"""The kind of facts that each figure counts."""


def _lower_bounds(runs: Mapping[str, Iterable[Cells]], forgotten: Mapping[str, str | None], begin: str) -> list[str]:
    """Returns the figures that are lower bounds for the time since `begin`. `runs`: runs of facts by figure.

    A figure is a lower bound if facts of that time are no longer kept. It is also a lower bound if one of its runs
    began before `begin`, because only the times of the run's first and last fact are known.
    """
    least = [figure for figure, kind in _FORGOTTEN.items() if (forgotten.get(kind) or "") >= begin]
    cut = (figure for figure, counted in runs.items() if any(_first_refused_at(run) < begin for run in counted))
    return [*least, *(figure for figure in cut if figure not in least)]


def _first_refused_at(run: Cells) -> str:
    """Returns when a run of refusals began (`refusal_totals`). Older sidecars report each refusal separately."""
    return str(run.get("first_at", run["at"]))


def _refusals_since(run: Cells, begin: str) -> int:
    """Returns how many refusals of a run were at `begin` or later, or 1 if the run began earlier.

    The times of the other refusals of such a run are not known.
    """
    return int(run.get("count", 1)) if _first_refused_at(run) >= begin else 1


def _refused(runs: Iterable[Cells], begin: str) -> list[dict[str, object]]:
    """Returns the refused clients with the reasons and counts, the most frequent first."""
    found: dict[object, dict[str, Any]] = {}
    for run in runs:
        client_and_reason = {name: run.get(name, "") for name in _REFUSED}
        made = found.setdefault(
            tuple(client_and_reason.values()),
            {**client_and_reason, "count": 0, "first_at": max(_first_refused_at(run), begin), "last_at": run["at"]},
        )
        made["count"] += _refusals_since(run, begin)
        made["first_at"] = min(made["first_at"], max(_first_refused_at(run), begin))
        made["last_at"] = max(made["last_at"], run["at"])
    return sorted(found.values(), key=lambda each: -int(each["count"]))


def _failed(cell: Cells, begin: str) -> int:
    """Returns how many partitions of a run were not committed at `begin` or later, or 1 if the run began earlier."""
    return sum(refused["partitions"] for refused in cell["refused"]) if _first_refused_at(cell) >= begin else 1


@dataclass
class _Cause:
    """Rebalances with the same cause and client. `joined`: the largest number of members that joined in one of them."""

    cause: str
    reason: str
    by: Cells | None
    said: str
    how: str
    count: int = 0
    joined: int = 0

    @property
    def because(self) -> str:
        """The clause after "because"."""
        return _CLAUSES[RebalanceCause(self.cause)](self)

    def as_json(self) -> dict[str, object]:
        """Returns the cause as JSON values."""
        by = {name: self.by.get(name, "") for name in _NAMED} if self.by else None
        sentence = f"{_format_times(self.count).capitalize()} because {self.because}."
        return {
            "cause": self.cause,
            "reason": self.reason,
            "count": self.count,
            "by": by,
            "said": self.said,
            "sentence": sentence,
        }


def _causes(completed: Sequence[Cells], kept: Sequence[Cells]) -> list[_Cause]:
    """Returns the causes, the most frequent first. Among equally frequent causes, the latest is first."""
    found: dict[object, _Cause] = {}
    departures = {cell["member_id"]: cell["how"] for cell in kept if cell["what"] == "member_gone"}
    for cell in reversed(completed):
        by, gone = cell["by"], cell["reason"] in (RebalanceReason.LEAVE, RebalanceReason.EXPIRED)
        # A member whose join caused the rebalance may have left later. Its departure is then not part of the cause.
        how = departures.get(by["member_id"], "") if by and gone else ""
        named = tuple(by.get(name, "") for name in _NAMED) if by else None
        key = cell["cause"], named, _without_numbers(informative_reason(cell["said"])), how
        made = found.setdefault(key, _Cause(cell["cause"], cell["reason"], by, cell["said"], how))
        made.count += 1
        made.joined = max(made.joined, cell["joined"])
    return sorted(found.values(), key=lambda cause: -cause.count)


def _without_numbers(said: str) -> str:
    """Returns a reason up to its first colon. The text after the colon may contain numbers that vary."""
    return said.partition(":")[0]


def _summary(causes: Sequence[_Cause], rebalances: int, span: float, kept_since: str | None) -> str:
    """Returns the summary sentence. `kept_since`: start of the known part, if not all of the span is known."""
    lately = f"in the last {_format_span(span)}"
    times = f"at least {_format_times(rebalances)}" if kept_since else _format_times(rebalances)
    if not rebalances and kept_since:
        return f"Has not rebalanced since {kept_since}; what happened before is not known."
    if not rebalances:
        return f"Has not rebalanced {lately}."
    if len(causes) == 1:
        return f"Rebalanced {times} {lately}, because {causes[0].because}."
    each = [f"{_format_times(cause.count)} because {cause.because}" for cause in causes[:MAX_CAUSES]]
    if rest := sum(cause.count for cause in causes[MAX_CAUSES:]):
        each.append(f"{_format_times(rest)} for further causes")
    return f"Rebalanced {times} {lately}: {', '.join(each)}."


def _format_times(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else f"{count} times"


def _format_span(seconds: float) -> str:
    """Returns a span as a whole number of the largest possible unit."""
    whole = max(1, round(seconds))
    size, unit = next((size, unit) for size, unit in _SPANS if whole % size == 0)
    number = whole // size
    return unit if number == 1 else f"{number} {unit}s"


def _client_label(by: Cells | None) -> str:
    """Returns a label for people: the client's name, its address without Kafka's slash, and its principal."""
    if by is None or not (by["client_id"] or by["client_host"]):
        return f"member {by['member_id']}" if by and by["member_id"] else "a member that is not known"
    name = by["client_id"] or "a client without a name"
    if by["instance_id"]:
        name += f" ({by['instance_id']})"
    if by["client_host"]:
        name += f" at {by['client_host'].removeprefix('/')}"
    return f"{name} as {by['principal']}" if by.get("principal") else str(name)


def _quoted(cause: _Cause) -> str:
    said = informative_reason(cause.said)
    return f" and said: {said.rstrip('.')}" if said else ""


def _new(cause: _Cause) -> str:
    if cause.count == 1 and cause.joined > 1:
        return f"{cause.joined} new members joined (first {_client_label(cause.by)})"
    return f"a new member joined ({_client_label(cause.by)})"


def _left(cause: _Cause) -> str:
    if cause.said.startswith(POLL_EXPIRED):
        return f"{_client_label(cause.by)} did not poll within max.poll.interval.ms"
    return f"{_client_label(cause.by)} left{_quoted(cause)}"


def _removed(cause: _Cause) -> str:
    if cause.how == Departure.REMOVED_BY_POLICY:
        return f"this sidecar removed {_client_label(cause.by)}, since the group was over its limit"
    if cause.how == Departure.REMOVED_BY_CLIENT:
        return f"an admin removed {_client_label(cause.by)}{_quoted(cause)}"
    return f"{_client_label(cause.by)} was removed"


def _expired(cause: _Cause) -> str:
    if cause.how == Departure.DROPPED:
        return f"{_client_label(cause.by)} was not heard of, or did not sync, in time"
    return f"{_client_label(cause.by)} was not heard of within its session timeout"


def _topics(cause: _Cause) -> str:
    # A Java client since 4.0 that lost its connections forgets its metadata, and then sends the same reason (KIP-899).
    return f"{_client_label(cause.by)} saw the partitions of its topics change, or lost its metadata"


def _moved(cause: _Cause) -> str:
    first = f": {_client_label(cause.by)} was the first to join again" if cause.by else ""
    return f"this broker had just become its coordinator, or been restarted{first}"


def _unknown(cause: _Cause) -> str:
    involved = f" ({_client_label(cause.by)} was involved{_quoted(cause)})" if cause.by else ""
    return f"of something that was not seen{involved}"


_CLAUSES: Mapping[RebalanceCause, Callable[[_Cause], str]] = {
    RebalanceCause.NEW_MEMBER: _new,
    RebalanceCause.STATIC_REPLACED: lambda cause: f"{_client_label(cause.by)} came back under its group.instance.id",
    RebalanceCause.MEMBER_LEFT: _left,
    RebalanceCause.MEMBER_REMOVED: _removed,
    RebalanceCause.SESSION_EXPIRED: _expired,
    RebalanceCause.SUBSCRIPTION_CHANGED: lambda cause: (
        f"{_client_label(cause.by)} joined again with another subscription"
    ),
    RebalanceCause.PARTITIONS_REVOKED: lambda cause: f"{_client_label(cause.by)} gave up partitions for other members",
    RebalanceCause.LEADER_REJOINED: lambda cause: f"its leader {_client_label(cause.by)} joined again{_quoted(cause)}",
    RebalanceCause.TOPIC_METADATA: _topics,
    RebalanceCause.COORDINATOR_MOVED: _moved,
    RebalanceCause.UNKNOWN: _unknown,
}
