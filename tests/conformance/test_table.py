"""The table of outcomes is as short as possible, and equal in every run."""

from dataclasses import replace

from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.conformance.differential.answers_table import FOUND, SEEN, Cell, Table, spans, summed_up
from tests.conformance.differential.comparison import DIFFERENT, LOCAL, Outcome, differences, in_order
from tests.conformance.differential.group_requests import Question
from tests.conformance.differential.group_states import STATES

FORWARDED = "forwarded (cold)"
ANSWER, OTHER = ListGroupsResponse(error_code=0, groups=()), ListGroupsResponse(error_code=14, groups=())


def cells(*outcomes: tuple[str, int, str]) -> list[Cell]:
    return [Cell("4.3.1", SEEN, "simple", "OffsetFetch", way, version, how) for way, version, how in outcomes]


def outcome(version: int, how: str, through: ListGroupsResponse = ANSWER) -> Outcome:
    return Outcome(Question("ListGroups", version, "", ListGroupsRequest()), how, ANSWER, through)


def test_versions_are_shown_as_ranges() -> None:
    """spans shows consecutive versions as ranges."""
    assert spans([3, 1, 2, 5, 9, 8]) == "v1-3, v5, v8-9"


def test_common_outcome_is_shown_once() -> None:
    """An outcome that all cells share is shown once."""
    assert summed_up(cells(("", 0, LOCAL), ("", 1, LOCAL), ("named", 1, LOCAL))) == "local"


def test_exceptions_are_shown_by_version() -> None:
    """An exception of one version is shown with this version."""
    assert summed_up(cells(("", 0, LOCAL), ("", 1, LOCAL), ("", 2, FORWARDED))) == "local; v2 forwarded (cold)"


def test_exceptions_are_shown_by_way() -> None:
    """An exception of one way to ask is shown with its version and way."""
    row = cells(("a", 1, LOCAL), ("b", 1, LOCAL), ("c", 1, FORWARDED), ("a", 2, LOCAL), ("b", 2, LOCAL))
    assert summed_up(row) == "local; v1 c forwarded (cold)"


def test_many_ways_show_the_exempt_one() -> None:
    """An exception of most ways names only the way that is exempt."""
    row = cells(*(("a", version, LOCAL) for version in range(5)), ("b", 4, FORWARDED), ("c", 4, FORWARDED))
    assert summed_up(row) == "local; v4 all but a forwarded (cold)"


def test_difference_is_kept() -> None:
    """A difference stays in its cell after a later agreement."""
    table = Table()
    table.record("4.3.1", SEEN, "simple", [outcome(4, LOCAL, OTHER), outcome(4, LOCAL), outcome(5, LOCAL)])
    assert [cell.text for cell in table.cells] == [DIFFERENT, LOCAL]
    assert "| 4.3.1 | 2 | 1 | 0 | 1 |" in table.page()


def test_page_is_independent_of_test_order() -> None:
    """The page is the same for any order of the recorded tests."""
    there, back = Table(), Table()
    runs = [
        (axis, state.name, outcome(version, how))
        for axis in (SEEN, FOUND)
        for state in STATES
        for version, how in enumerate((LOCAL, FORWARDED, FORWARDED, LOCAL))
    ]
    for table, its in ((there, runs), (back, runs[::-1])):
        for axis, state, one in its:
            table.record("4.3.1", axis, state, [one])
    assert there.page() == back.page()
    assert "local; v1-2 forwarded (cold)" in there.page()


def test_struct_lists_are_unordered() -> None:
    """in_order sorts lists of structs and keeps the order of lists of values."""
    request = ListGroupsRequest(states_filter=("b", "a"))
    assert in_order(request) == request
    assert in_order((outcome(1, LOCAL).question.request, request)) == in_order((request, ListGroupsRequest()))


def test_difference_names_its_place() -> None:
    """Each difference names its place and both values."""
    group = ListedGroup(group_id="g", protocol_type="consumer")
    there = ListGroupsResponse(error_code=0, groups=(group,))
    changed = replace(there, groups=(replace(group, protocol_type=""),))
    assert list(differences(there, there)) == []
    assert list(differences(there, changed)) == ["answer.groups[0].protocol_type: broker consumer, sidecar "]
    [missing] = differences(there, ANSWER)
    assert missing.startswith("answer.groups: broker (ListedGroup(")
