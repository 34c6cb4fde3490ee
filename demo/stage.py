"""What the audience sees: headings, tables, ticks.

Owns: the terminal. Must not know: Kafka. On a terminal a wait shows a spinner; elsewhere a line.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.rule import Rule
from rich.table import Table


class Stage:
    """Shows the demo, and remembers what was not seen.

    Attributes:
        missing: what should have been seen and was not.
        impossible: what could not be shown on this machine, and why.
    """

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.missing: list[str] = []
        self.impossible: list[str] = []

    def heading(self, text: str) -> None:
        """Begins a part."""
        self.console.print()
        self.console.print(Rule(f"[bold]{text}", align="left"))

    def say(self, text: str) -> None:
        """One line."""
        self.console.print(text)

    def check(self, seen: bool, what: str) -> None:
        """Ticks off what was seen; crosses out, and remembers, what was not."""
        self.console.print(f"  [green]✓[/] {what}" if seen else f"  [bold red]✗ not seen:[/] {what}")
        if not seen:
            self.missing.append(what)

    def cannot(self, what: str) -> None:
        """Says what cannot be shown on this machine, and how it could."""
        self.console.print(f"  [yellow]! {what}[/]")
        self.impossible.append(what)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table; numbers stand on the right."""
        drawn = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
        cells = [tuple(row) for row in rows]
        for index, column in enumerate(columns):
            numbers = all(isinstance(row[index], int | float) for row in cells)
            drawn.add_column(column, justify="right" if numbers and cells else "left", overflow="fold")
        for row in cells:
            drawn.add_row(*(str(cell) for cell in row))
        self.console.print(drawn)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Shows that something takes a while, and then how long it took."""
        began = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(what + " …"):
                yield
        else:
            self.say(f"  {what} …")
            yield
        self.say(f"  [dim]{what}: {time.monotonic() - began:.1f} s[/]")
