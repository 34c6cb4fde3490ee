"""Answers are compared place by place, and the table says who answered and why something differs."""

from dataclasses import replace

from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tests.conformance.differential.added_table import Added, AddedTable
from tests.conformance.differential.comparison import DIFFERENT, LOCAL
from tests.conformance.differential.history import ALL, Asked
from tests.conformance.differential.nature import ASKING, LATE, NATURE, RELAYED, WITNESS, nature_of
from tests.conformance.differential.places import ABSENT, THERE, Difference, differences, places
from tests.conformance.differential.questions import Question

MEMBER = DescribedGroupMember(
    member_id="c-1", client_id="c", client_host="/h", member_metadata=b"m", member_assignment=b"a"
)
GROUP = DescribedGroup(
    error_code=0, group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=(MEMBER,)
)
ANSWER = DescribeGroupsResponse(groups=(GROUP, replace(GROUP, group_id="other", members=())))
OPERATIONS = Difference("groups.simple.authorized_operations", 3400, 328)


def compared(other: DescribeGroupsResponse) -> list[Difference]:
    """How another answer differs, in which the member has another id."""
    return list(
        differences(
            places(ANSWER, {"c-1": "member 1"}.get and (lambda text: "member 1" if text == "c-1" else text)),
            places(other, lambda text: "member 1" if text == "c-2" else text),
        )
    )
