"""Tests which clients see what, as far as the broker is known."""

from typing import Any

import pytest

from group_sidecar.proxy.broker.authorization_cache import Operation
from group_sidecar.proxy.broker.principals import Principal
from tests.proxy.dataplane.playbook import ANONYMOUS_CLIENT, EPOCH, access_of, broker_state

DESCRIBE_G = [(Operation.DESCRIBE_GROUP, "g")]


@pytest.mark.parametrize(
    ("authorizer", "present", "may_have_authorizer"),
    [("auto", None, True), ("auto", True, True), ("auto", False, False), ("none", None, False), ("none", True, False)],
)
def test_hidden_groups_need_granted_right(authorizer: str, present: bool | None, may_have_authorizer: bool) -> None:
    """If the broker may have an authorizer, a principal sees a group only with a granted right."""
    state = broker_state(answers={"authorizer": authorizer})
    if present is not None:
        state.learn_authorizer(present)
    alice, bob = Principal("SCRAM-SHA-256", b"n,,n=alice"), Principal("SCRAM-SHA-256", b"n,,n=bob")
    access_of(state).rights.grant(alice, DESCRIBE_G, EPOCH)
    assert access_of(state).may_have_authorizer is may_have_authorizer
    assert [access_of(state).may_see(who, DESCRIBE_G, EPOCH) for who in (alice, bob, None)] == [
        True,
        not may_have_authorizer,
        False,
    ]


def test_authorizer_change_is_followed() -> None:
    """Anonymous clients see groups exactly while the broker has no authorizer."""
    state = broker_state()
    found = []
    for present in (False, True, False):
        state.learn_authorizer(present)
        found.append(access_of(state).may_see(ANONYMOUS_CLIENT, DESCRIBE_G, EPOCH))
    assert found == [True, False, True]


@pytest.mark.parametrize(
    ("own", "serves"),
    [
        ({}, True),
        ({"address": "10.1.1.1:9093"}, False),
        ({"sasl": {"mechanism": "PLAIN", "username": "u", "password": "p"}}, False),
        ({"tls": {}}, False),
    ],
    ids=["as clients", "another listener", "sasl", "tls"],
)
@pytest.mark.parametrize("by", ["authorizer", "groups"])
def test_anonymous_access_needs_own_plain_probe(own: dict[str, Any], serves: bool, by: str) -> None:
    """Anonymous clients are served only if the sidecar's own connection is anonymous and on the same listener."""
    state = broker_state(answers={"authorizer": "none"}, own_connection=own)
    assert not access_of(state).may_see(ANONYMOUS_CLIENT, [], EPOCH)
    if by == "authorizer":
        state.learn_authorizer(present=False)
    else:
        state.learn_initial_groups([])
    assert access_of(state).may_see(ANONYMOUS_CLIENT, [], EPOCH) is serves
