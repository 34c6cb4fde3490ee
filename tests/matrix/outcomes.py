"""The outcome of a client's step, and the verdict on both routes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The comparison of a step through the sidecar with the same step directly."""

    SAME = "works"
    FAIL = "FAIL"
    ADDED = "only through the sidecar"
    NEITHER = "no (also directly)"
    UNSUPPORTED = "not supported by the client"
    NOT_RUN = "not run"


SIGNS: Mapping[Verdict, str] = {
    Verdict.SAME: "✓",
    Verdict.FAIL: "**FAIL**",
    Verdict.ADDED: "+",
    Verdict.NEITHER: "no",
    Verdict.UNSUPPORTED: "n/a",
    Verdict.NOT_RUN: "?",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step on one route.

    Args:
        error: the client's error text, empty if the step worked.
        unsupported: whether the client has no such feature.
    """

    ok: bool
    error: str = ""
    unsupported: bool = False


@dataclass(frozen=True)
class Cell:
    """One step of one client with one broker.

    Args:
        direct: the outcome without the sidecar.
        through: the outcome through the sidecar.
        again: whether the routes differed at first, and both worked when the client ran a second time.
    """

    direct: Outcome
    through: Outcome
    again: bool = False

    @property
    def verdict(self) -> Verdict:
        if self.direct.unsupported and self.through.unsupported:
            return Verdict.UNSUPPORTED
        if self.direct.ok:
            return Verdict.SAME if self.through.ok else Verdict.FAIL
        return Verdict.ADDED if self.through.ok else Verdict.NEITHER
