"""Which members of a group would have to go: what tells that one is newer, and what is done where nothing does."""

from group_sidecar.codecs.group_records import GroupMetadataValue, MemberMetadata
from group_sidecar.codecs.offsets_topic import GroupKey, KeyType, encode_key, encode_value
from group_sidecar.coordinator.surplus import surplus
from group_sidecar.coordinator.views import GroupView, MemberView
from tests.coordinator.model_log import Entry
from tests.coordinator.test_following import Reader


def group(leader: str = "", **since: float) -> GroupView:
    members = tuple(MemberView(member_id=member, since=at) for member, at in since.items())
    return GroupView(group_id="g", leader=leader, members=members)


def names(members: object) -> list[str]:
    assert isinstance(members, list | tuple)
    return [member.member_id for member in members]


def test_the_newest_go_first() -> None:
    assert names(surplus(group(a=3, b=1, c=2), 1)) == ["c", "a"]


def test_the_leader_counts_as_the_oldest() -> None:
    assert names(surplus(group(leader="a", a=3, b=1, c=2), 1)) == ["b", "c"]


def test_those_that_came_together_go_by_their_ids() -> None:
    assert names(surplus(group(c=1, a=1, b=1), 1)) == names(surplus(group(b=1, c=1, a=1), 1)) == ["b", "c"]


def test_a_group_within_its_limit_has_none_too_much() -> None:
    assert names(surplus(group(a=1, b=2), 2)) == []


def generation(number: int, members: str) -> Entry:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=number,
        protocol="range",
        leader=members[0],
        members=tuple(
            MemberMetadata(
                member_id=member,
                group_instance_id=None,
                client_id="c",
                client_host="/h",
                rebalance_timeout=1,
                session_timeout=1,
                subscription=b"",
                assignment=b"",
            )
            for member in members
        ),
    )
    return encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g")), encode_value(value, 3)


def test_a_member_keeps_its_time_from_one_logged_generation_to_the_next() -> None:
    reader = Reader(load=[generation(1, "ab")])
    reader.append(generation(2, "cba"))
    reader.catch_up(7, 8)
    assert {m.member_id: m.since for m in reader.manager.view("g", 9).members} == {"a": 0, "b": 0, "c": 8}
