"""A group's timeline as a picture: which lanes there are, and where bars and marks stand.

Owns: the geometry, in units of the picture, and what each part tells. Must not know: SVG, HTML and colours, which are
the template's; nor where cells come from.

A lane is a client on a host, not a member id: a consumer that comes back gets another id, and what a reader looks for
is the gap between. Where several members at once have the same client id, host and instance id, as clients have that
nobody named, each gets a lane of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, NamedTuple

from group_sidecar.proxy.admin.words import Cell, Name, Sentence, address, client, event, moment

WIDTH, LEFT, RIGHT = 1120.0, 230.0, 12.0
"""The picture's width, and what is kept free of its lanes on both sides: names stand on the left."""
LANE, TOP, AXIS = 26.0, 8.0, 26.0
"""Heights of a lane, of the edge above and of the axis below."""
MOST_LANES = 40
"""Members that are drawn; those are preferred to which something happened."""
MOST_TICKS = 8
SHORTEST, EDGE = timedelta(minutes=1), 0.03
"""The least time that is drawn, and which part of it is left free before the first event."""
THINNEST = 1.5
"""What is shorter is drawn so wide, to be seen."""
LABEL_CHARACTERS = 30

_OTHER_LANES = (("Refusals", "client_refused", "client_audited"), ("Failed commits", "offsets_committed"))
_STEPS = tuple(
    timedelta(seconds=s)
    for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
)


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one moment.

    Attributes:
        kind: decides shape and colour: a rebalance's reason, how a member went, "refused", "audited" or "failed".
        event: the cell's name, for a link to its words.
    """

    x: float
    kind: str
    told: Sentence
    event: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A member's time in the group; open where it began before the picture, or where it is still there.

    `kind`: "stay", or "run" for the time from the first to the last of several events that are one cell.
    """

    x: float
    width: float
    told: Sentence
    kind: str = "stay"


@dataclass(frozen=True, slots=True)
class Band:
    """A rebalance, from its beginning to its end, across all lanes."""

    x: float
    width: float
    reason: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the picture; `y` is its upper edge."""

    label: str
    told: Sentence
    bars: Sequence[Bar] = ()
    marks: Sequence[Mark] = ()
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment on the axis."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it. `unseen`: members for which there was no lane."""

    height: float
    lanes: Sequence[Lane]
    bands: Sequence[Band]
    ticks: Sequence[Tick]
    unseen: int
    width: float = WIDTH
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    lane: float = LANE

    @property
    def bottom(self) -> float:
        """The lower edge of the last lane."""
        return self.height - AXIS


@dataclass(slots=True)
class _Stay:
    """A member's time in the group; `began` and `ended` are None where the cells do not tell."""

    who: Mapping[str, Any]
    began: datetime | None
    ended: datetime | None = None
    end: Mark | None = None


_Key = tuple[str, str, str]
"""Client id, host and instance id."""


@dataclass(slots=True)
class _Row:
    key: _Key
    stays: list[_Stay] = field(default_factory=list)


def drawn(cells: Sequence[Cell], members: Iterable[Mapping[str, Any]], since: datetime, until: datetime) -> Picture:
    """The picture of a time.

    Args:
        cells: all that is known of the group, oldest first; what was before `since` tells who was there then.
        members: who is there at `until`: member_id, client_id, client_host, instance_id, since.
        since: where the picture begins.
        until: where it ends.
    """
    scale = _Scale(since, until)
    named = [_Named(name, cell, moment(cell["at"])) for name, cell in zip(event_names(cells), cells, strict=True)]
    scale = _Scale(since, until)
    shown = [event for event in named if since <= event.at <= until]
    rows, unseen = _rows(_stays(named, members, scale), since, until)
    lanes = [
        Lane("Rebalances", ("Rebalances",), marks=_marks(shown, scale, "rebalance_completed", "coordinator_moved"))
    ]
    lanes += [_member_lane(row, scale) for row in rows]
    for label, *whats in _OTHER_LANES:
        if marks := _marks(shown, scale, *whats):
            lanes.append(Lane(label, (label,), bars=_spans(shown, scale, *whats), marks=marks))
    placed = [replace(lane, y=TOP + index * LANE) for index, lane in enumerate(lanes)]
    return Picture(TOP + len(placed) * LANE + AXIS, placed, _bands(named, scale), _ticks(scale), unseen)


def beginning(
    cells: Sequence[Cell], members: Iterable[Mapping[str, Any]], since: datetime, until: datetime
) -> datetime:
    """Where a picture that may begin at `since` begins: shortly before anything is known, and not without need."""
    known = [cell["at"] for cell in cells[:1]] + [member["since"] for member in members if member["since"]]
    if not known:
        return since
    first = min(until - SHORTEST, moment(min(known)))
    return max(since, first - (until - first) * EDGE)


def event_names(cells: Sequence[Cell]) -> list[str]:
    """A name for each cell, which stays when older ones are forgotten: its time, and which of that time it is."""
    seen: Counter[str] = Counter()
    names = []
    for cell in cells:
        names.append(f"{cell['at']}.{seen[cell['at']]}")
        seen[cell["at"]] += 1
    return names


def kind(cell: Cell) -> str:
    """Which mark a cell has; see `Mark`."""
    match cell["what"]:
        case "client_refused":
            return "refused"
        case "client_audited":
            return "audited"
        case "offsets_committed":
            return "failed"
        case "coordinator_moved":
            return "moved"
        case "member_joined":
            return "joined"
        case "member_gone":
            return str(cell["how"])
    return str(cell.get("reason") or "unknown")


class _Named(NamedTuple):
    name: str
    cell: Cell
    at: datetime


@dataclass(frozen=True, slots=True)
class _Scale:
    """Time to place."""

    since: datetime
    until: datetime

    def x(self, at: datetime) -> float:
        """Where a moment stands; outside of the picture, at its edge."""
        whole = (self.until - self.since) / timedelta(seconds=1) or 1.0
        part = min(max((at - self.since) / timedelta(seconds=1) / whole, 0.0), 1.0)
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)


class _Stays:
    """The time that each member spent in the group.

    A member id has one stay, also where the broker stops coordinating the group in between: members outlive that in the
    group's log, and are heard of again with the same id.
    """

    def __init__(self) -> None:
        self.all: list[_Stay] = []
        self._open: dict[str, _Stay] = {}
        self._interrupted: dict[str, _Stay] = {}

    def begin(self, who: Mapping[str, Any], at: datetime | None) -> None:
        """A member is there; it may have been so before."""
        member_id = str(who["member_id"])
        if member_id in self._open:
            return
        stay = self._interrupted.pop(member_id, None)
        if stay is None:
            self.all.append(stay := _Stay(who, at))
        stay.ended = None
        self._open[member_id] = stay

    def end(self, who: Mapping[str, Any], at: datetime, mark: Mark) -> None:
        """A member has gone."""
        member_id = str(who["member_id"])
        stay = self._open.pop(member_id, None) or self._interrupted.pop(member_id, None)
        if stay is None:
            self.all.append(stay := _Stay(who, None))
        stay.ended, stay.end = at, mark

    def interrupt(self, at: datetime) -> None:
        """The broker stopped coordinating the group. Members may have left unseen since then."""
        for stay in self._open.values():
            stay.ended = at
        self._interrupted |= self._open
        self._open.clear()

    def conclude(self, members: Iterable[Mapping[str, Any]]) -> None:
        """Only these members are in the group in the end."""
        present = {str(member["member_id"]): member for member in members}
        for member_id, stay in self._open.items():
            if member_id not in present:
                stay.ended = stay.began  # It went unseen: only its coming is known.
        for member in present.values():
            self.begin(member, moment(member["since"]) if member.get("since") else None)


def _stays(cells: Sequence[_Named], members: Iterable[Mapping[str, Any]], scale: _Scale) -> list[_Stay]:
    stays = _Stays()
    for name, cell, at in cells:
        match cell["what"]:
            case "member_joined":
                stays.begin(cell, at)
            case "member_gone":
                stays.end(cell, at, Mark(scale.x(at), kind(cell), event(cell), name))
            case "coordinator_moved":
                stays.interrupt(at)
    stays.conclude(members)
    return stays.all


def _rows(stays: Sequence[_Stay], since: datetime, until: datetime) -> tuple[list[_Row], int]:
    """Lanes for those who were there at that time, so that none overlap; and for how many there was no lane."""
    rows: list[_Row] = []
    early = datetime.min.replace(tzinfo=UTC)
    there = [stay for stay in stays if (stay.ended or until) >= since and (stay.began or early) <= until]
    free: defaultdict[_Key, list[tuple[datetime, int]]] = defaultdict(list)
    for stay in sorted(there, key=lambda stay: stay.began or early):
        key = (stay.who.get("client_id") or "", address(stay.who.get("client_host")), stay.who.get("instance_id") or "")
        if free[key] and free[key][0][0] <= (stay.began or early):
            _, place = heappop(free[key])
        else:
            place = len(rows)
            rows.append(_Row(key))
        rows[place].stays.append(stay)
        if stay.ended is not None:
            heappush(free[key], (stay.ended, place))
    lively = sorted(rows, key=lambda row: all(stay.began is None and stay.ended is None for stay in row.stays))
    return sorted(lively[:MOST_LANES], key=lambda row: row.key), max(0, len(rows) - MOST_LANES)


def _member_lane(row: _Row, scale: _Scale) -> Lane:
    bars = [_bar(stay, scale) for stay in row.stays]
    marks = [stay.end for stay in row.stays if stay.end is not None and stay.ended and stay.ended >= scale.since]
    name, host, instance = row.key
    told = [*client(row.stays[0].who), *((", instance ", Name(instance)) if instance else ())]
    return Lane(_shortened(instance or name or "(no client id)", host), told, bars, marks)


def _bar(stay: _Stay, scale: _Scale) -> Bar:
    left = scale.x(stay.began or scale.since)
    right = scale.x(stay.ended or scale.until)
    told = [*client(stay.who), ": from ", _clock(stay.began) if stay.began else "before what is known"]
    told.append(f" to {_clock(stay.ended)}" if stay.ended else " until now")
    return Bar(left, round(max(right - left, THINNEST), 1), told)


def _shortened(name: str, host: str) -> str:
    """A lane's label: the name, and the host where there is room."""
    whole = f"{name} {host}".strip()
    short = whole if len(whole) <= LABEL_CHARACTERS else name
    return short if len(short) <= LABEL_CHARACTERS else short[: LABEL_CHARACTERS - 1] + "…"


def _marks(cells: Sequence[_Named], scale: _Scale, *whats: str) -> list[Mark]:
    return [Mark(scale.x(at), kind(cell), event(cell), name) for name, cell, at in cells if cell["what"] in whats]


def _spans(cells: Sequence[_Named], scale: _Scale, *whats: str) -> list[Bar]:
    """The time that each event took which sums up several, as a run of refusals does."""
    bars: list[Bar] = []
    for _, cell, at in cells:
        if cell["what"] in whats and cell.get("first_at", cell["at"]) < cell["at"]:
            left = scale.x(moment(cell["first_at"]))
            bars.append(Bar(left, round(max(scale.x(at) - left, THINNEST), 1), event(cell), "run"))
    return bars


def _bands(cells: Sequence[_Named], scale: _Scale) -> list[Band]:
    """The time that each rebalance took; one that is under way takes until now."""
    bands: list[Band] = []
    began: tuple[datetime, str] | None = None
    for _, cell, at in cells:
        if cell["what"] == "rebalance_started":
            began = began or (at, kind(cell))
        elif cell["what"] == "rebalance_completed":
            seconds = cell.get("duration_seconds") or 0.0
            bands += _band(began[0] if began else at - timedelta(seconds=seconds), at, kind(cell), scale)
            began = None
    return bands + (_band(began[0], scale.until, began[1], scale) if began else [])


def _band(began: datetime, ended: datetime, reason: str, scale: _Scale) -> list[Band]:
    if ended < scale.since or began > scale.until:
        return []
    left = scale.x(began)
    return [Band(left, round(max(scale.x(ended) - left, THINNEST), 1), reason)]


def _ticks(scale: _Scale) -> list[Tick]:
    """Round moments, at least a second and at most a day apart."""
    span = scale.until - scale.since
    step = next((step for step in _STEPS if span / step <= MOST_TICKS), _STEPS[-1])
    epoch = datetime.fromtimestamp(0, UTC)
    at = epoch + ((scale.since - epoch) // step + 1) * step
    spelled = "%H:%M:%S" if step < timedelta(minutes=1) else "%H:%M" if span <= timedelta(days=1) else "%d %b %H:%M"
    ticks = []
    while at <= scale.until:
        ticks.append(Tick(scale.x(at), at.strftime(spelled)))
        at += step
    return ticks


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S")


def summary(cells: Sequence[Cell]) -> str:
    """What a picture shows, for those who do not see it: its events by number."""
    told = Counter(str(cell["what"]).replace("_", " ") for cell in cells)
    return ", ".join(f"{what}: {number:,}" for what, number in told.items())
