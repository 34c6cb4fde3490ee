"""``group-sidecar groups top``: a live table of the groups that stand out.

Owns: the screen, when it is drawn and when sidecars are asked again. Must not know: what keys mean (`ranking`).
"""

import signal
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime

import trio
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from group_sidecar.proxy.commandline.answers import GroupSummary, Ranking, Unanswered
from group_sidecar.proxy.commandline.asking import ask_sidecars, finish
from group_sidecar.proxy.commandline.keyboard import keys, single_keys
from group_sidecar.proxy.commandline.moments import shown
from group_sidecar.proxy.commandline.ranking import Choice, first
from group_sidecar.proxy.commandline.showing import NOBODY, figures
from group_sidecar.proxy.commandline.sidecars import SidecarsQuery, opened
from group_sidecar.proxy.commandline.source import Source
from group_sidecar.proxy.commandline.tables import Cells, fitted, print_json, print_table, printable

ONCE = 25
"""Groups of a table that is printed."""

_AROUND = 3  # Lines around the rows: title, headings, keys.
_MOST_PROBLEMS = 3
_DISPENSABLE = ("LAST-REBALANCE", "CAUSE", "LIMIT", "STATE", "REBALANCES", "#MEMBERS")
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KEYS = "l lag   r rebalances   m members   n name   / search   q quit"


def show_top(source: Source, choice: Choice, interval: float, *, once: bool, utc: bool, as_json: bool) -> None:
    """See `groups top`. `interval`: seconds between two looks."""
    if once or as_json or not sys.stdout.isatty():
        ranking = ask_sidecars(source, lambda query: _ranked(query, choice, ONCE))
        if as_json:
            print_json(asdict(ranking))
        else:
            print_table(_HEADINGS, [_row(group, utc) for group in ranking.groups])
        finish(ranking.problems)
        return
    ended_by = trio.run(_View(source, choice, interval, utc).watch)
    if ended_by == signal.SIGINT:
        raise typer.Abort
    if ended_by:
        raise typer.Exit(128 + ended_by)


async def _ranked(query: SidecarsQuery, choice: Choice, limit: int) -> Ranking:
    return first(await query.ranked(choice.order.column, choice.order.descending, choice.search, limit), choice, limit)


class _View:
    """The live table.

    Args:
        source: whom to ask.
        choice: changes as keys are pressed.
        interval: seconds between two looks.
        utc: whether times are in UTC.
    """

    def __init__(self, source: Source, choice: Choice, interval: float, utc: bool) -> None:
        self._source = source
        self._choice = choice
        self._interval = interval
        self._utc = utc
        self._console = Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._ranking = Ranking(groups=(), total=0, all=0)
        self._looked_at = ""
        self._changed = trio.Event()
        self._ended_by = 0

    async def watch(self) -> int:
        """Draws until it is ended. Returns the number of the signal that did it, or 0."""
        terminal = sys.stdin.fileno() if sys.stdin.isatty() else None
        with trio.open_signal_receiver(*_ENDINGS, signal.SIGWINCH) as signals, self._live:
            async with opened(self._source) as query, trio.open_nursery() as nursery:
                nursery.start_soon(self._look, query)
                if terminal is not None:
                    nursery.start_soon(self._listen, terminal, nursery.cancel_scope)
                async for number in signals:
                    if number != signal.SIGWINCH:
                        self._ended_by = number
                        nursery.cancel_scope.cancel()
                        break
                    self._draw()
        return self._ended_by

    async def _look(self, query: SidecarsQuery) -> None:
        self._draw()
        while True:
            self._changed = trio.Event()
            try:
                self._ranking = await _ranked(query, self._choice, max(self._console.height, _AROUND))
            except Unanswered as error:  # What was last seen stays, with its time.
                self._ranking = replace(self._ranking, problems=error.problems)
            else:
                self._looked_at = datetime.now(UTC).isoformat()
            self._draw()
            with trio.move_on_after(self._interval):
                await self._changed.wait()

    async def _listen(self, terminal: int, scope: trio.CancelScope) -> None:
        with single_keys(terminal):
            async for pressed in keys(terminal):
                self._choice.press(pressed)
                if self._choice.ended:
                    scope.cancel()
                self._changed.set()
                self._draw()

    def _draw(self) -> None:
        problems = self._ranking.problems[:_MOST_PROBLEMS]
        room = max(self._console.height - _AROUND - len(problems), 1)
        rows = [_row(group, self._utc) for group in first(self._ranking, self._choice, room).groups]
        table = fitted(_HEADINGS, rows, self._console.width, _DISPENSABLE)
        errors = [Text(printable(str(problem)), style="red", no_wrap=True) for problem in problems]
        self._live.update(Group(self._title(), table, *errors, self._foot()), refresh=True)

    def _title(self) -> Text:
        ranking = self._ranking
        matching = f"{ranking.total} of {ranking.all}" if self._choice.search else str(ranking.all)
        said = f"{shown(self._looked_at, self._utc) or 'asking'}   {matching} groups by {self._choice.order}"
        return Text(said, style="bold", no_wrap=True, overflow="ellipsis")

    def _foot(self) -> Text:
        choice = self._choice
        if choice.typing:
            return Text(f"/{printable(choice.search)}_", no_wrap=True)
        found = f"   /{printable(choice.search)}" if choice.search else ""
        return Text(_KEYS + found, style="dim", no_wrap=True, overflow="ellipsis")


def _row(group: GroupSummary, utc: bool) -> Cells:
    return {"GROUP": group.group, "STATE": group.state, **figures(group, utc)}


_HEADINGS = tuple(_row(NOBODY, utc=False))
