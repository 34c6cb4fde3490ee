"""Formats the findings as one table: a row for each drill and kind of client, with both routes side by side."""

from collections.abc import Sequence

from tests.drills.measures import Noticed
from tests.drills.run import DIRECT, THROUGH, Finding

_HEAD = (
    "| restart | client | rebalances direct | through sidecars | idle seconds direct | through sidecars "
    "| errors direct | through sidecars |\n|---|---|---|---|---|---|---|---|"
)


def table(findings: Sequence[Finding]) -> str:
    """Returns the table in Markdown. A drill that a route does not have is shown as `-`."""
    found = {(each.drill, each.kind, each.route): each.noticed for each in findings}
    keys = dict.fromkeys((each.drill, each.kind) for each in findings)
    drills = dict.fromkeys(drill for drill, _ in keys)
    ordered = [key for drill in drills for key in keys if key[0] == drill]
    return "\n".join([_HEAD, *(_row(key, found.get((*key, DIRECT)), found.get((*key, THROUGH))) for key in ordered)])


def error_list(findings: Sequence[Finding]) -> str:
    """Returns all errors that clients showed, one line each."""
    return "\n".join(
        f"- {each.drill}, {each.route}, {each.kind}: {count} times {text}"
        for each in findings
        for text, count in each.noticed.errors.items()
    )


def _row(key: tuple[str, str], direct: Noticed | None, through: Noticed | None) -> str:
    pair = (direct, through)
    cells = [
        *key,
        *("-" if each is None else str(each.rebalances) for each in pair),
        *("-" if each is None else f"{each.idle_seconds:.1f}" for each in pair),
        *("-" if each is None else str(sum(each.errors.values())) for each in pair),
    ]
    return f"| {' | '.join(cells)} |"
