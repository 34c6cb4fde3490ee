"""Who is on a connection: what SASL passing by says, and that whatever is not understood makes nobody of a client."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from group_sidecar.codecs.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.proxy import principals as room
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import ToClient, ToUpstream
from group_sidecar.proxy.desk import BrokerDesk
from group_sidecar.proxy.disposals import Origin
from group_sidecar.proxy.principals import ANONYMOUS, Principal, Principals
from tests.proxy.playbook import Line, broker_copy, framed, pieces, reply, request, to_client, to_upstream

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
        self.all.shaken(self.origin, mechanism)
        return self

    def sends(self, token: bytes, answer: SaslAuthenticateResponse = TAKEN, version: int = 2) -> "Connection":
        self.all.authenticated(self.origin, self.all.token(token, version, self.now), answer)
        return self

    def who(self) -> Principal | None:
        return self.all.of(self.origin, self.now)


def connections(count: int) -> list[Connection]:
    """Connections to one broker."""
    principals = Principals()
    return [Connection(principals, Origin("10.0.0.1")) for _ in range(count)]


def test_without_sasl_everybody_is_anonymous() -> None:
    assert [connection.who() for connection in connections(2)] == [ANONYMOUS, ANONYMOUS]


def test_the_same_plain_token_is_the_same_user() -> None:
    one, again, other, impostor = connections(4)
    for connection, token in ((one, ALICE), (again, ALICE), (other, BOB), (impostor, b"\0alice\0bob-secret")):
        connection.shakes(PLAIN).sends(token)
    assert one.who() == again.who()
    assert len({one.who(), other.who(), impostor.who(), ANONYMOUS, None}) == 5


def test_nothing_of_a_plain_token_is_kept() -> None:
    (one,) = connections(1)
    token = one.all.token(ALICE, 2, one.now)
    one.shakes(PLAIN).sends(ALICE)
    for kept in (repr(token), repr(one.who()), repr(vars(one.all)), repr(one.all._known)):
        assert "alice" not in kept


def test_who_cannot_guess_the_key_cannot_find_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = connections(2)
    one.shakes(PLAIN).sends(ALICE)
    monkeypatch.setattr(room, "_SECRET", b"another")
    assert other.shakes(PLAIN).sends(ALICE).who() != one.who()


def first(user: str, header: str = "n,", rest: str = "") -> bytes:
    return f"{header},n={user},r=nonce{rest}".encode()


def test_scram_counts_once_both_its_tokens_were_taken() -> None:
    one, again, other = connections(3)
    found = []
    for connection, user in ((one, "alice"), (again, "alice"), (other, "bob")):
        connection.shakes(SCRAM).sends(first(user))
        found.append(connection.who())
        connection.sends(b"c=biws,r=nonce,p=proof")
    assert found == [None, None, None]
    assert one.who() == again.who() == Principal(SCRAM, b"n,,n=alice")
    assert other.who() == Principal(SCRAM, b"n,,n=bob")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (first("a=2Cb"), first("a")),
        (first("a=2Cb"), first("a=3Db")),
        (first("a"), first("a", header="n,a=b")),
        (first("a"), first("a", header="y,") + b"x"),
    ],
)
def test_other_names_are_other_users(one: bytes, other: bytes) -> None:
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
def test_who_is_not_named_plainly_is_the_connection_alone(token: bytes) -> None:
    one, other = connections(2)
    for connection in (one, other):
        connection.shakes(SCRAM).sends(token).sends(b"p")
        assert connection.who() is None
        assert connection.all.served(connection.origin) is False
    assert None not in (one.who(), other.who())
    assert len({one.who(), other.who(), ANONYMOUS}) == 3


def test_an_unknown_mechanism_ends_where_the_broker_serves_a_request() -> None:
    (one,) = connections(1)
    one.shakes(OTHER)
    one.all.served(one.origin)  # The reply to something sent before.
    found = [one.who(), one.sends(b"t").who(), one.sends(b"u").who()]
    one.all.served(one.origin)
    assert found == [None, None, None]
    assert one.who() == one.all.gone(one.origin)


def test_the_end_of_a_connection_leaves_nothing() -> None:
    (one,) = connections(1)
    one.shakes(PLAIN).sends(ALICE)
    one.all.gone(one.origin)
    assert one.all._known == {}


def test_a_token_refused_makes_nobody_for_good() -> None:
    (one,) = connections(1)
    assert one.shakes(PLAIN).sends(ALICE, REFUSED).who() is None
    assert one.shakes(PLAIN).sends(ALICE).who() is None
    one.all.served(one.origin)
    assert one.who() is None


@pytest.mark.parametrize("tokens", [2, 3])
def test_more_tokens_than_the_mechanism_has_make_nobody(tokens: int) -> None:
    (one,) = connections(1)
    one.shakes(PLAIN)
    for _ in range(tokens):
        one.sends(ALICE)
    one.all.served(one.origin)
    assert one.who() is None


def test_a_token_without_a_handshake_makes_nobody() -> None:
    (one,) = connections(1)
    assert one.sends(ALICE).who() is None


def test_of_the_oldest_version_it_is_not_known_how_long_it_lasts() -> None:
    (one,) = connections(1)
    assert one.shakes(PLAIN).sends(ALICE, version=0).who() is None


def test_authenticating_again_is_another_user_only_at_its_end() -> None:
    """KIP-368. The first user's name in an exchange that is not completed says nothing."""
    (one,) = connections(1)
    alice = one.shakes(PLAIN).sends(ALICE).who()
    found = [one.shakes(SCRAM).who(), one.sends(first("root")).who()]
    found.append(one.shakes(SCRAM).sends(first("bob")).who())
    assert found == [None, None, None]
    assert one.sends(b"p").who() == Principal(SCRAM, b"n,,n=bob")
    assert one.shakes(PLAIN).sends(ALICE).who() == alice


def test_a_session_ends_when_the_broker_ends_it() -> None:
    (one,) = connections(1)
    alice = one.shakes(PLAIN).sends(ALICE, replace(TAKEN, session_lifetime_ms=5000)).who()
    found = []
    for now in (104.9, 105.0, 200.0):
        one.now = now
        found.append(one.who())
    assert found == [alice, None, None]
    assert alice is not None
    assert one.shakes(PLAIN).sends(ALICE).who() == alice


# Through the desk.

QUESTION, TOLD = DescribeGroupsRequest(groups=("g",)), DescribeGroupsResponse(groups=())
OFFER = ApiVersionsResponse(
    error_code=0,
    api_keys=tuple(ApiVersion(api_key=key, min_version=0, max_version=APIS[key].versions[-1]) for key in (15, 16)),
)
"""Of a broker to which nothing is added."""
ACCEPTED = SaslHandshakeResponse(error_code=0, mechanisms=())


class Client(Line):
    """A client's connection, and who is on it."""

    def __init__(self, copy: BrokerCopy) -> None:
        super().__init__(copy)
        self.desk = self.session.desk
        assert isinstance(self.desk, BrokerDesk)
        self.principals = self.desk._principals

    def who(self) -> Principal | None:
        return self.principals.of(self.session.origin, self.now)

    def shakes(self, version: int = 1, **answer: Any) -> None:
        self.exchange(SaslHandshakeRequest(mechanism=PLAIN), replace(ACCEPTED, **answer), version)

    def authenticates(self, token: bytes = ALICE, answer: SaslAuthenticateResponse = TAKEN, version: int = 2) -> None:
        self.exchange(SaslAuthenticateRequest(auth_bytes=token), answer, version)


@pytest.mark.parametrize("version", [1, 2])
def test_sasl_passes_as_it_came_and_tells_who_it_is(version: int) -> None:
    copy = broker_copy()
    client = Client(copy)
    client.exchange(ApiVersionsRequest(), OFFER, 0)
    client.shakes()
    assert client.who() is None
    client.authenticates(version=version)
    assert client.who() not in (None, ANONYMOUS)
    assert copy.traffic.decode_failures == {}


@pytest.mark.parametrize("size", [1, 3])
def test_sasl_in_pieces_passes_whole(size: int) -> None:
    client = Client(broker_copy())
    client.shakes()
    frame = client.frame(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    assert to_upstream([c for piece in pieces(frame, size) for c in client.client(piece)]) == frame
    answer = framed(b"\0\0\0\2\0" + b"\0\0\0\1" + b"\0" * 9)
    assert to_client([c for piece in pieces(answer, size) for c in client.upstream(piece)]) == answer
    assert client.who() not in (None, ANONYMOUS)


@pytest.mark.parametrize("version", [0, 1])
def test_a_handshake_refused_makes_nobody(version: int) -> None:
    client = Client(broker_copy())
    client.shakes(version, error_code=34)
    assert client.who() is None
    client.authenticates()
    assert client.who() is None


def test_raw_tokens_make_nobody() -> None:
    client = Client(broker_copy())
    client.shakes(0)
    client.client(framed(ALICE))
    client.upstream(framed(b""))
    client.exchange(QUESTION, TOLD, 5)
    assert client.who() is None
    client.authenticates()
    assert client.who() is None


@pytest.mark.parametrize("key", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
@pytest.mark.parametrize("side", ["request", "reply"])
def test_sasl_that_is_not_understood_passes_and_makes_nobody(key: int, side: str) -> None:
    copy = broker_copy()
    client = Client(copy)
    client.shakes()
    client.authenticates()
    frame = request(key, 9, version=1, body=b"\xff" if side == "request" else b"\0\5PLAIN" + bytes(20))
    if side == "reply" and key == ApiKey.SASL_AUTHENTICATE:
        frame = client.frame(SaslAuthenticateRequest(auth_bytes=ALICE), 1)
    assert client.client(frame) == [ToUpstream(frame)]
    answer = reply(int.from_bytes(frame[8:12], "big"), b"\0" if side == "reply" else b"\0\0" + bytes(20))
    assert client.upstream(answer) == [ToClient(answer)]
    assert client.who() is None
    assert copy.traffic.decode_failures == {key: 1}
    client.exchange(QUESTION, TOLD, 5)
    assert ApiKey.DESCRIBE_GROUPS in copy.traffic.durations  # It is still looked into.


@pytest.mark.parametrize("again", [False, True])
def test_sasl_too_long_to_be_looked_into_passes_and_makes_nobody(again: bool) -> None:
    copy = broker_copy(limits={"inspected_frame": 1024})
    client = Client(copy)
    client.shakes()
    if again:
        client.authenticates()
    frame = client.frame(SaslAuthenticateRequest(auth_bytes=bytes(2000)), 2)
    assert client.client(frame[:50]) == [ToUpstream(frame[:50])]
    assert client.client(frame[50:]) == [ToUpstream(frame[50:])]
    assert to_client(client.broker_says(TAKEN, 2))
    assert client.who() is None


def test_a_reply_to_a_token_is_read_whatever_its_length() -> None:
    client = Client(broker_copy(limits={"inspected_frame": 1024}))
    client.shakes()
    client.authenticates()
    client.authenticates(answer=replace(REFUSED, error_message="no" * 1000))
    assert client.who() is None


def test_a_handshake_of_version_1_before_one_of_version_0_does_not_end_its_wait() -> None:
    client = Client(broker_copy())
    framed_one = client.frame(SaslHandshakeRequest(mechanism=PLAIN), 1)
    raw = client.frame(SaslHandshakeRequest(mechanism=PLAIN), 0)
    assert to_upstream(client.client(framed_one, raw)) == framed_one + raw
    client.broker_says(ACCEPTED, 1, correlation=1)
    assert not client.session.wants_client
    client.broker_says(ACCEPTED, 0, correlation=2)
    token = framed(ALICE)
    assert to_upstream(client.client(token)) == token


@pytest.mark.parametrize("sasl", [False, True])
def test_a_reply_on_a_connection_without_sasl_says_that_the_listener_serves_such(sasl: bool) -> None:
    copy = broker_copy(answers={"authorizer": "none"})
    client = Client(copy)
    client.exchange(ApiVersionsRequest(), OFFER, 0)
    if sasl:
        client.shakes()
        client.authenticates()
    assert not copy.may_see(ANONYMOUS, [], 0)
    client.exchange(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse(error_code=0), 3)
    assert copy.may_see(ANONYMOUS, [], 0) is not sasl
