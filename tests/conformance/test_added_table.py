"""Tests the comparison of answers by path, and the table of who answered and of the reasons for differences."""

from dataclasses import replace

from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tests.conformance.differential.added_table import Added, AddedTable
from tests.conformance.differential.answer_paths import ABSENT, PRESENT, Difference, differences, places
from tests.conformance.differential.comparison import DIFFERENT, LOCAL
from tests.conformance.differential.expected_differences import (
    ASKING,
    EXPECTED_DIFFERENCES,
    RELAYED,
    SAW_HISTORY,
    STARTED_LATER,
    explain_difference,
)
from tests.conformance.differential.group_history import ALL, Asked
from tests.conformance.differential.group_requests import Question

MEMBER = DescribedGroupMember(
    member_id="c-1", client_id="c", client_host="/h", member_metadata=b"m", member_assignment=b"a"
)
GROUP = DescribedGroup(
    error_code=0, group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=(MEMBER,)
)
ANSWER = DescribeGroupsResponse(groups=(GROUP, replace(GROUP, group_id="other", members=())))
OPERATIONS = Difference("groups.simple.authorized_operations", 3400, 328)


def compared(*groups: DescribedGroup) -> list[Difference]:
    """Returns the differences between ANSWER and an answer with these groups, whose member has another id."""
    mine, others = ({member_id: "member 1"} for member_id in ("c-1", "c-2"))
    expected = places(ANSWER, lambda text: mine.get(text, text))
    return list(
        differences(expected, places(DescribeGroupsResponse(groups=groups), lambda text: others.get(text, text)))
    )


OTHER_MEMBER = replace(MEMBER, member_id="c-2")
SAME = replace(GROUP, members=(OTHER_MEMBER,)), replace(GROUP, group_id="other", members=())


def test_order_and_ids_do_not_count() -> None:
    """Answers that differ only in order and member ids have no differences."""
    assert compared(*SAME) == []
    assert compared(*SAME[::-1]) == []


def test_each_different_place_is_reported() -> None:
    """Each place with another value is one difference."""
    changed = replace(SAME[0], group_state="Empty", members=(replace(OTHER_MEMBER, client_host="/x"),))
    assert compared(changed, SAME[1]) == [
        Difference("groups.g.group_state", "Stable", "Empty"),
        Difference("groups.g.members.member 1.client_host", "/h", "/x"),
    ]


def test_missing_list_item_is_one_difference() -> None:
    """A missing or additional item of a list is one difference."""
    assert compared(SAME[0]) == [Difference("groups.other", PRESENT, ABSENT)]
    assert compared(replace(GROUP, members=()), SAME[1]) == [Difference("groups.g.members.member 1", PRESENT, ABSENT)]
    assert compared(*SAME, SAME[1]) == [Difference("groups.other (2)", ABSENT, PRESENT)]


def asked(version: int, way: str = "operations") -> Asked:
    return Asked("simple", Question("DescribeGroups", version, way, DescribeGroupsRequest(groups=("simple",))))


def test_expected_difference_matches_all_columns() -> None:
    """A difference is expected only if broker, version, way, place and values match a row of EXPECTED_DIFFERENCES."""
    row = explain_difference("1.1.1", SAW_HISTORY, LOCAL, asked(6), OPERATIONS)
    assert row is not None
    assert row.name == "operations"
    others = (
        ("4.3.1", asked(6), OPERATIONS),
        ("1.1.1", asked(5), OPERATIONS),
        ("1.1.1", asked(6, ""), OPERATIONS),
        ("1.1.1", asked(6), OPERATIONS._replace(actual=0)),
        ("1.1.1", asked(6), OPERATIONS._replace(place="groups.simple.group_state")),
    )
    for broker, question, difference in others:
        assert explain_difference(broker, SAW_HISTORY, LOCAL, question, difference) is None


def cell(situation: str, state: str, how: str, *names: str, way: str = "") -> Added:
    natures = frozenset(row for row in EXPECTED_DIFFERENCES if row.name in names)
    return Added("1.1.1", situation, state, "DescribeGroups", 6, way, how, natures)


def test_section_shows_answerers_and_reasons() -> None:
    """The table's section shows who answered in each situation, and lists the reasons of expected differences below the
    table.
    """
    table = AddedTable()
    assert table.section() == ""
    table.record(cell(SAW_HISTORY, state, LOCAL) for state in ("simple", "empty"))
    table.record([cell(SAW_HISTORY, ALL, RELAYED, "operations"), cell(ASKING, "simple", RELAYED)])
    table.record(
        cell(STARTED_LATER, "simple", how, way=way) for how, way in ((LOCAL, ""), (LOCAL, "a"), (DIFFERENT, "b"))
    )
    lines = table.section().splitlines()
    expected = "local; relayed: all together | local; DIFFERENT: *b* | relayed | operations"
    assert f"| 1.1.1 | DescribeGroups | v6 | {expected} |" in lines
    assert [line.partition(":")[0] for line in lines if line.startswith("- **")][2:] == ["- **operations**"]
