"""Tests which groups each client may see, by what the sidecar knows about the broker."""

from typing import Any

import pytest

from group_sidecar.proxy.broker.authorization_cache import Operation
from group_sidecar.proxy.broker.client_principals import Principal
from group_sidecar.proxy.config.model import DEFAULT_LISTENER
from group_sidecar.proxy.dataplane.outcomes import Origin
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


def test_each_identity_must_have_been_served() -> None:
    """If the sidecar has several certificates, clients see groups only under a certificate that the broker has served.
    The broker may refuse one of the certificates after the sidecar's handshake has ended.
    """
    tls = {"certificate_file": "/a", "client_ca_file": "/a", "client_auth": "required"}
    identities = [{"subject": "CN=alice", "certificate_file": "/a"}]
    listener = {"name": DEFAULT_LISTENER, "listen": "127.0.0.1:9092", "upstream": "10.1.1.1:9092", "tls": tls}
    listeners = [{**listener, "upstream_tls": {"identities": identities}}]
    state = broker_state(answers={"authorizer": "none"}, listeners=listeners, listen=None, upstream=None)
    access = access_of(state)
    alice, bob = Origin("10.0.0.1", certificate=1), Origin("10.0.0.1", certificate=2)

    def seen() -> list[bool]:
        return [access.may_see(access.principals.principal_of(each, 0), DESCRIBE_G, EPOCH) for each in (alice, bob)]

    state.learn_authorizer(present=False)
    assert seen() == [False, False]
    access.learn_anonymous_access(alice)
    assert seen() == [True, False]
    access.reset_learned()
    assert seen() == [False, False]


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
