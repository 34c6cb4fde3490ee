"""A SASL principal with too many connections."""

import pytest

from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Close, Command
from tests.proxy.dataplane.playbook import Line, complete_state


def authenticate(state: BrokerState, password: bytes) -> tuple[Line, list[Command]]:
    """Authenticates a new connection. Returns the connection, and what it does with the broker's last reply."""
    line = Line(state)
    answer = SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))
    line.exchange(SaslHandshakeRequest(mechanism="PLAIN"), answer, 1)
    line.sends(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + password), 1)
    accepted = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
    return line, line.broker_replies(accepted, 1)


def test_principal_with_too_many_connections_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A connection beyond the limit is closed, and the log names the limit. Other connections stay."""
    state = complete_state(limits={"connections_per_principal": 1})
    first, _ = authenticate(state, b"secret")
    assert not first.session._closed
    for _ in range(3):
        assert authenticate(state, b"secret")[1] == [Close(CloseReason.PRINCIPAL_LIMIT)]
    assert not authenticate(state, b"another")[0].session._closed
    first.session.close(first.now)
    assert not authenticate(state, b"secret")[0].session._closed
    assert "limits.connections_per_principal" in capsys.readouterr().out


def test_principals_are_not_limited_by_default() -> None:
    """Without a limit, a principal may have many connections."""
    state = complete_state()
    assert not any(authenticate(state, b"secret")[0].session._closed for _ in range(50))
