"""The command ``group-sidecar groups top``: a live table of the groups with the most lag, rebalances or members.

The module draws the screen, and queries the sidecars at intervals. `ranking` handles the pressed keys.
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

from group_sidecar.proxy.commandline.exit_codes import exit_on_problems
from group_sidecar.proxy.commandline.keyboard import keys, single_keys
from group_sidecar.proxy.commandline.output import UNKNOWN_GROUP, sidecar_columns
from group_sidecar.proxy.commandline.queries import ask_sidecars
from group_sidecar.proxy.commandline.ranking import TopSelection, top_groups
from group_sidecar.proxy.commandline.results import GroupSummary, NoAnswer, Ranking
from group_sidecar.proxy.commandline.sidecar_queries import SidecarQueries, open_sidecars
from group_sidecar.proxy.commandline.tables import Cells, fit_table, print_json, print_table, printable
from group_sidecar.proxy.commandline.target import QueryTarget
from group_sidecar.proxy.commandline.times import format_time

ONCE = 25
"""Maximum number of groups in a table that is printed once."""

_AROUND = 3  # Lines in addition to the rows: title, headings and keys.
_MAX_PROBLEMS = 3
_DROPPABLE_COLUMNS = ("LAST-REBALANCE", "CAUSE", "LIMIT", "STATE", "REBALANCES", "#MEMBERS")
_EXIT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KEYS = "l lag   r rebalances   m members   n name   / search   q quit"


def show_top(
    source: QueryTarget, choice: TopSelection, interval: float, *, once: bool, utc: bool, as_json: bool
) -> None:
    """Prints the table of `groups top` once, or keeps the table on the screen. `interval`: seconds between queries."""
    if once or as_json or not sys.stdout.isatty():
        ranking = ask_sidecars(source, lambda query: _ranked(query, choice, ONCE))
        if as_json:
            print_json(asdict(ranking))
        else:
            print_table(_HEADINGS, [_row(group, utc) for group in ranking.groups])
        exit_on_problems(ranking.problems)
        return
    ended_by = trio.run(_View(source, choice, interval, utc).watch)
    if ended_by == signal.SIGINT:
        raise typer.Abort
    if ended_by:
        raise typer.Exit(128 + ended_by)


async def _ranked(query: SidecarQueries, choice: TopSelection, limit: int) -> Ranking:
    return top_groups(
        await query.ranked(choice.order.column, choice.order.descending, choice.search, limit), choice, limit
    )


class _View:
    """The live table.

    Args:
        source: the sidecars to query.
        choice: the order and the search, which pressed keys change.
        interval: seconds between two queries.
        utc: whether times are in UTC.
    """

    def __init__(self, source: QueryTarget, choice: TopSelection, interval: float, utc: bool) -> None:
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
        """Draws until the user quits or a signal arrives. Returns the signal's number, or 0 if the user has quit."""
        terminal = sys.stdin.fileno() if sys.stdin.isatty() else None
        with trio.open_signal_receiver(*_EXIT_SIGNALS, signal.SIGWINCH) as signals, self._live:
            async with open_sidecars(self._source) as query, trio.open_nursery() as nursery:
                nursery.start_soon(self._refresh, query)
                if terminal is not None:
                    nursery.start_soon(self._listen, terminal, nursery.cancel_scope)
                async for number in signals:
                    if number != signal.SIGWINCH:
                        self._ended_by = number
                        nursery.cancel_scope.cancel()
                        break
                    self._draw()
        return self._ended_by

    async def _refresh(self, query: SidecarQueries) -> None:
        self._draw()
        while True:
            self._changed = trio.Event()
            try:
                self._ranking = await _ranked(query, self._choice, max(self._console.height, _AROUND))
            except NoAnswer as error:  # The screen keeps the last groups and their time.
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
                if self._choice.quit_requested:
                    scope.cancel()
                self._changed.set()
                self._draw()

    def _draw(self) -> None:
        problems = self._ranking.problems[:_MAX_PROBLEMS]
        room = max(self._console.height - _AROUND - len(problems), 1)
        rows = [_row(group, self._utc) for group in top_groups(self._ranking, self._choice, room).groups]
        table = fit_table(_HEADINGS, rows, self._console.width, _DROPPABLE_COLUMNS)
        errors = [Text(printable(str(problem)), style="red", no_wrap=True) for problem in problems]
        self._live.update(Group(self._title(), table, *errors, self._foot()), refresh=True)

    def _title(self) -> Text:
        ranking = self._ranking
        matching = f"{ranking.total} of {ranking.all}" if self._choice.search else str(ranking.all)
        title = f"{format_time(self._looked_at, self._utc) or 'asking'}   {matching} groups by {self._choice.order}"
        return Text(title, style="bold", no_wrap=True, overflow="ellipsis")

    def _foot(self) -> Text:
        choice = self._choice
        if choice.typing:
            return Text(f"/{printable(choice.search)}_", no_wrap=True)
        found = f"   /{printable(choice.search)}" if choice.search else ""
        return Text(_KEYS + found, style="dim", no_wrap=True, overflow="ellipsis")


def _row(group: GroupSummary, utc: bool) -> Cells:
    return {"GROUP": group.group, "STATE": group.state, **sidecar_columns(group, utc)}


_HEADINGS = tuple(_row(UNKNOWN_GROUP, utc=False))
