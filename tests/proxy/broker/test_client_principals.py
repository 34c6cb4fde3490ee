"""Tests which principal a connection has: from SASL replies, and none where something is not understood."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.proxy.broker import client_principals
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.client_principals import MAX_REPORTED_CHARACTERS, Principal, Principals
from group_sidecar.proxy.config.model import DEFAULT_LISTENER
from group_sidecar.proxy.dataplane.commands import ToClient, ToUpstream
from group_sidecar.proxy.dataplane.outcomes import Origin
from tests.proxy.dataplane.playbook import (
    ANONYMOUS_CLIENT,
    Line,
    access_of,
    broker_state,
    framed,
    pieces,
    reply,
    request,
    to_client,
    to_upstream,
)

PLAIN, SCRAM, OTHER = "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"
ALICE, BOB = b"\0alice\0alice-secret", b"\0bob\0bob-secret"
TAKEN = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
REFUSED = replace(TAKEN, error_code=58)


@dataclass
class Connection:
    """One client's connection, seen from its authentication."""

    all: Principals
    origin: Origin
    now: float = 100.0

    def shakes(self, mechanism: str) -> "Connection":
        self.all.handshake_accepted(self.origin, mechanism)
        return self

    def sends(self, token: bytes, answer: SaslAuthenticateResponse = TAKEN, version: int = 2) -> "Connection":
        self.all.token_answered(self.origin, self.all.token(token, version, self.now), answer)
        return self

    def who(self) -> Principal | None:
        return self.all.principal_of(self.origin, self.now)


def connections(count: int) -> list[Connection]:
    """Returns connections to one broker."""
    principals = Principals(DEFAULT_LISTENER)
    return [Connection(principals, Origin("10.0.0.1")) for _ in range(count)]


def test_no_sasl_is_anonymous() -> None:
    """A connection without SASL has the anonymous principal."""
    assert [connection.who() for connection in connections(2)] == [ANONYMOUS_CLIENT, ANONYMOUS_CLIENT]


def test_same_plain_token_is_same_principal() -> None:
    """Equal PLAIN tokens have the same principal, and different ones have different principals."""
    one, again, other, impostor = connections(4)
    for connection, token in ((one, ALICE), (again, ALICE), (other, BOB), (impostor, b"\0alice\0bob-secret")):
        connection.shakes(PLAIN).sends(token)
    assert one.who() == again.who()
    assert len({one.who(), other.who(), impostor.who(), ANONYMOUS_CLIENT, None}) == 5


def test_plain_token_is_not_stored() -> None:
    """No stored value contains the password of a PLAIN token."""
    (one,) = connections(1)
    token = one.all.token(ALICE, 2, one.now)
    one.shakes(PLAIN).sends(ALICE)
    for kept in (repr(token), repr(one.who()), repr(vars(one.all)), repr(one.all._known)):
        assert "secret" not in kept


def test_certificate_is_reported_until_sasl() -> None:
    """The subject of a client's certificate is the client's user. A user of SASL takes precedence, if it is known.

    An empty subject is a user, as to a broker.
    """
    principals = Principals(DEFAULT_LISTENER)
    plain, scram, other, none, empty = (
        Connection(principals, Origin("10.0.0.1", subject=subject)) for subject in (*["CN=alice,O=x"] * 3, None, "")
    )

    def reported() -> list[str]:
        return [principals.user_of(each.origin) for each in (plain, scram, other, none, empty)]

    assert reported() == ["User:CN=alice,O=x"] * 3 + ["", "User:"]
    for connection, mechanism in ((plain, PLAIN), (scram, SCRAM), (other, OTHER), (empty, PLAIN)):
        connection.shakes(mechanism)
    assert reported() == [""] * 5
    plain.sends(ALICE)
    scram.sends(first("bob=2C=3Dx"))
    other.sends(b"token")
    assert reported() == ["User:alice", "", "", "", ""]
    scram.sends(b"second")
    assert reported() == ["User:alice", "User:bob,=x", "", "", ""]


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (b"\0alice\0secret", "User:alice"),
        (b"alice\0alice\0secret", "User:alice"),
        ("\0ümlaut\0secret".encode(), "User:ümlaut"),
        (b"\0\xff\0secret", "User:�"),
        (b"\0alice", ""),
        (b"\0alice\0secret\0more", ""),
        (b"secret", ""),
    ],
)
def test_user_of_plain_token(token: bytes, expected: str) -> None:
    """The user of a PLAIN token is reported when the broker has accepted the token, and never another part of it."""
    refused, accepted = connections(2)
    refused.shakes(PLAIN).sends(token, REFUSED)
    accepted.shakes(PLAIN).sends(token)
    assert [each.all.user_of(each.origin) for each in (refused, accepted)] == ["", expected]


def test_connections_of_a_user_share_one_text() -> None:
    """All connections of a user have the same text, by SASL and by certificate, because members of groups keep it."""
    principals = Principals(DEFAULT_LISTENER)
    certified = [Origin("10.0.0.1", subject="".join(["CN=alice", ",O=x"])) for _ in range(2)]
    authenticated = [Connection(principals, Origin("10.0.0.1")) for _ in range(2)]
    for each in authenticated:
        each.shakes(SCRAM).sends(first("bob")).sends(b"p")
    for pair in (certified, [each.origin for each in authenticated]):
        one, other = map(principals.user_of, pair)
        assert one
        assert one is other


@pytest.mark.parametrize("more", [0, 1, 5000])
def test_long_principal_is_cut(more: int) -> None:
    """The reported principal of a long subject or user is cut."""
    name = "x" * (MAX_REPORTED_CHARACTERS + more)
    principals = Principals(DEFAULT_LISTENER)
    scram, plain = (Connection(principals, Origin("10.0.0.1")) for _ in range(2))
    scram.shakes(SCRAM).sends(first(name)).sends(b"p")
    plain.shakes(PLAIN).sends(f"\0{name}\0p".encode())
    expected = f"User:{name[:MAX_REPORTED_CHARACTERS]}{'…' if more else ''}"
    for origin in (scram.origin, plain.origin, Origin("10.0.0.1", subject=name)):
        assert principals.user_of(origin) == expected


def test_plain_principal_depends_on_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The principal of a PLAIN token depends on a secret key of the process."""
    one, other = connections(2)
    one.shakes(PLAIN).sends(ALICE)
    monkeypatch.setattr(client_principals, "_SECRET", b"another")
    assert other.shakes(PLAIN).sends(ALICE).who() != one.who()


def first(user: str, header: str = "n,", rest: str = "") -> bytes:
    return f"{header},n={user},r=nonce{rest}".encode()


def test_scram_needs_both_tokens() -> None:
    """A SCRAM connection has its user as principal only after both tokens were accepted."""
    one, again, other = connections(3)
    found = []
    for connection, user in ((one, "alice"), (again, "alice"), (other, "bob")):
        connection.shakes(SCRAM).sends(first(user))
        found.append(connection.who())
        connection.sends(b"c=biws,r=nonce,p=proof")
    assert found == [None, None, None]
    assert one.who() == again.who() == Principal(SCRAM, b"n,,n=alice", DEFAULT_LISTENER)
    assert other.who() == Principal(SCRAM, b"n,,n=bob", DEFAULT_LISTENER)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (first("a=2Cb"), first("a")),
        (first("a=2Cb"), first("a=3Db")),
        (first("a"), first("a", header="n,a=b")),
        (first("a"), first("a", header="y,") + b"x"),
    ],
)
def test_different_scram_names_differ(one: bytes, other: bytes) -> None:
    """SCRAM tokens with different names, authorization ids or headers have different principals."""
    found = [
        c.shakes(SCRAM).sends(token).sends(b"p").who() for c, token in zip(connections(2), (one, other), strict=True)
    ]
    assert None not in found
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "token",
    [
        first("alice", rest=",tokenauth=true"),  # A delegation token's id, not a user (KIP-48).
        first("alice", header="p=tls-unique,"),
        first("alice", header="n,,m=x"),
        b"n,,n=alice",
        b"",
    ],
)
def test_unclear_scram_name_is_own_principal(token: bytes) -> None:
    """A connection whose SCRAM token does not name a user plainly has a principal of its own."""
    one, other = connections(2)
    for connection in (one, other):
        connection.shakes(SCRAM).sends(token).sends(b"p")
        assert connection.who() is None
        assert connection.all.note_served(connection.origin)
    assert None not in (one.who(), other.who())
    assert len({one.who(), other.who(), ANONYMOUS_CLIENT}) == 3


def test_unknown_mechanism_gets_own_principal() -> None:
    """A connection with an unknown mechanism gets a principal of its own when the broker serves a request."""
    (one,) = connections(1)
    one.shakes(OTHER)
    one.all.note_served(one.origin)  # The reply to a request that was sent before.
    found = [one.who(), one.sends(b"t").who(), one.sends(b"u").who()]
    one.all.note_served(one.origin)
    assert found == [None, None, None]
    assert one.who() == one.all.gone(one.origin)


def test_closed_connection_is_forgotten() -> None:
    """A closed connection leaves no state."""
    (one,) = connections(1)
    one.shakes(PLAIN).sends(ALICE)
    one.all.gone(one.origin)
    assert one.all._known == {}


def test_refused_token_ends_identification() -> None:
    """After a refused token, the connection never has a principal again."""
    (one,) = connections(1)
    assert one.shakes(PLAIN).sends(ALICE, REFUSED).who() is None
    assert one.shakes(PLAIN).sends(ALICE).who() is None
    one.all.note_served(one.origin)
    assert one.who() is None


@pytest.mark.parametrize("tokens", [2, 3])
def test_extra_tokens_have_no_principal(tokens: int) -> None:
    """More tokens than the mechanism has leave the connection without a principal."""
    (one,) = connections(1)
    one.shakes(PLAIN)
    for _ in range(tokens):
        one.sends(ALICE)
    one.all.note_served(one.origin)
    assert one.who() is None


def test_token_without_handshake_is_unknown() -> None:
    """A token without a handshake gives no principal."""
    (one,) = connections(1)
    assert one.sends(ALICE).who() is None


def test_authenticate_v0_has_no_principal() -> None:
    """SaslAuthenticate version 0 gives no principal, because it does not report the session's lifetime."""
    (one,) = connections(1)
    assert one.shakes(PLAIN).sends(ALICE, version=0).who() is None


def test_reauthentication_counts_when_complete() -> None:
    """During reauthentication (KIP-368) there is no principal. The new user counts when the exchange is complete."""
    (one,) = connections(1)
    alice = one.shakes(PLAIN).sends(ALICE).who()
    found = [one.shakes(SCRAM).who(), one.sends(first("root")).who()]
    found.append(one.shakes(SCRAM).sends(first("bob")).who())
    assert found == [None, None, None]
    assert one.sends(b"p").who() == Principal(SCRAM, b"n,,n=bob", DEFAULT_LISTENER)
    assert one.shakes(PLAIN).sends(ALICE).who() == alice


def test_session_ends_with_its_lifetime() -> None:
    """A principal ends with the session lifetime until the client authenticates again."""
    (one,) = connections(1)
    alice = one.shakes(PLAIN).sends(ALICE, replace(TAKEN, session_lifetime_ms=5000)).who()
    found = []
    for now in (104.9, 105.0, 200.0):
        one.now = now
        found.append(one.who())
    assert found == [alice, None, None]
    assert alice is not None
    assert one.shakes(PLAIN).sends(ALICE).who() == alice


# Through the dispatcher.

QUESTION, TOLD = DescribeGroupsRequest(groups=("g",)), DescribeGroupsResponse(groups=())
OFFER = ApiVersionsResponse(
    error_code=0,
    api_keys=tuple(ApiVersion(api_key=key, min_version=0, max_version=APIS[key].versions[-1]) for key in (15, 16)),
)
"""The ApiVersions of a broker to which no versions are added."""
ACCEPTED = SaslHandshakeResponse(error_code=0, mechanisms=())


class Client(Line):
    """A client's connection, and its principal."""

    def __init__(self, state: BrokerState) -> None:
        super().__init__(state)
        self.state = state

    def who(self) -> Principal | None:
        return access_of(self.state).principals.principal_of(self.session.origin, self.now)

    def shakes(self, version: int = 1, **answer: Any) -> None:
        self.exchange(SaslHandshakeRequest(mechanism=PLAIN), replace(ACCEPTED, **answer), version)

    def authenticates(self, token: bytes = ALICE, answer: SaslAuthenticateResponse = TAKEN, version: int = 2) -> None:
        self.exchange(SaslAuthenticateRequest(auth_bytes=token), answer, version)


@pytest.mark.parametrize("version", [1, 2])
def test_sasl_is_forwarded_and_identifies(version: int) -> None:
    """SASL frames are forwarded unchanged and identify the client."""
    state = broker_state()
    client = Client(state)
    client.exchange(ApiVersionsRequest(), OFFER, 0)
    client.shakes()
    assert client.who() is None
    client.authenticates(version=version)
    assert client.who() not in (None, ANONYMOUS_CLIENT)
    assert state.traffic.decode_failures == {}


@pytest.mark.parametrize("size", [1, 3])
def test_sasl_in_pieces_is_forwarded(size: int) -> None:
    """SASL frames that arrive in pieces are forwarded unchanged and identify the client."""
    client = Client(broker_state())
    client.shakes()
    frame = client.frame(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    assert to_upstream([c for piece in pieces(frame, size) for c in client.client(piece)]) == frame
    answer = framed(b"\0\0\0\2\0" + b"\0\0\0\1" + b"\0" * 9)
    assert to_client([c for piece in pieces(answer, size) for c in client.upstream(piece)]) == answer
    assert client.who() not in (None, ANONYMOUS_CLIENT)


@pytest.mark.parametrize("version", [0, 1])
def test_refused_handshake_has_no_principal(version: int) -> None:
    """A refused handshake leaves the connection without a principal."""
    client = Client(broker_state())
    client.shakes(version, error_code=34)
    assert client.who() is None
    client.authenticates()
    assert client.who() is None


def test_raw_tokens_have_no_principal() -> None:
    """Raw tokens after a version 0 handshake leave the connection without a principal."""
    client = Client(broker_state())
    client.shakes(0)
    client.client(framed(ALICE))
    client.upstream(framed(b""))
    client.exchange(QUESTION, TOLD, 5)
    assert client.who() is None
    client.authenticates()
    assert client.who() is None


@pytest.mark.parametrize("key", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
@pytest.mark.parametrize("side", ["request", "reply"])
def test_undecodable_sasl_is_forwarded(key: int, side: str) -> None:
    """SASL frames that cannot be decoded are forwarded, and the connection has no principal."""
    state = broker_state()
    client = Client(state)
    client.shakes()
    client.authenticates()
    frame = request(key, 9, version=1, body=b"\xff" if side == "request" else b"\0\5PLAIN" + bytes(20))
    if side == "reply" and key == ApiKey.SASL_AUTHENTICATE:
        frame = client.frame(SaslAuthenticateRequest(auth_bytes=ALICE), 1)
    assert client.client(frame) == [ToUpstream(frame)]
    answer = reply(int.from_bytes(frame[8:12], "big"), b"\0" if side == "reply" else b"\0\0" + bytes(20))
    assert client.upstream(answer) == [ToClient(answer)]
    assert client.who() is None
    assert state.traffic.decode_failures == {key: 1}
    client.exchange(QUESTION, TOLD, 5)
    assert ApiKey.DESCRIBE_GROUPS in state.traffic.durations  # The exchange is still decoded.


@pytest.mark.parametrize("again", [False, True])
def test_oversized_sasl_is_forwarded(again: bool) -> None:
    """A SASL frame above the inspection limit is forwarded, and the connection has no principal."""
    state = broker_state(limits={"inspected_frame": 1024})
    client = Client(state)
    client.shakes()
    if again:
        client.authenticates()
    frame = client.frame(SaslAuthenticateRequest(auth_bytes=bytes(2000)), 2)
    assert client.client(frame[:50]) == [ToUpstream(frame[:50])]
    assert client.client(frame[50:]) == [ToUpstream(frame[50:])]
    assert to_client(client.broker_replies(TAKEN, 2))
    assert client.who() is None


def test_long_token_reply_is_decoded() -> None:
    """The reply to a token is decoded whatever its length."""
    client = Client(broker_state(limits={"inspected_frame": 1024}))
    client.shakes()
    client.authenticates()
    client.authenticates(answer=replace(REFUSED, error_message="no" * 1000))
    assert client.who() is None


def test_v1_handshake_keeps_v0_wait() -> None:
    """The reply to a version 1 handshake does not end the wait for a version 0 handshake."""
    client = Client(broker_state())
    framed_one = client.frame(SaslHandshakeRequest(mechanism=PLAIN), 1)
    raw = client.frame(SaslHandshakeRequest(mechanism=PLAIN), 0)
    assert to_upstream(client.client(framed_one, raw)) == framed_one + raw
    client.broker_replies(ACCEPTED, 1, correlation=1)
    assert not client.session.should_read_client
    client.broker_replies(ACCEPTED, 0, correlation=2)
    token = framed(ALICE)
    assert to_upstream(client.client(token)) == token


@pytest.mark.parametrize("sasl", [False, True])
def test_plain_reply_allows_anonymous(sasl: bool) -> None:
    """A reply on a connection without SASL shows that the listener serves anonymous clients."""
    state = broker_state(answers={"authorizer": "none"})
    client = Client(state)
    client.exchange(ApiVersionsRequest(), OFFER, 0)
    if sasl:
        client.shakes()
        client.authenticates()
    assert not access_of(state).may_see(ANONYMOUS_CLIENT, [], 0)
    client.exchange(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse(error_code=0), 3)
    assert access_of(state).may_see(ANONYMOUS_CLIENT, [], 0) is not sasl


def test_connections_of_a_principal_are_counted() -> None:
    """A principal gets a further connection when one has ended. Authentication again counts the connection once."""
    principals = Principals(DEFAULT_LISTENER, 2)
    first_one, second, third, other, scram = [Connection(principals, Origin("10.0.0.1")) for _ in range(5)]
    counted = [principals.try_count(each.shakes(PLAIN).sends(ALICE).origin) for each in (first_one, second, third)]
    assert counted == [True, True, False]
    assert principals.try_count(other.shakes(PLAIN).sends(BOB).origin)
    for _ in range(3):
        assert principals.try_count(second.shakes(PLAIN).sends(ALICE).origin)
    assert not principals.try_count(third.origin)
    principals.gone(first_one.origin)
    assert principals.try_count(third.origin)
    assert principals.try_count(scram.shakes(SCRAM).sends(first("alice")).origin)
    for each in (second, third, other, scram):
        principals.gone(each.origin)
    assert principals._counts == {}
