"""Prints the demo's headings, tables and check marks. A wait shows a spinner on a terminal, and a line elsewhere."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.rule import Rule
from rich.table import Table


class DemoOutput:
    """Prints the demo, and keeps the failed and the skipped checks.

    Attributes:
        failed_checks: the checks that failed.
        skipped_checks: for each check that could not run on this machine, what the check needs.
    """

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.failed_checks: list[str] = []
        self.skipped_checks: list[str] = []

    def heading(self, text: str) -> None:
        """Prints the heading of a part."""
        self.console.print()
        self.console.print(Rule(f"[bold]{text}", align="left"))

    def say(self, text: str) -> None:
        """Prints one line."""
        self.console.print(text)

    def check(self, seen: bool, what: str) -> None:
        """Prints whether a check passed, and keeps a failed check."""
        self.console.print(f"  [green]✓[/] {what}" if seen else f"  [bold red]✗ failed:[/] {what}")
        if not seen:
            self.failed_checks.append(what)

    def skip_check(self, what: str) -> None:
        """Prints and keeps a check that cannot run on this machine. `what`: what the check needs."""
        self.console.print(f"  [yellow]! {what}[/]")
        self.skipped_checks.append(what)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Prints a table. Numbers are right-aligned."""
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
        """Shows what the demo waits for while the block runs, and then how long the block took."""
        began = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(what + " …"):
                yield
        else:
            self.say(f"  {what} …")
            yield
        self.say(f"  [dim]{what}: {time.monotonic() - began:.1f} s[/]")
