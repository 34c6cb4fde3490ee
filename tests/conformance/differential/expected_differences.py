"""The expected differences between the replies of a sidecar of an old broker and those of a newer broker.

`EXPECTED_DIFFERENCES` has one row per difference, with its reason.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from group_sidecar.codecs.errors import ErrorCode
from tests.conformance.differential.answer_paths import ABSENT, PRESENT, Difference
from tests.conformance.differential.comparison import LOCAL
from tests.conformance.differential.group_history import ALL, Asked

SAW_HISTORY, STARTED_LATER, ASKING = "saw everything", "started afterwards", "only asks"
"""The situations of a sidecar, which differ in how much of the history it knows."""
RELAYED = "relayed"
ANYTHING = object()
READ_DELETE_DESCRIBE = 1 << 3 | 1 << 6 | 1 << 8
DESCRIBE_AND_ALTER_CONFIGS = 1 << 10 | 1 << 11
"""Bits of Kafka's AclOperation."""
UNKNOWN_OPERATIONS = -(1 << 31)


@dataclass(frozen=True)
class ExpectedDifference:
    """One expected difference.

    Args:
        name: its name in the table.
        because: its reason.
        brokers: the versions of Kafka with which it occurs.
        api: the API.
        place: a pattern of the path.
        expected: the value of the newer broker.
        actual: the value of the sidecar.
        versions: the versions of the API.
        states: patterns of the states of the groups.
        ways: patterns of the variants of the question.
        situations: the situations of the sidecar.
        hows: how the question is answered.
    """

    name: str
    because: str
    brokers: tuple[str, ...]
    api: str
    place: str
    expected: Any = ANYTHING
    actual: Any = ANYTHING
    versions: range = range(99)
    states: tuple[str, ...] = ("*",)
    ways: tuple[str, ...] = ("*",)
    situations: tuple[str, ...] = (SAW_HISTORY, STARTED_LATER, ASKING)
    hows: tuple[str, ...] = (LOCAL, RELAYED)

    def explains(self, broker: str, situation: str, how: str, asked: Asked, difference: Difference) -> bool:
        """Whether a difference is of this kind."""
        question = asked.question
        return (
            broker in self.brokers
            and situation in self.situations
            and how in self.hows
            and (question.api, question.version in self.versions) == (self.api, True)
            and any(fnmatchcase(asked.state, state) for state in self.states)
            and any(fnmatchcase(question.way, way) for way in self.ways)
            and fnmatchcase(difference.place, self.place)
            and self.expected in (ANYTHING, difference.expected)
            and self.actual in (ANYTHING, difference.actual)
        )


_NO_EMPTY_GROUPS = (
    "no empty groups",
    "Brokers before 0.10.1 show no groups without members. A sidecar that only asks cannot know them.",
    ("0.9.0.1",),
)
_WITHOUT_MEMBERS = ("simple", "empty", "session expired", "many offsets")
"""States of groups without members."""
_BEFORE_ACLS = ("0.9.0.1", "0.10.1.1", "0.10.2.2")
_OFFSETS_OF_MANY = ("0.9.0.1", "0.10.1.1", "0.10.2.2", "2.8.2")
"""Versions in which the sidecar can answer OffsetFetch v8 and v9. Kafka 1.1 may have transactions, and has no request
for stable offsets."""
_OLD = ("0.9.0.1", "0.10.1.1", "0.10.2.2", "1.1.1")
_ALL = (*_OLD, "2.8.2")

EXPECTED_DIFFERENCES: tuple[ExpectedDifference, ...] = (
    *(
        ExpectedDifference(
            "case",
            "Kafka 2.8 distinguishes upper and lower case in requested states. Later brokers and the sidecar do not.",
            _OLD,
            "ListGroups",
            f"groups.{state}",
            expected=ABSENT,
            actual=PRESENT,
            versions=range(4, 5),
            ways=("in a STATE",),
        )
        for state in ("stable", *_WITHOUT_MEMBERS)
    ),
    *(
        ExpectedDifference(
            *_NO_EMPTY_GROUPS, "ListGroups", f"groups.{state}", expected=PRESENT, actual=ABSENT, hows=(RELAYED,)
        )
        for state in _WITHOUT_MEMBERS
    ),
    *(
        ExpectedDifference(
            *_NO_EMPTY_GROUPS,
            "DescribeGroups",
            f"groups.*.{where}",
            expected,
            actual,
            states=(*_WITHOUT_MEMBERS, ALL),
            hows=(RELAYED,),
        )
        for where, expected, actual in (
            ("group_state", "Empty", "Dead"),
            ("protocol_type", "consumer", ""),
            ("error_code", 0, int(ErrorCode.GROUP_ID_NOT_FOUND)),
            ("error_message", None, ANYTHING),
        )
    ),
    ExpectedDifference(
        "protocol type",
        "Before 0.10.1, a group without members has no protocol type. A later sidecar sees only offsets.",
        ("0.9.0.1",),
        "DescribeGroups",
        "groups.*.protocol_type",
        expected="consumer",
        actual="",
        states=("empty", "session expired"),
        situations=(STARTED_LATER,),
        hows=(LOCAL,),
    ),
    ExpectedDifference(
        "operations",
        "Kafka 4 reports operations on a group's own settings. Older brokers do not have these operations.",
        _ALL,
        "DescribeGroups",
        "groups.*.authorized_operations",
        expected=READ_DELETE_DESCRIBE | DESCRIBE_AND_ALTER_CONFIGS,
        actual=READ_DELETE_DESCRIBE,
        versions=range(6, 7),
        ways=("operations",),
    ),
    ExpectedDifference(
        "operations unknown",
        "Only `answers.authorizer` tells the sidecar whether a broker before 0.11 has an authorizer.",
        _BEFORE_ACLS,
        "DescribeGroups",
        "groups.*.authorized_operations",
        actual=UNKNOWN_OPERATIONS,
        ways=("operations",),
        situations=(ASKING,),
    ),
    ExpectedDifference(
        "last assignment",
        "While a group has no assignment, Kafka 4 reports the previous one. Older brokers report none.",
        _ALL,
        "DescribeGroups",
        "groups.*.members.member 1.member_assignment",
        actual=b"",
        versions=range(6, 7),
        states=("preparing", "completing again", ALL),
    ),
    ExpectedDifference(
        "no partitions",
        "If a request names a topic without partitions, Kafka 4 returns the topic. Older brokers do not.",
        _OFFSETS_OF_MANY,
        "OffsetFetch",
        "groups.*.topics.topic",
        expected=PRESENT,
        actual=ABSENT,
        versions=range(8, 10),
        ways=("no partitions",),
    ),
    ExpectedDifference(
        "twice",
        "If a request names a topic twice, Kafka 4 returns the topic twice. Older brokers return it once.",
        _OFFSETS_OF_MANY,
        "OffsetFetch",
        "groups.*.topics.topic* (2)",
        expected=PRESENT,
        actual=ABSENT,
        versions=range(8, 10),
        ways=("twice",),
    ),
)
"""The rows, in the order of the table."""


def explain_difference(
    broker: str, situation: str, how: str, asked: Asked, difference: Difference
) -> ExpectedDifference | None:
    """Returns the row that explains a difference; None if there is none."""
    return next((row for row in EXPECTED_DIFFERENCES if row.explains(broker, situation, how, asked, difference)), None)
