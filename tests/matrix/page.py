"""Writes docs/compatibility.md from the results."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.matrix.outcomes import SIGNS, Cell, Verdict
from tests.matrix.results import Results
from tests.matrix.rows import CLIENTS, FRAMEWORKS, Row
from tests.matrix.run import BROKERS

_HEAD = """\
# Compatibility with clients and frameworks

<!-- Generated: `python -m tests.matrix` writes this page. -->

`python -m tests.matrix` runs each client against each broker twice: directly, and through a sidecar with the setting
`answers.exclusive`. A cell compares the two runs, step by step. The programs are in `tests/matrix/clients`.

- **✓**: the step works through the sidecar, as it does directly.
- **FAIL**: the step works directly but not through the sidecar. The run ends with status 1.
- **+**: the step works only through the sidecar, which adds API versions that the broker lacks
  ([old brokers](old-brokers.md)).
- **no**: the step works neither directly nor through the sidecar. The last table has the errors.
- **n/a**: the client has no such feature.
- **?**: the step has not been run.
"""

_CLIENT_STEPS = """\
The signs of a cell are in this order. If there is a single sign, the first step failed and the others did not run:

1. *produce*: The client produces 100 records to four partitions.
2. *consume*: As a member of a group, the client consumes each record exactly once. It commits and reads its commits.
   KafkaJS may read a record twice, because it sometimes does so without a sidecar too.
3. *rebalance*: A second member joins, and the two members share the partitions. Then the second member leaves, and the
   first member has all partitions again.
4. *transactions*: The client aborts one transaction and commits another, with offsets of a group. A consumer with
   `read_committed` sees only the records of the committed transaction.
5. *admin*: The client lists topics and groups, describes a group with its members and assignments, and lists committed
   offsets.
"""

_FRAMEWORK_STEPS = """\
The signs of a cell are in this order. If there is a single sign, the first step failed and the others did not run:

- Kafka Streams: The client *produces* records. The application *counts* their words, and counts them *exactly once*. A
  second instance joins and leaves (*rebalance*). The client lists and describes the *groups*. `streams-kip-1071` uses
  the group protocol of KIP-1071, which Kafka 4.2 made generally available. Counting exactly once (`exactly_once_v2`)
  requires Kafka 2.5.
- Kafka Connect, distributed: A worker *starts* and joins the group of workers. A source connector and a sink connector
  *copy* the lines of a file through a topic to another file. A second worker joins and leaves (*rebalance*). The client
  lists and describes the *groups* of the workers and of the sink connector.
"""

_NOT_COVERED = """\
Nobody has run ksqlDB, Schema Registry and Karapace here. Kafka Connect 4.4.0 is published without its connectors for
files, so the table has Connect 4.3.1.
"""

_NAMES = re.compile(r"[\w-]+-(?:direct|through)-[0-9a-f]{4}(?:-group)?")
_ADDRESS = re.compile(r"(?:localhost/)?127\.0\.0\.1[:/](?:127\.0\.0\.1:)?\d+")
_PATH = re.compile(r"(?<![\w./])/(?:[\w.+@-]+/)+[\w.+*-]*")
_LONG = 160


def page(results: Results) -> str:
    """Returns the whole text of the page."""
    parts = [
        _HEAD,
        "## Clients\n\n" + _CLIENT_STEPS + "\n" + _table(CLIENTS, results),
        "## Frameworks\n\n" + _FRAMEWORK_STEPS + "\n" + _table(FRAMEWORKS, results),
        _NOT_COVERED,
        _questions(results),
        _differences(results),
    ]
    return "\n".join(part for part in parts if part)


def _table(rows: Sequence[Row], results: Results) -> str:
    lines = ["| client | version | " + " | ".join(BROKERS) + " |", "|---|---|" + "---|" * len(BROKERS)]
    for row in rows:
        cells = [_signs(row, results.cells.get(broker, {}).get(row.name)) for broker in BROKERS]
        lines.append(f"| {row.name} | {row.version} | " + " | ".join(cells) + " |")
    missing = [row.name for row in rows if row.name in results.missing]
    text = "\n".join(lines) + "\n"
    return text + "".join(f"\n`{name}` was not run: {results.missing[name]}.\n" for name in missing)


def _signs(row: Row, cells: Mapping[str, Cell] | None) -> str:
    if cells is None:
        return SIGNS[Verdict.NOT_RUN]
    signs = [SIGNS[cells[step].verdict] for step in row.steps]
    return signs[0] if len(set(signs)) == 1 and signs[0] == SIGNS[Verdict.NEITHER] else " ".join(signs)


def _questions(results: Results) -> str:
    lines = [
        "## Questions about groups\n",
        "Clients sent ListGroups, DescribeGroups and OffsetFetch requests through the sidecars. The table shows how",
        "many of them the sidecars answered from their own copy, and how many they forwarded:\n",
        "| Kafka | answered | forwarded |",
        "|---|--:|--:|",
    ]
    counts = [(broker, results.questions[broker]) for broker in BROKERS if broker in results.questions]
    lines += [f"| {broker} | {count['local']} | {count['forwarded']} |" for broker, count in counts]
    return "\n".join(lines) + "\n" if counts else ""


def _differences(results: Results) -> str:
    """Returns the text about all cells that have a reason to show."""
    lines = [
        "## What does not work, and why\n",
        "The texts are error messages of the clients or of the test programs.\n",
    ]
    lines += ["| client | steps | brokers | result | error |", "|---|---|---|---|---|"]
    for (client, brokers, verdict, text), steps in _by_reason(results).items():
        lines.append(f"| {client} | {', '.join(steps)} | {', '.join(brokers)} | {verdict} | {text} |")
    return "\n".join(lines) + "\n"


def _by_reason(results: Results) -> Mapping[tuple[str, tuple[str, ...], Verdict, str], Sequence[str]]:
    """Returns the steps that have the same reason, by client, brokers, verdict and reason."""
    brokers: dict[tuple[str, str, Verdict, str], list[str]] = defaultdict(list)
    for row in (*CLIENTS, *FRAMEWORKS):
        for broker in BROKERS:
            for step, cell in results.cells.get(broker, {}).get(row.name, {}).items():
                if (text := _reason(cell)) is not None:
                    brokers[row.name, step, cell.verdict, text].append(broker)
    steps: dict[tuple[str, tuple[str, ...], Verdict, str], list[str]] = defaultdict(list)
    for (client, step, verdict, text), versions in brokers.items():
        steps[client, tuple(versions), verdict, text].append(step)
    return steps


def _reason(cell: Cell) -> str | None:
    """Returns the error text to show for a cell, without names, addresses and paths; None if it shows no text."""
    if cell.verdict is Verdict.SAME:
        return (
            "the direct run and the run through the sidecar differed once; a repetition did not" if cell.again else None
        )
    error = cell.through.error if cell.verdict is Verdict.FAIL else cell.direct.error
    if error.endswith(" failed") and " " not in error.removesuffix(" failed"):
        return None  # The failed step has a row of its own.
    text = (
        _PATH.sub("PATH", _ADDRESS.sub("BROKER", _NAMES.sub("NAME", error))).replace("|", "/").replace("`", "'").strip()
    )
    text = text if len(text) <= _LONG else text[:_LONG] + " ..."
    return f"`{text}`"
