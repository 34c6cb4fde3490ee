"""Lays out a group's timeline as a picture: the lanes, and the positions of bars and marks.

The module computes the geometry in units of the picture, and the text of each part. The template draws the SVG and
chooses colours.

A member lane stands for a client id, host and instance id, not for a member id. A consumer that rejoins gets another
member id, and the picture must show the gap between both memberships in one lane. If several members have the same
client id, host and instance id at the same time, each gets a lane of its own.

The module has more than 400 lines because each kind of part has a class that describes it to the template.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, NamedTuple

from group_sidecar.proxy.admin.sentences import Cell, Sentence, UserText, address, client, event, parse_time

WIDTH, LEFT, RIGHT = 1120.0, 230.0, 12.0
"""The picture's width, and its left and right margins. The left margin contains the labels."""
LANE, TOP, AXIS = 26.0, 8.0, 26.0
"""The heights of a lane, of the top margin and of the axis at the bottom."""
MAX_LANES = 40
"""Maximum number of member lanes. Members that joined or left during the recorded time are preferred."""
MAX_TICKS = 8
MIN_SPAN, EDGE = timedelta(minutes=1), 0.03
"""The minimum time span of a picture, and the share of the span that stays empty before the first event."""
MIN_WIDTH = 1.5
"""Minimum width of bars and bands, so that short ones are visible."""
LABEL_CHARACTERS = 30

_OTHER_LANES = (("Refusals", "client_refused", "client_audited"), ("Failed commits", "offsets_committed"))
_STEPS = tuple(
    timedelta(seconds=s)
    for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
)


@dataclass(frozen=True, slots=True)
class Mark:
    """An event at one moment.

    Attributes:
        kind: decides shape and colour. The kind is a rebalance's reason, how a member left, or "refused", "audited",
            "failed", "moved", "joined" or "unknown".
        event: the name of the timeline entry, for a link to its sentence.
    """

    x: float
    kind: str
    description: Sentence
    event: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A time span in a lane.

    `kind`: "stay" for a member's time in the group. "run" for an entry that sums up several events, from the first
    event to the last.
    """

    x: float
    width: float
    description: Sentence
    kind: str = "stay"


@dataclass(frozen=True, slots=True)
class Band:
    """A rebalance, from its start to its end, across all lanes."""

    x: float
    width: float
    reason: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the picture; `y` is its upper edge."""

    label: str
    description: Sentence
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
    """The whole picture. `unseen`: the number of member lanes that are left out."""

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
class _Membership:
    """A member's time in the group. `began` and `ended` are None if the timeline does not contain them."""

    who: Mapping[str, Any]
    began: datetime | None
    ended: datetime | None = None
    end: Mark | None = None


_Key = tuple[str, str, str]
"""Client id, host and instance id."""


@dataclass(slots=True)
class _Row:
    key: _Key
    memberships: list[_Membership] = field(default_factory=list)


def draw_timeline(
    cells: Sequence[Cell], members: Iterable[Mapping[str, Any]], since: datetime, until: datetime
) -> Picture:
    """Returns the picture of a span of time.

    Args:
        cells: all timeline entries of the group, oldest first. Entries before `since` show who was a member at `since`.
        members: the members at `until`, with member_id, client_id, client_host, instance_id and since.
        since: start of the picture.
        until: end of the picture.
    """
    named = [_Named(name, cell, parse_time(cell["at"])) for name, cell in zip(event_names(cells), cells, strict=True)]
    scale = _Scale(since, until)
    shown = [event for event in named if since <= event.at <= until]
    rows, unseen = _rows(_memberships(named, members, scale), since, until)
    lanes = [
        Lane("Rebalances", ("Rebalances",), marks=_marks(shown, scale, "rebalance_completed", "coordinator_moved"))
    ]
    lanes += [_member_lane(row, scale) for row in rows]
    for label, *whats in _OTHER_LANES:
        if marks := _marks(shown, scale, *whats):
            lanes.append(Lane(label, (label,), bars=_spans(shown, scale, *whats), marks=marks))
    placed = [replace(lane, y=TOP + index * LANE) for index, lane in enumerate(lanes)]
    return Picture(TOP + len(placed) * LANE + AXIS, placed, _bands(named, scale), _ticks(scale), unseen)


def picture_start(
    cells: Sequence[Cell], members: Iterable[Mapping[str, Any]], since: datetime, until: datetime
) -> datetime:
    """Returns the start of the picture: `since`, or shortly before the first known event or join if that is later."""
    known = [cell["at"] for cell in cells[:1]] + [member["since"] for member in members if member["since"]]
    if not known:
        return since
    first = min(until - MIN_SPAN, parse_time(min(known)))
    return max(since, first - (until - first) * EDGE)


def event_names(cells: Sequence[Cell]) -> list[str]:
    """Returns a name for each entry: its time, and its index among the entries of that time.

    Names do not change when entries of earlier times are evicted.
    """
    seen: Counter[str] = Counter()
    names = []
    for cell in cells:
        names.append(f"{cell['at']}.{seen[cell['at']]}")
        seen[cell["at"]] += 1
    return names


def kind(cell: Cell) -> str:
    """Returns the kind of an entry's mark, as `Mark` lists the kinds."""
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
    """Maps times to horizontal positions."""

    since: datetime
    until: datetime

    def x(self, at: datetime) -> float:
        """Returns the position of a time. A time outside the picture gets the position of the nearer edge."""
        whole = (self.until - self.since) / timedelta(seconds=1) or 1.0
        part = min(max((at - self.since) / timedelta(seconds=1) / whole, 0.0), 1.0)
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)


class _Memberships:
    """Collects the memberships from the timeline entries, in order.

    A member id has one membership, even if the broker stops coordinating the group in between. The next coordinator
    reads the members from the group's log, so they keep their ids.
    """

    def __init__(self) -> None:
        self.all: list[_Membership] = []
        self._open: dict[str, _Membership] = {}
        self._interrupted: dict[str, _Membership] = {}

    def begin(self, who: Mapping[str, Any], at: datetime | None) -> None:
        """Records that a member is in the group. Has no effect if the member is known to be in the group."""
        member_id = str(who["member_id"])
        if member_id in self._open:
            return
        membership = self._interrupted.pop(member_id, None)
        if membership is None:
            self.all.append(membership := _Membership(who, at))
        membership.ended = None
        self._open[member_id] = membership

    def end(self, who: Mapping[str, Any], at: datetime, mark: Mark) -> None:
        """Records that a member has left."""
        member_id = str(who["member_id"])
        membership = self._open.pop(member_id, None) or self._interrupted.pop(member_id, None)
        if membership is None:
            self.all.append(membership := _Membership(who, None))
        membership.ended, membership.end = at, mark

    def interrupt(self, at: datetime) -> None:
        """Records that the broker stopped coordinating the group. Members may have left unnoticed since then."""
        for membership in self._open.values():
            membership.ended = at
        self._interrupted |= self._open
        self._open.clear()

    def conclude(self, members: Iterable[Mapping[str, Any]]) -> None:
        """Records that only these members are in the group at the end."""
        present = {str(member["member_id"]): member for member in members}
        for member_id, membership in self._open.items():
            if member_id not in present:
                membership.ended = membership.began  # The member left unnoticed, so only its join is known.
        for member in present.values():
            self.begin(member, parse_time(member["since"]) if member.get("since") else None)


def _memberships(cells: Sequence[_Named], members: Iterable[Mapping[str, Any]], scale: _Scale) -> list[_Membership]:
    memberships = _Memberships()
    for name, cell, at in cells:
        match cell["what"]:
            case "member_joined":
                memberships.begin(cell, at)
            case "member_gone":
                memberships.end(cell, at, Mark(scale.x(at), kind(cell), event(cell), name))
            case "coordinator_moved":
                memberships.interrupt(at)
    memberships.conclude(members)
    return memberships.all


def _rows(memberships: Sequence[_Membership], since: datetime, until: datetime) -> tuple[list[_Row], int]:
    """Returns a row for each lane, without overlapping memberships, and the number of rows beyond MAX_LANES."""
    rows: list[_Row] = []
    early = datetime.min.replace(tzinfo=UTC)
    visible = [each for each in memberships if (each.ended or until) >= since and (each.began or early) <= until]
    free: defaultdict[_Key, list[tuple[datetime, int]]] = defaultdict(list)  # The rows whose last membership has ended.
    for membership in sorted(visible, key=lambda membership: membership.began or early):
        key = (
            membership.who.get("client_id") or "",
            address(membership.who.get("client_host")),
            membership.who.get("instance_id") or "",
        )
        if free[key] and free[key][0][0] <= (membership.began or early):
            _, index = heappop(free[key])
        else:
            index = len(rows)
            rows.append(_Row(key))
        rows[index].memberships.append(membership)
        if membership.ended is not None:
            heappush(free[key], (membership.ended, index))
    eventful_first = sorted(
        rows,
        key=lambda row: all(membership.began is None and membership.ended is None for membership in row.memberships),
    )
    return sorted(eventful_first[:MAX_LANES], key=lambda row: row.key), max(0, len(rows) - MAX_LANES)


def _member_lane(row: _Row, scale: _Scale) -> Lane:
    bars = [_bar(membership, scale) for membership in row.memberships]
    marks = [
        membership.end
        for membership in row.memberships
        if membership.end is not None and membership.ended and membership.ended >= scale.since
    ]
    name, host, instance = row.key
    description = [*client(row.memberships[0].who), *((", instance ", UserText(instance)) if instance else ())]
    return Lane(_shortened(instance or name or "(no client id)", host), description, bars, marks)


def _bar(membership: _Membership, scale: _Scale) -> Bar:
    left = scale.x(membership.began or scale.since)
    right = scale.x(membership.ended or scale.until)
    description = [
        *client(membership.who),
        ": from ",
        _clock(membership.began) if membership.began else "before the recorded events",
    ]
    description.append(f" to {_clock(membership.ended)}" if membership.ended else " until now")
    return Bar(left, round(max(right - left, MIN_WIDTH), 1), description)


def _shortened(name: str, host: str) -> str:
    """Returns a lane's label: the name, and the host if there is room."""
    whole = f"{name} {host}".strip()
    short = whole if len(whole) <= LABEL_CHARACTERS else name
    return short if len(short) <= LABEL_CHARACTERS else short[: LABEL_CHARACTERS - 1] + "…"


def _marks(cells: Sequence[_Named], scale: _Scale, *whats: str) -> list[Mark]:
    return [Mark(scale.x(at), kind(cell), event(cell), name) for name, cell, at in cells if cell["what"] in whats]


def _spans(cells: Sequence[_Named], scale: _Scale, *whats: str) -> list[Bar]:
    """Returns a bar for each entry that sums up several events, such as a run of refusals."""
    bars: list[Bar] = []
    for _, cell, at in cells:
        if cell["what"] in whats and cell.get("first_at", cell["at"]) < cell["at"]:
            left = scale.x(parse_time(cell["first_at"]))
            bars.append(Bar(left, round(max(scale.x(at) - left, MIN_WIDTH), 1), event(cell), "run"))
    return bars


def _bands(cells: Sequence[_Named], scale: _Scale) -> list[Band]:
    """Returns a band for each rebalance. The band of a rebalance in progress extends to the end of the picture."""
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
    return [Band(left, round(max(scale.x(ended) - left, MIN_WIDTH), 1), reason)]


def _ticks(scale: _Scale) -> list[Tick]:
    """Returns ticks at round times, at least a second and at most a day apart."""
    span = scale.until - scale.since
    step = next((step for step in _STEPS if span / step <= MAX_TICKS), _STEPS[-1])
    epoch = datetime.fromtimestamp(0, UTC)
    at = epoch + ((scale.since - epoch) // step + 1) * step
    time_format = "%H:%M:%S" if step < timedelta(minutes=1) else "%H:%M" if span <= timedelta(days=1) else "%d %b %H:%M"
    ticks = []
    while at <= scale.until:
        ticks.append(Tick(scale.x(at), at.strftime(time_format)))
        at += step
    return ticks


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S")


def summary(cells: Sequence[Cell]) -> str:
    """Returns a text alternative of a picture: the number of events of each kind."""
    numbers = Counter(str(cell["what"]).replace("_", " ") for cell in cells)
    return ", ".join(f"{what}: {number:,}" for what, number in numbers.items())
