"""The client ids that facts about members contain."""

from dataclasses import replace

import pytest

from group_sidecar.coordinator.model.events import MemberSeen
from group_sidecar.coordinator.model.facts import MemberGone
from tests.coordinator.rules.test_logged_rebalances import Copy, Group, generation, is_let_in, of, sends_join


def client_ids(copy: Copy) -> list[str]:
    """Returns the client ids that the copy has for the members of "g", in the order of the member ids."""
    return [
        member.client_id for member in sorted(copy.manager.view("g", copy.now).members, key=lambda each: each.member_id)
    ]


@pytest.mark.parametrize("client_ids", [("client-a", "new"), ("", "new"), ("new", "")])
def test_last_known_client_id_is_reported(client_ids: tuple[str, ...]) -> None:
    """A member sends requests with another client id, from the same host and user. Facts contain that client id."""
    copy = Copy(load=[generation(1, "a")])
    who = {"member_id": "a", "instance_id": None, "client_host": "/h", "generation": 1}
    for client_id in client_ids:
        copy.wire_says(MemberSeen, client_id=client_id, no_rebalance=True, **who)
    [gone] = of(copy.log_says(generation(2)), MemberGone)
    assert gone.client_id == "new"


@pytest.mark.parametrize("read_apart", [True, False])
def test_converted_group_has_client_ids_of_records(read_apart: bool) -> None:
    """A classic member joins a KIP-848 group again with another client id. The broker changes its client id then.

    If the last KIP-848 member leaves, the broker converts the group. The classic group has the client id of the last
    join in the KIP-848 group, whether the log shows that join apart from the conversion or together with it.
    """
    group = Group().at(5).member("a", 0)
    copy = Copy(load=group.write())
    is_let_in(copy, replace(sends_join(copy, "b"), client_id="first"))
    assert client_ids(copy) == ["client-a", "first"]
    if read_apart:
        copy.log_says(*group.at(6).member("b").write())
        assert client_ids(copy) == ["client-a", "client-b"]
    copy.log_says(*((key, None) for key, _ in group.write()), generation(7, "b"))
    assert client_ids(copy) == ["client-b"]
