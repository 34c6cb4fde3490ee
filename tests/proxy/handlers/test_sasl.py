"""The sidecar refuses connections of a principal with too many: a SASL user, or the subject of a certificate."""

import pytest

from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Close, Command
from tests.proxy.dataplane.playbook import Line, access_of, complete_state


def authenticate(state: BrokerState, password: bytes) -> tuple[Line, list[Command]]:
    """Authenticates a new connection. Returns the connection, and its commands after the broker's last reply."""
    line = Line(state)
    answer = SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))
    line.exchange(SaslHandshakeRequest(mechanism="PLAIN"), answer, 1)
    line.sends(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + password), 1)
    accepted = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
    return line, line.broker_replies(accepted, 1)


def test_principal_with_too_many_connections_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A connection above the limit is closed, the log names the limit, and other connections stay."""
    state = complete_state(limits={"connections_per_principal": 1})
    first, _ = authenticate(state, b"secret")
    assert not first.session._closed
    for _ in range(3):
        assert authenticate(state, b"secret")[1] == [Close(CloseReason.PRINCIPAL_LIMIT)]
    assert not authenticate(state, b"another")[0].session._closed
    first.session.close(first.now)
    assert not authenticate(state, b"secret")[0].session._closed
    assert "limits.connections_per_principal" in capsys.readouterr().out


def connect(state: BrokerState, subject: str | None) -> tuple[Line, str | None]:
    """Opens a connection of a client with a certificate. Returns the connection, and why it is refused, or None."""
    line = Line(state)
    line.session.origin.subject = subject
    return line, line.session.dispatcher.admit(line.session.origin)


def test_certificate_with_too_many_connections_is_refused() -> None:
    """Without SASL, connections are limited by the subject of the certificate, even an empty one, and clients without a
    certificate are not limited.
    """
    state = complete_state(limits={"connections_per_principal": 1})
    first, admitted = connect(state, "CN=alice")
    assert admitted is None
    refused, cause = connect(state, "CN=alice")
    assert cause == "its principal has 1 connections (limits.connections_per_principal)"
    refused.session.close(refused.now)
    assert connect(state, "CN=alice")[1] is not None
    assert connect(state, "CN=bob")[1] is None
    assert [connect(state, None)[1] for _ in range(3)] == [None] * 3
    assert connect(state, "")[1] is None
    assert connect(state, "")[1] is not None
    first.session.close(first.now)
    assert connect(state, "CN=alice")[1] is None


def test_sasl_user_counts_in_place_of_certificate() -> None:
    """After a SaslHandshake, connections no longer count for their certificates, but only for their SASL users."""
    state = complete_state(limits={"connections_per_principal": 1})
    access_of(state).reset_learned()
    first, _ = connect(state, "CN=shared")
    accepted = SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))
    first.exchange(SaslHandshakeRequest(mechanism="PLAIN"), accepted, 1)
    assert [connect(state, "CN=shared")[1] for _ in range(3)] == [None] * 3


def test_principals_are_not_limited_by_default() -> None:
    """Without a limit, a principal may have many connections."""
    state = complete_state()
    assert not any(authenticate(state, b"secret")[0].session._closed for _ in range(50))
