"""Regular expressions on group ids, as operators write them.

Owns: `GroupPattern`, what it means to match, and what a choice of groups is. Must not know: what they are for.
"""

import re
from collections.abc import Callable, Iterable
from typing import Annotated

from pydantic import AfterValidator, Field


def matcher(pattern: str) -> Callable[[str], object | None]:
    """Tells whether a pattern matches a whole group id. Raises ValueError where it is no regular expression."""
    try:
        return re.compile(pattern, re.DOTALL).fullmatch
    except (re.error, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def _checked(pattern: str) -> str:
    matcher(pattern)
    return pattern


GroupPattern = Annotated[str, Field(min_length=1), AfterValidator(_checked)]
"""A regular expression as Python's `re` has it, which must match the whole id."""


def selection(allow: Iterable[str], deny: Iterable[str]) -> Callable[[str], bool]:
    """Tells whether a group is chosen, by its id: by any of `allow`, where there are some, and by none of `deny`.

    Raises ValueError where one is no regular expression.
    """
    allowed, denied = [matcher(each) for each in allow], [matcher(each) for each in deny]

    def chosen(group_id: str) -> bool:
        if any(match(group_id) for match in denied):
            return False
        return not allowed or any(match(group_id) for match in allowed)

    return chosen
