"""Tests which members of a group above its limit are removed: the newest ones, as far as their ages are known."""

from group_sidecar.codecs.offsets_topic import GroupKey, KeyType, encode_key, encode_value
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue, MemberMetadata
from group_sidecar.coordinator.model.views import GroupView, MemberView
from group_sidecar.coordinator.rules.excess_members import excess_members
from tests.coordinator.log.test_follower import Reader
from tests.coordinator.model_log import Entry


def group(leader: str = "", **since: float) -> GroupView:
    members = tuple(MemberView(member_id=member, since=at) for member, at in since.items())
    return GroupView(group_id="g", leader=leader, members=members)


def names(members: object) -> list[str]:
    assert isinstance(members, list | tuple)
    return [member.member_id for member in members]


def test_newest_members_are_in_excess() -> None:
    """excess_members returns the newest members first."""
    assert names(excess_members(group(a=3, b=1, c=2), 1)) == ["c", "a"]


def test_leader_counts_as_oldest() -> None:
    """excess_members returns the leader last, whenever the leader joined."""
    assert names(excess_members(group(leader="a", a=3, b=1, c=2), 1)) == ["b", "c"]


def test_same_age_members_go_by_id() -> None:
    """excess_members orders members that joined at the same time by their ids."""
    assert (
        names(excess_members(group(c=1, a=1, b=1), 1)) == names(excess_members(group(b=1, c=1, a=1), 1)) == ["b", "c"]
    )


def test_group_within_limit_has_no_excess() -> None:
    """A group within its limit has no excess members."""
    assert names(excess_members(group(a=1, b=2), 2)) == []


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


def test_member_keeps_join_time_over_generations() -> None:
    """A member keeps its join time over logged generations, and a new member gets the time of the read of the log."""
    reader = Reader(load=[generation(1, "ab")])
    reader.append(generation(2, "cba"))
    reader.catch_up(7, 8)
    assert {m.member_id: m.since for m in reader.manager.view("g", 9).members} == {"a": 0, "b": 0, "c": 8}
