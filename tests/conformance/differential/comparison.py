"""Sends one question to the broker and to the sidecar, and compares the replies."""

import http.client
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import groupby, repeat
from types import TracebackType
from typing import Any, Self

from group_sidecar.codecs.schema import Struct
from tests.conformance.differential.group_requests import Question
from tests.kafka.processes import GIVE_UP_SECONDS, Address
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.wire import Wire

LOCAL = "local"
DIFFERENT = "DIFFERENT"
_UNCLEAR = " or "


@dataclass(frozen=True)
class Outcome:
    """The result of one question.

    Args:
        how: ``local``, ``forwarded (reason)`` or ``forwarded``.
    """

    question: Question
    how: str
    direct: Any
    through: Any

    @property
    def agrees(self) -> bool:
        return bool(self.direct == self.through)

    @property
    def text(self) -> str:
        """Returns the text in the table."""
        return self.how if self.agrees else DIFFERENT

    def __str__(self) -> str:
        lines = [f"{self.question}: {self.how}", *differences(self.direct, self.through)]
        return "\n  ".join(lines if self.agrees else [*lines, f"asked {self.question.request}"])


class Asker:
    """Sends questions to the broker and to a sidecar, over one connection to each, for the length of a with statement.

    No other client may use this sidecar meanwhile, because its counters show who answered.
    """

    def __init__(self, direct: Address, sidecar: SidecarProcess) -> None:
        self._direct, self._through = Wire(direct, client_id="asker"), Wire(sidecar.listen, client_id="asker")
        self._admin = http.client.HTTPConnection(*sidecar.admin, timeout=GIVE_UP_SECONDS)
        self._counted = self._count()

    def ask(self, question: Question) -> Outcome:
        """Sends one question to the broker and to the sidecar."""
        return self._put([question])[0]

    def ask_all(self, questions: Iterable[Question]) -> list[Outcome]:
        """Sends all questions. Those of the same API and variant share a reading of the counters."""
        runs = groupby(questions, key=lambda question: (question.api, question.way))
        return [outcome for _, run in runs for outcome in self._ask_run(list(run))]

    def _ask_run(self, questions: Sequence[Question]) -> list[Outcome]:
        """Sends all questions. If their outcomes differ, sends each half again. A difference is always kept."""
        outcomes = self._put(questions)
        if _UNCLEAR not in outcomes[0].how:
            return outcomes
        differences = [outcome for outcome in outcomes if not outcome.agrees]
        half = len(questions) // 2
        return [*differences, *self._ask_run(questions[:half]), *self._ask_run(questions[half:])]

    def _put(self, questions: Sequence[Question]) -> list[Outcome]:
        direct = [in_order(self._direct.ask(question.request, question.version)) for question in questions]
        through = [in_order(self._through.ask(question.request, question.version)) for question in questions]
        before, self._counted = self._counted, self._count()
        grown = {what: count for what, count in self._counted.items() if count > before.get(what, 0)}
        how = (_UNCLEAR if len(questions) > 1 else ", ").join(sorted(grown)) or "forwarded"
        if len(grown) == 1 < len(questions) and self._counted[how] - before.get(how, 0) != len(questions):
            how = f"{how}{_UNCLEAR}forwarded"
        return [Outcome(*each) for each in zip(questions, repeat(how), direct, through, strict=False)]

    def _count(self) -> dict[str, int]:
        """Returns the counters of local answers, and of forwarded requests by reason, over all APIs.

        A run reads the counters a thousand times, and the status takes a fifth of the time that the metrics take.
        """
        self._admin.request("GET", "/api/v1/status")
        status = json.loads(self._admin.getresponse().read())
        forwarded = {f"forwarded ({reason})": count for reason, count in status["fallbacks"].items()}
        return {LOCAL: sum(status["answers"].values()), **forwarded}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admin.close()
        for wire in (self._direct, self._through):
            wire.__exit__(kind, error, trace)


def in_order(value: Any) -> Any:
    """Returns a reply with sorted groups, members, topics and partitions, whose order the broker does not guarantee.

    Lists of plain values keep their order.
    """
    if isinstance(value, tuple):
        items = tuple(map(in_order, value))
        return tuple(sorted(items, key=repr)) if any(isinstance(item, Struct) for item in items) else items
    if isinstance(value, Struct):
        return replace(value, **dict(_fields_in_order(value)))
    return value


def _fields_in_order(value: Any) -> Iterator[tuple[str, Any]]:
    assert is_dataclass(value)
    for each in fields(value):
        yield each.name, in_order(getattr(value, each.name))


def differences(direct: Any, through: Any, place: str = "answer") -> Iterator[str]:
    """Yields the differences of two replies, with both values."""
    if type(direct) is type(through) and isinstance(direct, Struct):
        for each in fields(direct):
            yield from differences(getattr(direct, each.name), getattr(through, each.name), f"{place}.{each.name}")
    elif isinstance(direct, tuple) and isinstance(through, tuple) and len(direct) == len(through):
        for number, pair in enumerate(zip(direct, through, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif direct != through:
        yield f"{place}: broker {direct}, sidecar {through}"
