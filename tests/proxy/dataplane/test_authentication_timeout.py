"""Connections that do not authenticate in time at a listener that requires SASL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.connection import InactivityTimeouts
from group_sidecar.proxy.dataplane.connections import SWEEP_SECONDS
from group_sidecar.proxy.dataplane.outcomes import Origin
from tests.proxy.dataplane.playbook import Line, broker_state, reply, request
from tests.proxy.fakes import (
    PassthroughDispatcher,
    RunningProxy,
    holds,
    read_frame,
    read_to_end,
    reply_frame,
    request_frame,
    running_proxy,
)

SECONDS = 30
TIMEOUTS = InactivityTimeouts(idle=1000, authentication=SECONDS)
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class SaslDispatcher(PassthroughDispatcher):
    """A dispatcher whose broker may require SASL, and may have admitted all clients."""

    def __init__(self, *, requires_sasl: bool = True, admitted: bool = False) -> None:
        self.requires_sasl = requires_sasl
        self.admitted = admitted

    def is_admitted(self, origin: Origin) -> bool:
        return self.admitted


@asynccontextmanager
async def silent_client(dispatcher: SaslDispatcher) -> AsyncIterator[tuple[RunningProxy, trio.SocketStream]]:
    """Runs a client that sends nothing."""
    async with running_proxy(dispatcher=dispatcher, timeouts=TIMEOUTS) as shell, await shell.connect() as client:
        await holds(lambda: shell.connection_manager.connections == 1)
        yield shell, client


async def jump(clock: MockClock, seconds: float) -> None:
    """Advances the clock, and waits for the sweep."""
    clock.jump(seconds + SWEEP_SECONDS)
    await wait_all_tasks_blocked()


async def test_unauthenticated_connection_is_closed(mock_clock: MockClock) -> None:
    """A connection that the broker has not admitted in time is closed with a reason of its own."""
    async with silent_client(SaslDispatcher()) as (shell, client):
        await jump(mock_clock, SECONDS - 2 * SWEEP_SECONDS)
        assert shell.connection_manager.connections == 1
        await jump(mock_clock, 2 * SWEEP_SECONDS)
        assert await read_to_end(client) == b""
        await shell.closed(CloseReason.AUTHENTICATION_TIMEOUT)


@pytest.mark.parametrize("dispatcher", [SaslDispatcher(requires_sasl=False), SaslDispatcher(admitted=True)])
async def test_other_connections_stay_open(mock_clock: MockClock, dispatcher: SaslDispatcher) -> None:
    """An admitted client, and a client of a listener without SASL, are not closed."""
    async with silent_client(dispatcher) as (shell, _):
        for _ in range(3):
            await jump(mock_clock, SECONDS)
        assert shell.connection_manager.connections == 1


async def test_admitted_connection_is_not_checked_again(mock_clock: MockClock) -> None:
    """A client that authenticates again on its connection is not closed meanwhile."""
    dispatcher = SaslDispatcher(admitted=True)
    async with silent_client(dispatcher) as (shell, _):
        await jump(mock_clock, SECONDS)
        dispatcher.admitted = False
        await jump(mock_clock, 3 * SECONDS)
        assert shell.connection_manager.connections == 1


async def test_sasl_that_is_learnt_later_counts(mock_clock: MockClock) -> None:
    """The sidecar may learn after the connection began that the listener requires SASL."""
    dispatcher = SaslDispatcher(requires_sasl=False)
    async with silent_client(dispatcher) as (shell, _):
        await jump(mock_clock, SECONDS)
        dispatcher.requires_sasl = True
        await jump(mock_clock, SECONDS)
        await shell.closed(CloseReason.AUTHENTICATION_TIMEOUT)


async def test_reply_that_passes_unread_shows_admission(mock_clock: MockClock) -> None:
    """A client whose requests the sidecar never decodes, such as a producer with OAUTHBEARER, is not closed."""
    async with silent_client(SaslDispatcher()) as (shell, client):
        await client.send_all(request_frame(1))
        assert await read_frame(client) == reply_frame(1)
        await jump(mock_clock, SECONDS)
        assert shell.connection_manager.connections == 1


# What the broker's replies show.


@pytest.fixture
def state() -> BrokerState:
    return broker_state()


def shake(line: Line, mechanism: str) -> None:
    line.exchange(
        SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse(error_code=0, mechanisms=(mechanism,)), 1
    )


def send_token(line: Line, token: bytes, error: int = 0) -> None:
    answer = SaslAuthenticateResponse(error_code=error, error_message=None, auth_bytes=b"")
    line.exchange(SaslAuthenticateRequest(auth_bytes=token), answer, 1)


def test_accepted_handshake_shows_that_sasl_is_required(state: BrokerState) -> None:
    """The listener requires SASL from the first accepted handshake on. Its client is not admitted by it."""
    line = Line(state)
    dispatchers = [line.session.dispatcher]
    assert [each.requires_sasl for each in dispatchers] == [False]
    shake(line, "PLAIN")
    assert [each.requires_sasl for each in dispatchers] == [True]
    assert not line.session.is_admitted
    assert not Line(state).session.is_admitted


def test_accepted_token_admits_client(state: BrokerState) -> None:
    """PLAIN admits a client with one token. A refused token admits nobody."""
    good, bad = Line(state), Line(state)
    for line in (good, bad):
        shake(line, "PLAIN")
    send_token(good, b"\0user\0password")
    send_token(bad, b"\0user\0wrong", error=58)
    assert good.session.is_admitted
    assert not bad.session.is_admitted


def test_reply_after_other_mechanisms_admits_client(state: BrokerState) -> None:
    """After a mechanism that the sidecar does not follow, the first reply to another request shows the admission."""
    decoded, unread = Line(state), Line(state)
    for line in (decoded, unread):
        shake(line, "OAUTHBEARER")
        send_token(line, b"n,,\x01auth=Bearer x\x01\x01")
        assert not line.session.is_admitted
    decoded.exchange(BEAT, HeartbeatResponse(error_code=0), 3)
    frame = request(ApiKey.METADATA, 7, version=4, body=bytes(5))
    unread.client(frame)
    unread.upstream(reply(7))
    assert decoded.session.is_admitted
    assert unread.session.is_admitted
