"""The table says what was answered how, in as few words as that takes, and the same in every run."""

from dataclasses import replace

from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.conformance.differential.comparison import DIFFERENT, LOCAL, Outcome, differences, in_order
from tests.conformance.differential.questions import Question
from tests.conformance.differential.states import STATES
from tests.conformance.differential.table import FOUND, SEEN, Cell, Table, spans, summed_up

FORWARDED = "forwarded (cold)"
ANSWER, OTHER = ListGroupsResponse(error_code=0, groups=()), ListGroupsResponse(error_code=14, groups=())


def cells(*told: tuple[str, int, str]) -> list[Cell]:
    return [Cell("4.3.1", SEEN, "simple", "OffsetFetch", way, version, how) for way, version, how in told]


def outcome(version: int, how: str, through: ListGroupsResponse = ANSWER) -> Outcome:
    return Outcome(Question("ListGroups", version, "", ListGroupsRequest()), how, ANSWER, through)


def test_versions_are_told_as_ranges() -> None:
    assert spans([3, 1, 2, 5, 9, 8]) == "v1-3, v5, v8-9"


def test_what_is_so_for_all_is_said_once() -> None:
    assert summed_up(cells(("", 0, LOCAL), ("", 1, LOCAL), ("named", 1, LOCAL))) == "local"


def test_exceptions_are_told_by_version() -> None:
    assert summed_up(cells(("", 0, LOCAL), ("", 1, LOCAL), ("", 2, FORWARDED))) == "local; v2 forwarded (cold)"


def test_exceptions_are_told_by_the_way_to_ask() -> None:
    told = cells(("a", 1, LOCAL), ("b", 1, LOCAL), ("c", 1, FORWARDED), ("a", 2, LOCAL), ("b", 2, LOCAL))
    assert summed_up(told) == "local; v1 c forwarded (cold)"


def test_of_many_ways_the_others_are_told() -> None:
    told = cells(*(("a", version, LOCAL) for version in range(5)), ("b", 4, FORWARDED), ("c", 4, FORWARDED))
    assert summed_up(told) == "local; v4 all but a forwarded (cold)"


def test_one_difference_stays() -> None:
    table = Table()
    table.record("4.3.1", SEEN, "simple", [outcome(4, LOCAL, OTHER), outcome(4, LOCAL), outcome(5, LOCAL)])
    assert [cell.told for cell in table.cells] == [DIFFERENT, LOCAL]
    assert "| 4.3.1 | 2 | 1 | 0 | 1 |" in table.page()


def test_the_page_does_not_depend_on_the_order_of_the_tests() -> None:
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


def test_lists_of_structs_have_no_order_and_lists_of_values_have_one() -> None:
    request = ListGroupsRequest(states_filter=("b", "a"))
    assert in_order(request) == request
    assert in_order((outcome(1, LOCAL).question.request, request)) == in_order((request, ListGroupsRequest()))


def test_a_difference_is_told_by_its_place() -> None:
    group = ListedGroup(group_id="g", protocol_type="consumer")
    there = ListGroupsResponse(error_code=0, groups=(group,))
    changed = replace(there, groups=(replace(group, protocol_type=""),))
    assert list(differences(there, there)) == []
    assert list(differences(there, changed)) == ["answer.groups[0].protocol_type: broker consumer, sidecar "]
    [missing] = differences(there, ANSWER)
    assert missing.startswith("answer.groups: broker (ListedGroup(")
