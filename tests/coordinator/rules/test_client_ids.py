"""The client ids that facts about members contain."""

import pytest

from group_sidecar.coordinator.model.events import MemberSeen
from group_sidecar.coordinator.model.facts import MemberGone
from tests.coordinator.rules.test_logged_rebalances import Copy, generation, of


@pytest.mark.parametrize("client_ids", [("client-a", "new"), ("", "new"), ("new", "")])
def test_last_known_client_id_is_reported(client_ids: tuple[str, ...]) -> None:
    """A member sends requests with another client id, from the same host and user. Facts contain that client id."""
    copy = Copy(load=[generation(1, "a")])
    who = {"member_id": "a", "instance_id": None, "client_host": "/h", "generation": 1}
    for client_id in client_ids:
        copy.wire_says(MemberSeen, client_id=client_id, no_rebalance=True, **who)
    [gone] = of(copy.log_says(generation(2)), MemberGone)
    assert gone.client_id == "new"
