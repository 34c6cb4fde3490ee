"""The state of `groups top`: the order of the groups, the search, and the keys that change them."""

from dataclasses import dataclass, replace
from enum import StrEnum

from group_sidecar.proxy.commandline.results import GroupSummary, Ranking

ERASE = "\x7f\x08"
ENTER = "\r\n"
ESCAPE = "\x1b"


class Order(StrEnum):
    """The value by which groups are sorted."""

    LAG = "lag"
    REBALANCES = "rebalances"
    MEMBERS = "members"
    NAME = "name"

    @property
    def column(self) -> str:
        """The admin port's name of the order."""
        return "group" if self is Order.NAME else self.value

    @property
    def descending(self) -> bool:
        """Whether the group with the largest value is first."""
        return self is not Order.NAME


_ORDERS = {order.value[0]: order for order in Order}


@dataclass(slots=True)
class TopSelection:
    """The user's choices in `groups top`.

    Attributes:
        order: the order of the groups.
        search: text that the groups' names must contain.
        typing: whether the user is typing the search. Letters are then not commands.
        quit_requested: whether the user wants to quit.
    """

    order: Order = Order.LAG
    search: str = ""
    typing: bool = False
    quit_requested: bool = False

    def press(self, keys: str) -> None:
        """Handles keys from a terminal. Keys that send an escape sequence, such as arrows, have no effect."""
        if len(keys) > 1 and keys.startswith(ESCAPE):
            return
        for key in keys:
            if self.typing:
                self._type(key)
            else:
                self._command(key)

    def _command(self, key: str) -> None:
        if key == "q":
            self.quit_requested = True
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


def top_groups(ranking: Ranking, choice: TopSelection, limit: int) -> Ranking:
    """Returns the first `limit` groups in the chosen order. Groups with unknown values are last.

    Groups with equal values are ordered by name.
    """

    def place(group: GroupSummary) -> tuple[int, str]:
        figure = None if choice.order is Order.NAME else getattr(group, choice.order.column)
        return 1 if figure is None else -figure, group.group

    return replace(ranking, groups=sorted(ranking.groups, key=place)[:limit])
