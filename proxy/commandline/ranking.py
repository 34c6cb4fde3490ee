"""Which groups stand first in `groups top`, and what its keys do.

Owns: the orders, what is searched for, what a key changes. Must not know: terminals, who is asked.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from group_sidecar.proxy.commandline.answers import GroupSummary, Ranking

ERASE = "\x7f\x08"
ENTER = "\r\n"
ESCAPE = "\x1b"


class Order(StrEnum):
    """What the groups are sorted by."""

    LAG = "lag"
    REBALANCES = "rebalances"
    MEMBERS = "members"
    NAME = "name"

    @property
    def column(self) -> str:
        """What the admin port calls it."""
        return "group" if self is Order.NAME else self.value

    @property
    def descending(self) -> bool:
        """Whether the group with most stands first."""
        return self is not Order.NAME


_ORDERS = {order.value[0]: order for order in Order}


@dataclass(slots=True)
class Choice:
    """What somebody who watches has chosen.

    Attributes:
        order: what the groups are sorted by.
        search: what their names have in them.
        typing: whether the search is being typed; letters are then no commands.
        ended: whether enough was seen.
    """

    order: Order = Order.LAG
    search: str = ""
    typing: bool = False
    ended: bool = False

    def press(self, keys: str) -> None:
        """Takes keys as a terminal sends them. What begins with an escape (an arrow, say) ends the search, no more."""
        if len(keys) > 1 and keys.startswith(ESCAPE):
            return
        for key in keys:
            if self.typing:
                self._type(key)
            else:
                self._command(key)

    def _command(self, key: str) -> None:
        if key == "q":
            self.ended = True
        elif key == "/":
            self.search, self.typing = "", True
        elif key == ESCAPE:
            self.search = ""
        else:
            self.order = _ORDERS.get(key, self.order)

    def _type(self, key: str) -> None:
        if key == ESCAPE:
            self.search, self.typing = "", False
        elif key in ENTER:
            self.typing = False
        elif key in ERASE:
            self.search = self.search[:-1]
        elif key.isprintable():
            self.search += key


def first(ranking: Ranking, choice: Choice, limit: int) -> Ranking:
    """The first groups by what was chosen; those of which it is not known stand last, equal ones by their names."""

    def place(group: GroupSummary) -> tuple[int, str]:
        figure = None if choice.order is Order.NAME else getattr(group, choice.order.column)
        return 1 if figure is None else -figure, group.group

    return replace(ranking, groups=sorted(ranking.groups, key=place)[:limit])
