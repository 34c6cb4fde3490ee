"""Regular expressions in the configuration, and filters of groups."""

import re
from collections.abc import Callable, Iterable
from typing import Annotated

from pydantic import AfterValidator, Field


def matcher(pattern: str) -> Callable[[str], object | None]:
    """Returns a function that returns a match if a pattern matches a whole text, or else None.

    Raises:
        ValueError: the pattern is not a regular expression.
    """
    try:
        return re.compile(pattern, re.DOTALL).fullmatch
    except (re.error, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def _checked(pattern: str) -> str:
    matcher(pattern)
    return pattern


RegularExpression = Annotated[str, Field(min_length=1), AfterValidator(_checked)]
"""A regular expression in the syntax of Python's `re`, which must match the whole text."""


def group_filter(allow: Iterable[str], deny: Iterable[str]) -> Callable[[str], bool]:
    """Returns a function that returns whether a group id is chosen.

    An id is chosen if any pattern of `allow` matches, or `allow` is empty, and if no pattern of `deny` matches.

    Raises:
        ValueError: a pattern is not a regular expression.
    """
    allowed, denied = [matcher(each) for each in allow], [matcher(each) for each in deny]

    def chosen(group_id: str) -> bool:
        if any(match(group_id) for match in denied):
            return False
        return not allowed or any(match(group_id) for match in allowed)

    return chosen
