"""Tests the steps that concern several parts of a broker's state."""

import pytest

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.proxy.broker.authorization_cache import Operation
from group_sidecar.proxy.broker.client_principals import Principal
from tests.as_python import ROOT
from tests.proxy.dataplane.playbook import ANONYMOUS_CLIENT, EPOCH, access_of, broker_state

DESCRIBE_G = [(Operation.DESCRIBE_GROUP, "g")]


async def test_lost_connection_revokes_grants() -> None:
    """A lost connection to the broker revokes all grants, and later grants to anonymous clients do not count."""
    state, bob = broker_state(), Principal("SCRAM-SHA-256", b"n,,n=bob")
    state.learn_authorizer(present=True)
    access_of(state).rights.grant(bob, DESCRIBE_G, EPOCH)
    access_of(state).rights.grant(ANONYMOUS_CLIENT, DESCRIBE_G, EPOCH)
    state.reachability.probe_succeeded()
    assert access_of(state).may_see(bob, DESCRIBE_G, EPOCH)
    state.probe_failed("closed the connection")
    access_of(state).rights.grant(ANONYMOUS_CLIENT, DESCRIBE_G, EPOCH)
    assert [access_of(state).may_see(who, DESCRIBE_G, EPOCH) for who in (bob, ANONYMOUS_CLIENT)] == [False, False]


@pytest.mark.parametrize(("listed", "lacking"), [(["old"], FallbackReason.COLD), ([], None), (None, None)])
def test_listed_groups_start_cold(listed: list[str] | None, lacking: FallbackReason | None) -> None:
    """Groups in the broker's first list are cold, and all others are known completely."""
    state = broker_state(answers={"exclusive": True, "authorizer": "none"})
    assert state.copy.manager.view("old", EPOCH).fallback_reason is FallbackReason.COLD
    state.learn_initial_groups(listed)
    assert state.copy.manager.view("old", EPOCH).fallback_reason is lacking
    assert state.copy.manager.view("new", EPOCH).fallback_reason is None


def habits(manager: GroupMetadataManager) -> tuple[str | None, bool | None]:
    return manager.default_assignor, manager.sends_error_messages


def test_reset_clears_learned_state() -> None:
    """A reset clears the authorizer, the grants and the broker's habits."""
    state = broker_state()
    state.learn_authorizer(False)
    access_of(state).rights.grant(ANONYMOUS_CLIENT, [(Operation.DESCRIBE_GROUP, "g")], EPOCH)
    manager = state.copy.manager
    manager.default_assignor, manager.sends_error_messages = "uniform", True
    state.reset_learned()
    assert not access_of(state).allows_anonymous
    assert [
        access_of(state).may_have_authorizer,
        access_of(state).rights.has_all(ANONYMOUS_CLIENT, [(Operation.DESCRIBE_GROUP, "g")], EPOCH),
    ] == [
        True,
        False,
    ]
    assert habits(manager) == (None, None)


def test_only_composition_roots_receive_all_parts() -> None:
    """Only the modules that put the sidecar together import the class that has all parts."""
    sources = (file for file in (ROOT / "proxy").rglob("*.py") if "import BrokerState" in file.read_text())
    assert {str(file.relative_to(ROOT / "proxy")) for file in sources} == {
        "sidecar.py",
        "served_brokers.py",
        "handlers/api_table.py",
        "handlers/dispatcher.py",
    }
