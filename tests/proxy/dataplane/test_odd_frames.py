"""Requests and replies in encodings that no client and no broker writes, through a session with a real dispatcher.

Each frame is at once forwarded or answered, or ends the connection, without an exception.
"""

import random
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from group_sidecar.codecs.api_registry import APIS, Api
from group_sidecar.proxy.broker.broker_state import BrokerState
from tests.codecs.odd_encodings import bodies, frames
from tests.proxy.dataplane.playbook import Line, broker_state, complete_state, framed, to_upstream

FEW, MANY = 6, 120
"""The numbers of requests of each API and version."""
POLICIES = {"group_max_size": {"limit": 1}, "offset_metadata_max_bytes": {"limit": 3}}
CASES = [pytest.param(api, id=api.name) for api in APIS.values()]
Logged = list[MutableMapping[str, Any]]


@pytest.fixture
def logged() -> Iterator[Logged]:
    """The captured log lines."""
    with structlog.testing.capture_logs() as captured:
        yield captured


@pytest.fixture(params=[complete_state, broker_state], ids=["certain", "not certain"])
def state(request: pytest.FixtureRequest) -> BrokerState:
    """A broker's state that all frames of a test share."""
    made: BrokerState = request.param(policies=POLICIES)
    return made


def exchanges(state: BrokerState, api: Api, count: int) -> None:
    """Sends odd requests, each over its own connection and cut in two, and the broker's odd replies to them."""
    chance = random.Random(api.name)
    for version in api.versions:
        replies = bodies(api.response, version, count, seed=1)
        for request, reply in zip(frames(api.request, version, count, seed=1), replies, strict=True):
            line = Line(state)  # Its dispatcher is new too, so it logs each fault again.
            frame = framed(request)
            at = chance.randint(0, len(frame))
            commands = [*line.client(frame[:at]), *line.client(frame[at:])]
            assert commands, "the session waits although the frame is complete"
            if to_upstream(commands) == frame:
                header = request[4:8] + (b"\0" if version >= api.response.HEADER_FLEXIBLE else b"")
                assert line.upstream(framed(header + reply)), "the reply is neither forwarded nor closes the connection"
            line.client_closed()


def faults(logged: Logged) -> Logged:
    """Returns the logged exceptions. A DecodeError is not among them, because it is logged as a warning."""
    return [line for line in logged if line["log_level"] == "error"]


@pytest.mark.parametrize("api", CASES)
def test_odd_frames_cause_no_fault(api: Api, state: BrokerState, logged: Logged) -> None:
    """Oddly encoded requests and replies are forwarded, answered or closed without an exception."""
    exchanges(state, api, FEW)
    assert faults(logged) == []


@pytest.mark.long
@pytest.mark.parametrize("api", CASES)
def test_many_odd_frames_cause_no_fault(api: Api, state: BrokerState, logged: Logged) -> None:
    """Many oddly encoded requests and replies are forwarded, answered or closed without an exception."""
    exchanges(state, api, MANY)
    assert faults(logged) == []
