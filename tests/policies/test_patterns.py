"""Patterns of group ids, and the selection of groups by patterns."""

import pytest
from pydantic import TypeAdapter, ValidationError

from group_sidecar.policies.patterns import RegularExpression, group_filter, matcher


@pytest.mark.parametrize(
    ("pattern", "group_id", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders-2", False),
        ("orders", "my-orders", False),
        ("orders.*", "orders\nand more", True),
        ("Orders", "orders", False),
        ("(?i)Orders", "orders", True),
        (".+", "", False),
    ],
)
def test_pattern_matches_whole_id(pattern: str, group_id: str, matches: bool) -> None:
    """A pattern must match the whole group id."""
    assert bool(matcher(pattern)(group_id)) is matches


@pytest.mark.parametrize("pattern", ["(", "*", "[a", "a{99999999999}", "(" * 5000 + ")" * 5000])
def test_invalid_pattern_is_refused(pattern: str) -> None:
    """An invalid regular expression raises an error."""
    with pytest.raises(ValueError, match=r"is no regular expression|is nested too deeply"):
        matcher(pattern)
    with pytest.raises(ValidationError):
        TypeAdapter(RegularExpression).validate_python(pattern)


@pytest.mark.parametrize(
    ("allow", "deny", "chosen"),
    [
        ([], [], ["a", "b", "tmp-a"]),
        (["a", "tmp-.*"], [], ["a", "tmp-a"]),
        ([], ["tmp-.*"], ["a", "b"]),
        ([".*a"], ["tmp-.*", "b"], ["a"]),
        (["nothing"], [], []),
    ],
)
def test_deny_overrides_allow(allow: list[str], deny: list[str], chosen: list[str]) -> None:
    """A denied group is not chosen, even if it is allowed."""
    choose = group_filter(allow, deny)
    assert [group for group in ("a", "b", "tmp-a") if choose(group)] == chosen
