"""Keeps the results of runs in a file, so that several partial runs make one page."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.matrix.outcomes import Cell, Outcome
from tests.matrix.rows import ROWS
from tests.matrix.run import BrokerResult

Cells = Mapping[str, Mapping[str, Mapping[str, Cell]]]
"""The cells by broker, client and step."""


class Results:
    """All results that a file holds.

    Results of another version of the client, or with other steps, are left out.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        text = file.read_text("utf-8") if file.exists() else '{"cells": {}, "questions": {}, "missing": {}}'
        self._held: dict[str, Any] = json.loads(text)

    def add(self, broker: str, result: BrokerResult) -> None:
        """Adds the results of a broker, and writes the file."""
        held = self._held["cells"].setdefault(broker, {})
        for client, steps in result.cells.items():
            cells = {step: asdict(cell) for step, cell in steps.items()}
            held[client] = {"version": ROWS[client].version, "steps": cells}
            self._held["missing"].pop(client, None)
        self._held["questions"].setdefault(broker, {"local": 0, "forwarded": 0})
        for name, count in (("local", result.local_answers), ("forwarded", result.forwarded_questions)):
            self._held["questions"][broker][name] += count
        self._write()

    def add_missing(self, client: str, reason: str) -> None:
        """Adds the reason for which a client cannot run, and writes the file."""
        self._held["missing"][client] = reason
        self._write()

    def clear(self) -> None:
        """Forgets everything."""
        self._held = {"cells": {}, "questions": {}, "missing": {}}

    @property
    def missing(self) -> Mapping[str, str]:
        """The reasons for which clients did not run, by client."""
        return dict(self._held["missing"])

    @property
    def questions(self) -> Mapping[str, Mapping[str, int]]:
        """How many questions about groups the sidecars answered and forwarded, by broker."""
        return dict(self._held["questions"])

    @property
    def cells(self) -> Cells:
        """The cells of the current versions and steps."""
        return {
            broker: {
                client: {step: _cell(cell) for step, cell in held["steps"].items()}
                for client, held in clients.items()
                if _is_current(client, held)
            }
            for broker, clients in self._held["cells"].items()
        }

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._held, indent=1), "utf-8")


def _is_current(client: str, held: Mapping[str, Any]) -> bool:
    row = ROWS.get(client)
    return row is not None and held["version"] == row.version and tuple(held["steps"]) == row.steps


def _cell(held: Mapping[str, Any]) -> Cell:
    return Cell(Outcome(**held["direct"]), Outcome(**held["through"]), held["again"])
